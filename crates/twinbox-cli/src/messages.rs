//! `twinbox messages`.
use crate::{
    change::{Change, ChangeArguments, Done},
    consumers::find::find_consumer,
    dead_letters::row::DeadLetterRow,
    destinations::find::find_destination,
    exit::Exit,
    message_text::message_text,
    output::{Column, counted, plain},
    session::Session,
    time::{When, resolve},
};
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};
use twinbox_core::{Message, Timestamp};
use twinbox_ops::{
    ParkedDelivery,
    trail::{ConsumerTrail, LogEntry, MessageState, MessageTrail},
};
use twinbox_sql::Dialect;

#[derive(Debug, Subcommand)]
pub(crate) enum MessagesCommand {
    /// Show the path of one message: the log, each destination, each consumer.
    Show {
        /// Its event id, or its message id from a log line.
        id: String,
    },
    /// List the messages of a key in the log, the newest first, or those that a consumer has parked so that
    /// other keys continue.
    List {
        /// The key. All messages since the time are read to find its own.
        #[arg(long, required_unless_present = "consumer", conflicts_with = "consumer")]
        key: Option<String>,
        /// With a time from here on: `2026-11-20T03:00:00Z`, or `2h` for two hours ago.
        #[arg(long, value_name = "TIME", default_value = "7d", conflicts_with = "consumer")]
        since: When,
        /// The consumer.
        #[arg(long, value_name = "NAME")]
        consumer: Option<String>,
        /// The number of messages.
        #[arg(long, default_value_t = 100, value_name = "NUMBER")]
        limit: u32,
    },
    /// Retry the parked messages of a consumer now, before they are due.
    Retry {
        /// The consumer.
        #[arg(long, value_name = "NAME")]
        consumer: String,
        /// Only this key. Default: all keys.
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Give up a parked message of a destination, so that the messages behind it continue. It becomes a dead
    /// letter.
    Skip {
        /// Its event id.
        id: String,
        /// The destination.
        #[arg(long, value_name = "NAME")]
        destination: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

pub(crate) async fn run<DB: Dialect>(command: MessagesCommand, session: &Session<DB>) -> Result<(), Exit> {
    let ops = &session.ops;
    match command {
        MessagesCommand::Show { id } => show(session, &id).await,
        MessagesCommand::List { key: Some(key), since, limit, .. } => {
            let since = resolve(Some(since), &session.store).await?.unwrap_or(Timestamp::from_micros(0));
            let rows = ops.messages_of_key(&key, since, limit).await?.into_iter().map(LoggedRow::from);
            session.output.list(&LOGGED, &Vec::from_iter(rows), "The log has no message of this key.");
            Ok(())
        }
        MessagesCommand::List { consumer, limit, .. } => {
            let consumer = consumer.unwrap_or_default();
            find_consumer(ops, &consumer).await?;
            let rows = ops.parked_deliveries(&consumer, limit).await?.into_iter().map(ParkedRow::from);
            session.output.list(&PARKED, &Vec::from_iter(rows), "The consumer has no parked message.");
            Ok(())
        }
        MessagesCommand::Retry { consumer, key, change } => {
            retry(session, &consumer, key.as_deref(), &change).await
        }
        MessagesCommand::Skip { id, destination, change } => {
            find_destination(ops, &destination).await?;
            let effect = format!(
                "This will give up message {id:?} for {destination}. The messages that wait behind it \
                 continue."
            );
            let act = async || {
                let skipped = ops.skip_parked(&destination, &id).await?;
                Ok(Done::new(skipped, "The message is skipped."))
            };
            let target = format!("{destination}: message {id}");
            change.run(session, &Change { command: "messages skip", target: &target, effect }, act).await
        }
    }
}

async fn retry<DB: Dialect>(
    session: &Session<DB>,
    consumer: &str,
    key: Option<&str>,
    change: &ChangeArguments,
) -> Result<(), Exit> {
    let record = find_consumer(&session.ops, consumer).await?;
    let (effect, target) = match key {
        Some(key) => (
            format!("This will retry the parked messages of {consumer} with the key {key:?} now."),
            format!("{consumer}: key {key}"),
        ),
        None => {
            let parked = counted(record.parked_deliveries, "message");
            (format!("This will retry the parked messages of {consumer} now: {parked}."), consumer.to_owned())
        }
    };
    let act = async || {
        let retried = session.ops.retry_parked_deliveries(consumer, key).await?;
        Ok(Done::new(retried, format!("{} due now.", counted(retried, "parked message"))))
    };
    change.run(session, &Change { command: "messages retry", target: &target, effect }, act).await
}

#[derive(Serialize)]
struct LoggedRow {
    position: Option<u64>,
    event_id: String,
    message_id: String,
    event_type: String,
    version: u32,
    time: String,
}

const LOGGED: [Column; 4] =
    [("id", "event_id"), ("type", "event_type"), ("version", "version"), ("time", "time")];

impl From<Message> for LoggedRow {
    fn from(message: Message) -> Self {
        Self {
            position: message.sequence,
            message_id: message.message_id().to_string(),
            event_id: message.id,
            event_type: message.event_type,
            version: message.version,
            time: message.time.to_string(),
        }
    }
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
    ("next attempt", "next_attempt_at"),
];

impl From<ParkedDelivery> for ParkedRow {
    fn from(head: ParkedDelivery) -> Self {
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

async fn show<DB: Dialect>(session: &Session<DB>, id: &str) -> Result<(), Exit> {
    let trail = session.ops.trail(id).await?;
    let is_known = |one: &ConsumerTrail| one.claim.is_some() || one.failures.is_some() || one.superseded > 0;
    if trail.log.is_empty() && trail.dead_letters.is_empty() && !trail.consumers.iter().any(is_known) {
        return Err(Exit::not_found(format!("message {id:?} is unknown")));
    }
    session.output.one(&TrailRow::from(&trail), || render(session, &trail));
    Ok(())
}

#[derive(Serialize)]
struct TrailRow {
    logged: Vec<Value>,
    consumers: Vec<Value>,
    dead_letters: Vec<DeadLetterRow>,
}

impl From<&MessageTrail> for TrailRow {
    fn from(trail: &MessageTrail) -> Self {
        Self {
            logged: trail.log.iter().map(logged).collect(),
            consumers: trail.consumers.iter().map(handled).collect(),
            dead_letters: trail.dead_letters.iter().map(DeadLetterRow::from).collect(),
        }
    }
}

fn logged(one: &LogEntry) -> Value {
    let m = &one.message;
    let destinations: Vec<_> = one
        .readers
        .iter()
        .map(|(name, stands)| match stands {
            MessageState::Parked { state, attempts, error } => {
                json!({"destination": name, "state": state, "attempts": attempts, "error": error})
            }
            MessageState::Settled => json!({"destination": name, "state": "settled"}),
            _ => json!({"destination": name, "state": "pending"}),
        })
        .collect();
    json!({
        "position": one.position,
        "message_id": m.message_id().to_string(),
        "event_id": m.id,
        "source": m.source,
        "type": m.event_type,
        "version": m.version,
        "key": m.key,
        "subject": m.subject,
        "time": m.time.to_string(),
        "correlation_id": m.correlation_id,
        "causation_id": m.causation_id,
        "content_type": m.content_type,
        "payload_bytes": m.payload.len(),
        "destinations": destinations,
    })
}

fn handled(one: &ConsumerTrail) -> Value {
    json!({
        "consumer": one.consumer,
        "state": one.claim.as_ref().map(|(state, _)| state),
        "claimed_at": one.claim.as_ref().map(|(_, at)| at.to_string()),
        "failures": one.failures.as_ref().map(|(failures, _)| failures),
        "last_error": one.failures.as_ref().map(|(_, error)| error),
        "superseded": one.superseded,
    })
}

fn render<DB: Dialect>(session: &Session<DB>, trail: &MessageTrail) -> String {
    let mut parts = Vec::new();
    for one in &trail.log {
        let message = message_text(&session.decoded(&one.message));
        let mut text = format!("Position {} of the log\n{message}", one.position);
        for (name, stands) in &one.readers {
            text += &match stands {
                MessageState::Settled => format!("\n  {name}: settled"),
                MessageState::Parked { state, attempts, error } => format!(
                    "\n  {name}: parked, {state}, {} ({})",
                    counted(u64::from(*attempts), "attempt"),
                    plain(error)
                ),
                _ => format!("\n  {name}: pending"),
            };
        }
        parts.push(text);
    }
    if parts.is_empty() {
        parts.push("The message is not in the log, or was purged".to_owned());
    }
    for one in &trail.consumers {
        let mut text = match &one.claim {
            Some((state, at)) => format!("{}: {state} at {at}", plain(&one.consumer)),
            None => format!("{}: not handled", plain(&one.consumer)),
        };
        if let Some((failures, error)) = &one.failures {
            text += &format!(", {}: {}", counted(u64::from(*failures), "failure"), plain(error));
        }
        if one.superseded > 0 {
            text += &format!(", reprocessed {}", counted(one.superseded, "time"));
        }
        parts.push(text);
    }
    for dead_letter in &trail.dead_letters {
        parts.push(format!(
            "dead letter {} of {}: {}",
            dead_letter.id,
            plain(&dead_letter.owner),
            plain(&dead_letter.error)
        ));
    }
    parts.join("\n")
}
