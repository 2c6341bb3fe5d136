//! `twinbox keys`.
use crate::{
    change::{Change, ChangeArguments, Done},
    destinations::find::find_destination,
    exit::Exit,
    operations,
    output::counted,
    session::Session,
};
use clap::Subcommand;
use twinbox_sql::Dialect;

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// List idempotency keys: those of requests that called a vendor, or may have, and never finished. The
    /// same as `operations list`.
    List {
        /// Only keys of unfinished requests. Required: there is no list of the others.
        #[arg(long, required = true)]
        unfinished: bool,
        /// The number of keys.
        #[arg(long, default_value_t = 100, value_name = "NUMBER")]
        limit: u32,
    },
    /// Blank the payloads of all messages with a key: in the log, delayed, parked and dead ones. Cannot be
    /// undone. Copies in brokers, backups and tables of handlers stay.
    Redact {
        /// The key. The key itself, ids, types and times stay.
        key: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Send the later messages of a key that wait behind its dead letters. The dead letters stay.
    Unblock {
        /// The key.
        key: String,
        /// The destination that the messages wait for.
        #[arg(long, value_name = "NAME")]
        destination: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

pub(crate) async fn run<DB: Dialect>(command: KeysCommand, session: &Session<DB>) -> Result<(), Exit> {
    match command {
        KeysCommand::List { unfinished: _, limit } => operations::list(session, limit).await,
        KeysCommand::Redact { key, change } => redact(session, &key, &change).await,
        KeysCommand::Unblock { key, destination, change } => {
            unblock(session, &key, &destination, &change).await
        }
    }
}

async fn redact<DB: Dialect>(session: &Session<DB>, key: &str, change: &ChangeArguments) -> Result<(), Exit> {
    let effect = format!(
        "This will blank the payloads of all messages with the key {key:?}, for good. Copies in brokers, \
         backups and \
         tables of handlers stay."
    );
    let act = async || {
        let redacted = session.ops.redact(key).await?;
        let text = format!(
            "Blanked: {} of the log, {}, {}, {}.",
            counted(redacted.outbox, "message"),
            counted(redacted.delayed, "delayed message"),
            counted(redacted.parked_deliveries, "parked message"),
            counted(redacted.dead_letters, "dead letter")
        );
        let count = redacted.outbox + redacted.delayed + redacted.parked_deliveries + redacted.dead_letters;
        Ok(Done::new(count, text)
            .detail("log", redacted.outbox)
            .detail("delayed", redacted.delayed)
            .detail("parked", redacted.parked_deliveries)
            .detail("dead_letters", redacted.dead_letters))
    };
    change.run(session, &Change { command: "keys redact", target: key, effect }, act).await
}

async fn unblock<DB: Dialect>(
    session: &Session<DB>,
    key: &str,
    destination: &str,
    change: &ChangeArguments,
) -> Result<(), Exit> {
    find_destination(&session.ops, destination).await?;
    let effect = format!(
        "This will send later messages of the key {key:?} to {destination}. The dead letters of the key stay."
    );
    let act = async || {
        let blocking = session.ops.release_key(destination, key).await?;
        Ok(Done::new(
            blocking,
            format!("The key is unblocked. It was blocked by {}.", counted(blocking, "dead letter")),
        ))
    };
    let target = format!("{destination}: key {key}");
    change.run(session, &Change { command: "keys unblock", target: &target, effect }, act).await
}
