//! Who handles messages on this database.
use crate::{
    ask::Change,
    exit::Exit,
    output::{Column, Output, counted},
    replay::changed,
    status::ConsumerRow,
};
use clap::{Args, Subcommand};
use serde::Serialize;
use twinbox_sql::{ConsumerRecord, Dialect, ParkedHead, Store};

#[derive(Debug, Subcommand)]
pub(crate) enum ConsumersCommand {
    /// All that have run here.
    List,
    /// Take no more deliveries in any process, until it is resumed, over restarts too. Takes effect within two seconds.
    Pause(Named),
    /// Take deliveries again.
    Resume(Named),
    /// Expect one no more that is gone for good. Its claims and dead letters stay.
    Forget(Named),
    /// Deliveries that it has put aside, so that other keys go on.
    Parked {
        /// The consumer.
        name: String,
        /// How many.
        #[arg(long, default_value_t = 100, value_name = "NUMBER")]
        limit: u32,
    },
    /// Try what it has put aside at once, instead of when it is due.
    Retry {
        /// The consumer.
        name: String,
        /// Of this key. Without it: of all.
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        change: Change,
    },
}

#[derive(Serialize)]
struct ParkedRow {
    id: i64,
    event_id: String,
    message_id: String,
    event_type: String,
    key: Option<String>,
    parked_at: String,
    next_attempt_at: String,
    failures: Option<u32>,
    last_error: Option<String>,
}

const PARKED: [Column; 6] = [
    ("id", "event_id"),
    ("type", "event_type"),
    ("key", "key"),
    ("failures", "failures"),
    ("error", "last_error"),
    ("again at", "next_attempt_at"),
];

impl From<ParkedHead> for ParkedRow {
    fn from(head: ParkedHead) -> Self {
        let (failures, last_error) = head.failures.unzip();
        Self {
            id: head.id,
            event_id: head.event_id,
            message_id: head.message_id.to_string(),
            event_type: head.event_type,
            key: head.key,
            parked_at: head.parked_at.to_string(),
            next_attempt_at: head.next_attempt_at.to_string(),
            failures,
            last_error,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The consumer.
    name: String,
    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run<DB: Dialect>(
    command: ConsumersCommand,
    store: &Store<DB>,
    output: &Output,
) -> Result<(), Exit> {
    match command {
        ConsumersCommand::List => {
            let rows: Vec<_> = store.consumers().await?.iter().map(ConsumerRow::from).collect();
            output.list(&ConsumerRow::COLUMNS, &rows, "No consumer has ever run on this database.");
            Ok(())
        }
        ConsumersCommand::Pause(Named { name, change }) => {
            let it = known(store, &name).await?;
            let about = format!(
                "This will hold {name} back in every process; it has {}.",
                counted(it.dead_letters, "dead letter")
            );
            let reason = change.reason.clone().unwrap_or_else(|| format!("by {}", change.who()));
            let act = async || Ok((1, store.pause_consumer(&name, &reason).await?));
            changed(change.make(store, "consumers pause", &name, &about, act).await?, "It is held back.")
        }
        ConsumersCommand::Forget(Named { name, change }) => {
            known(store, &name).await?;
            let about = format!("This will have nobody expect {name} any more, until it runs again.");
            let act = async || Ok((u64::from(store.forget_consumer(&name).await?), ()));
            changed(change.make(store, "consumers forget", &name, &about, act).await?, "It is forgotten.")
        }
        ConsumersCommand::Parked { name, limit } => {
            known(store, &name).await?;
            let rows = store.parked_heads(&name, limit).await?.into_iter().map(ParkedRow::from);
            output.list(&PARKED, &Vec::from_iter(rows), "It has put nothing aside.");
            Ok(())
        }
        ConsumersCommand::Retry { name, key, change } => {
            let it = known(store, &name).await?;
            let parked = counted(it.parked_deliveries, "message");
            let about = match &key {
                Some(key) => {
                    format!("This will have {name} try what it has put aside of the key {key:?} at once.")
                }
                None => format!("This will have {name} try at once what it has put aside: {parked}."),
            };
            let act = async || {
                let retried = store.retry_parked(&name, key.as_deref()).await?;
                Ok((retried, ()))
            };
            changed(change.make(store, "consumers retry", &name, &about, act).await?, "It tries them.")
        }
        ConsumersCommand::Resume(Named { name, change }) => {
            let it = known(store, &name).await?;
            let about = match &it.paused {
                Some(reason) => format!("This will let {name} go on, which was held back: {reason}."),
                None => format!("{name} is not held back."),
            };
            let act = async || Ok((1, store.resume_consumer(&name).await?));
            changed(change.make(store, "consumers resume", &name, &about, act).await?, "It goes on.")
        }
    }
}

async fn known<DB: Dialect>(store: &Store<DB>, name: &str) -> Result<ConsumerRecord, Exit> {
    let found = store.consumers().await?.into_iter().find(|record| record.consumer == name);
    found.ok_or_else(|| {
        Exit::not_found(format!(
            "no consumer {name:?} has ever run on this database: `twinbox consumers list` shows which have"
        ))
    })
}
