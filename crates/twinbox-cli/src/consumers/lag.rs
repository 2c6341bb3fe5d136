//! `twinbox consumers lag`.
#[cfg(feature = "nats")]
mod broker;
mod row;

use super::find::{names_with, unknown_consumer};
use crate::{
    exit::Exit,
    output::{note, plain, print_line, table_of},
    session::Session,
};
use clap::Args;
use row::{LagRow, PartitionRow, Reads};
use std::collections::BTreeMap;
use twinbox_ops::ReaderStatus;
use twinbox_sql::{Dialect, ReaderName};

#[derive(Debug, Args)]
pub(crate) struct LagArguments {
    /// The consumer, whose partitions are then shown as well. Default: all consumers.
    name: Option<String>,
    #[cfg(feature = "nats")]
    #[command(flatten)]
    stream: crate::stream::StreamArguments,
}

pub(super) async fn run<DB: Dialect>(arguments: &LagArguments, session: &Session<DB>) -> Result<(), Exit> {
    let readers = session.ops.readers().await?;
    let mut names = names_with(&session.ops, &readers).await?;
    if let Some(name) = &arguments.name {
        if !names.contains(name) {
            return Err(Exit::not_found(unknown_consumer(name, &names)));
        }
        names.retain(|known| known == name);
    }
    let mut rows = Vec::new();
    for name in names {
        rows.extend(rows_of(session, &readers, name).await?);
    }
    #[cfg(feature = "nats")]
    let asked = broker::ask(&arguments.stream, &mut rows, session.store.now().await?).await;
    #[cfg(not(feature = "nats"))]
    let asked = {
        rows.iter_mut().for_each(|row| row.lacks("this build has no feature `nats`"));
        Ok(())
    };
    print(arguments, session, &only_the_known(rows), asked)
}

/// A row for each place that the consumer may read from.
async fn rows_of<DB: Dialect>(
    session: &Session<DB>,
    readers: &[ReaderStatus],
    name: String,
) -> Result<Vec<LagRow>, Exit> {
    let ops = &session.ops;
    let (backlog, checkpoints) =
        (ops.consumer_backlog(&name).await?, ops.partition_checkpoints(&name).await?);
    let cursor = ReaderName::Consumer(name.clone()).to_string();
    let mut rows = Vec::new();
    if let Some(reader) = readers.iter().find(|reader| reader.name == cursor) {
        rows.push(LagRow::new(&name, Reads::Log, &backlog).of_log(reader));
    }
    if !checkpoints.is_empty() {
        rows.push(LagRow::new(&name, Reads::Partitions, &backlog).of_partitions(checkpoints));
    }
    rows.push(LagRow::new(&name, Reads::Unknown, &backlog));
    Ok(rows)
}

/// Without the rows of brokers that turned out to have nothing for a consumer that reads elsewhere.
fn only_the_known(rows: Vec<LagRow>) -> Vec<LagRow> {
    let mut known: Vec<LagRow> = Vec::with_capacity(rows.len());
    for row in rows {
        let reads_elsewhere = known.last().is_some_and(|last| last.consumer == row.consumer);
        if row.reads != Reads::Unknown || !reads_elsewhere {
            known.push(row);
        }
    }
    known
}

fn print<DB: Dialect>(
    arguments: &LagArguments,
    session: &Session<DB>,
    rows: &[LagRow],
    asked: Result<(), String>,
) -> Result<(), Exit> {
    let output = &session.output;
    output.list(&LagRow::COLUMNS, rows, "No consumer has ever run on this database.");
    if output.is_table() && arguments.name.is_some() {
        for row in rows.iter().filter(|row| row.reads == Reads::Partitions) {
            print_line(&format!("\n{}", table_of(&PartitionRow::COLUMNS, &row.partitions)));
        }
    }
    if let Err(error) = asked {
        return Err(Exit::partial(format!("BEHIND and OLDEST are not all known: {error}")));
    }
    let mut reasons = BTreeMap::<&str, Vec<&str>>::new();
    for row in rows {
        if let Some(reason) = &row.unknown_because {
            reasons.entry(reason).or_default().push(&row.consumer);
        }
    }
    for (reason, consumers) in reasons {
        note(&format!("BEHIND and OLDEST of {} are unknown: {reason}.", plain(&consumers.join(", "))));
    }
    Ok(())
}
