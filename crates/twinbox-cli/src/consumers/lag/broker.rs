//! What a stream of NATS says about the lag of consumers.
use super::row::{LagRow, Reads};
use crate::stream::StreamArguments;
use std::time::Duration;
use twinbox_core::Timestamp;
use twinbox_nats::{Error, LagReader};

const NO_LOOK_AT_SQS: &str = "this tool cannot look at a queue of SQS, which shows its messages itself";

/// Fills in what the stream knows. The error text of the first failure: the rest stays unknown.
pub(super) async fn ask(stream: &StreamArguments, rows: &mut [LagRow], now: Timestamp) -> Result<(), String> {
    let Some(given) = stream.given() else {
        for row in rows {
            row.lacks(&match row.reads {
                Reads::Partitions => "give --nats-url".to_owned(),
                _ => format!("give --nats-url if it reads NATS; {NO_LOOK_AT_SQS}"),
            });
        }
        return Ok(());
    };
    let asked = async {
        let reader = given?.lag_reader().await?;
        for row in rows.iter_mut() {
            match row.reads {
                Reads::Log | Reads::Durable => {}
                Reads::Partitions => partitions(&reader, row, now).await?,
                Reads::Unknown => durable(&reader, stream, row, now).await?,
            }
        }
        Ok::<_, Error>(())
    };
    asked.await.map_err(|error| {
        let error = error.to_string();
        rows.iter_mut().filter(|row| row.unknown_because.is_none()).for_each(|row| row.lacks(&error));
        error
    })
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

async fn durable(
    reader: &LagReader,
    stream: &StreamArguments,
    row: &mut LagRow,
    now: Timestamp,
) -> Result<(), Error> {
    match reader.durable(&row.consumer).await? {
        Some(lag) => {
            row.reads = Reads::Durable;
            row.behind = Some(lag.waiting + lag.unacknowledged);
            row.unacknowledged = Some(lag.unacknowledged);
            row.oldest_seconds = lag.oldest_at.map(|at| age(at, now));
        }
        None => row.lacks(&format!("the stream {} has no such consumer; {NO_LOOK_AT_SQS}", stream.name())),
    }
    Ok(())
}

/// In seconds.
fn age(at: Timestamp, now: Timestamp) -> f64 {
    let micros = now.as_micros().saturating_sub(at.as_micros());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0)).as_secs_f64()
}
