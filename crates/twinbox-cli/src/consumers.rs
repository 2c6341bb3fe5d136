//! `twinbox consumers`.
pub(crate) mod find;
mod lag;
pub(crate) mod row;

use crate::{
    change::{Change, ChangeArguments, Done},
    exit::Exit,
    output::counted,
    session::Session,
};
use clap::{Args, Subcommand};
use find::find_consumer;
use lag::LagArguments;
use row::ConsumerRow;
use twinbox_sql::Dialect;

#[derive(Debug, Subcommand)]
pub(crate) enum ConsumersCommand {
    /// List the consumers that have run on this database.
    List,
    /// Show how far consumers are behind, and what waits for them in this database.
    Lag(LagArguments),
    /// Stop deliveries to a consumer until `resume`, in every process and over restarts. Takes effect within
    /// two seconds.
    Pause(NameArguments),
    /// Deliver again.
    Resume(NameArguments),
    /// Forget a consumer that is gone for good: `status` no longer expects it. Its claims and dead letters
    /// stay.
    Forget(NameArguments),
}

#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    /// The consumer.
    name: String,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run<DB: Dialect>(command: ConsumersCommand, session: &Session<DB>) -> Result<(), Exit> {
    let ops = &session.ops;
    match command {
        ConsumersCommand::List => {
            let rows: Vec<_> = ops.consumers().await?.iter().map(ConsumerRow::from).collect();
            session.output.list(&ConsumerRow::COLUMNS, &rows, "No consumer has ever run on this database.");
            Ok(())
        }
        ConsumersCommand::Lag(arguments) => lag::run(&arguments, session).await,
        ConsumersCommand::Pause(NameArguments { name, change }) => {
            let consumer = find_consumer(ops, &name).await?;
            let effect = format!(
                "This will pause consumer {name} in every process. It has {}.",
                counted(consumer.dead_letters, "dead letter")
            );
            let reason = change.pause_reason();
            let act = async || {
                ops.pause_consumer(&name, &reason).await?;
                Ok(Done::new(1, format!("Consumer {name} is paused.")))
            };
            change.run(session, &Change { command: "consumers pause", target: &name, effect }, act).await
        }
        ConsumersCommand::Resume(NameArguments { name, change }) => {
            let consumer = find_consumer(ops, &name).await?;
            let effect = match &consumer.pause_reason {
                Some(reason) => format!("This will resume consumer {name}, which is paused: {reason}."),
                None => format!("Consumer {name} is not paused."),
            };
            let act = async || {
                ops.resume_consumer(&name).await?;
                Ok(Done::new(1, format!("Consumer {name} is resumed.")))
            };
            change.run(session, &Change { command: "consumers resume", target: &name, effect }, act).await
        }
        ConsumersCommand::Forget(NameArguments { name, change }) => {
            find_consumer(ops, &name).await?;
            let effect = format!("This will forget consumer {name} until it runs again.");
            let act = async || {
                let forgotten = ops.forget_consumer(&name).await?;
                Ok(Done::new(u64::from(forgotten), format!("Consumer {name} is forgotten.")))
            };
            change.run(session, &Change { command: "consumers forget", target: &name, effect }, act).await
        }
    }
}
