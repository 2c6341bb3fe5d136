//! The lag of consumers, as their streams of NATS report it.
use super::row::{LagRow, Reads};
use crate::stream::{Server, StreamArguments};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};
use twinbox_core::Timestamp;
use twinbox_nats::{Error, LagReader, StreamAddress};

const NO_LOOK_AT_SQS: &str = "this tool cannot look at a queue of SQS, which shows its messages itself";

/// Fills in the lag of each row from its stream. A stream that fails leaves its rows unknown, and stops no
/// other. Returns the error text of the first one that fails.
pub(super) async fn ask(
    arguments: &StreamArguments,
    rows: &mut [LagRow],
    now: Timestamp,
) -> Result<(), String> {
    let Some(server) = arguments.server() else {
        for row in rows {
            row.lacks(&match row.reads {
                Reads::Partitions => "give --nats-url".to_owned(),
                _ => format!("give --nats-url if it reads NATS; {NO_LOOK_AT_SQS}"),
            });
        }
        return Ok(());
    };
    let (mut readers, mut asked) = (BTreeMap::new(), Ok(()));
    for row in rows.iter_mut().filter(|row| matches!(row.reads, Reads::Partitions | Reads::Unknown)) {
        let Some(address) = arguments.address(row.address.as_deref()) else {
            row.lacks(&format!(
                "it has recorded no stream of NATS: give --nats-stream if it reads one; {NO_LOOK_AT_SQS}"
            ));
            continue;
        };
        if let Err(error) = of_row(&mut readers, server, address, row, now).await {
            row.lacks(&error);
            asked = asked.and(Err(error));
        }
    }
    asked
}

/// Consumers of one stream share a connection, or its error.
async fn of_row(
    readers: &mut BTreeMap<StreamAddress, Result<LagReader, String>>,
    server: Server<'_>,
    address: StreamAddress,
    row: &mut LagRow,
    now: Timestamp,
) -> Result<(), String> {
    let stream = address.stream.clone();
    let reader = match readers.entry(address) {
        Entry::Occupied(opened) => opened.into_mut(),
        Entry::Vacant(new) => {
            let opened = async { server.stream(new.key().clone())?.lag_reader().await };
            let opened = opened.await.map_err(|error: Error| error.to_string());
            new.insert(opened)
        }
    };
    let reader = reader.as_ref().map_err(String::clone)?;
    let told = match row.reads {
        Reads::Partitions => partitions(reader, row, now).await,
        _ => durable(reader, &stream, row, now).await,
    };
    told.map_err(|error| error.to_string())
}

async fn partitions(reader: &LagReader, row: &mut LagRow, now: Timestamp) -> Result<(), Error> {
    let checkpoints = row.partitions.iter().map(|one| (one.partition, one.read.checkpoint.clone()));
    let types = row.partitions.first().map(|one| one.read.types.clone()).unwrap_or_default();
    let lags = reader.partitions(&row.consumer, &types, &Vec::from_iter(checkpoints)).await?;
    row.behind = Some(lags.iter().map(|lag| lag.messages).sum());
    row.oldest_seconds = lags.iter().filter_map(|lag| lag.oldest_at).min().map(|at| age(at, now));
    for (partition, lag) in row.partitions.iter_mut().zip(lags) {
        partition.behind = Some(lag.messages);
        partition.oldest_seconds = lag.oldest_at.map(|at| age(at, now));
        partition.restarts_because = lag.discontinuity;
    }
    Ok(())
}

async fn durable(reader: &LagReader, stream: &str, row: &mut LagRow, now: Timestamp) -> Result<(), Error> {
    match reader.durable(&row.consumer).await? {
        Some(lag) => {
            row.reads = Reads::Durable;
            row.behind = Some(lag.waiting + lag.unacknowledged);
            row.unacknowledged = Some(lag.unacknowledged);
            row.oldest_seconds = lag.oldest_at.map(|at| age(at, now));
        }
        None => row.lacks(&format!("the stream {stream} has no such consumer; {NO_LOOK_AT_SQS}")),
    }
    Ok(())
}

/// In seconds.
fn age(at: Timestamp, now: Timestamp) -> f64 {
    let micros = now.as_micros().saturating_sub(at.as_micros());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0)).as_secs_f64()
}
