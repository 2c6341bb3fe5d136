//! One message, and what became of it.
use crate::{
    dead_letters::LetterRow,
    exit::Exit,
    output::{Output, counted, plain},
};
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};
use twinbox_core::Message;
use twinbox_sql::{
    Dialect, Store,
    trail::{Handled, Logged, Stands, Trail},
};

/// Characters of a payload that a person is shown.
const SHOWN_MAX: usize = 4000;

#[derive(Debug, Subcommand)]
pub(crate) enum MessageCommand {
    /// Where it is in the log, how far each destination is with it, and what each consumer has made of it.
    Show {
        /// Its event id, or its message id as logs have it.
        id: String,
    },
}

pub(crate) async fn run<DB: Dialect>(
    command: MessageCommand,
    store: &Store<DB>,
    output: &Output,
) -> Result<(), Exit> {
    let MessageCommand::Show { id } = command;
    let trail = store.trail(&id).await?;
    let claimed = |one: &Handled| one.claim.is_some() || one.failures.is_some() || one.superseded > 0;
    if trail.logged.is_empty() && trail.letters.is_empty() && !trail.handled.iter().any(claimed) {
        return Err(Exit::not_found(format!("nothing is known of a message {id:?}")));
    }
    output.one(&Whole::from(&trail), || told(&trail));
    Ok(())
}

#[derive(Serialize)]
struct Whole {
    logged: Vec<Value>,
    consumers: Vec<Value>,
    dead_letters: Vec<LetterRow>,
}

impl From<&Trail> for Whole {
    fn from(trail: &Trail) -> Self {
        Self {
            logged: trail.logged.iter().map(logged).collect(),
            consumers: trail.handled.iter().map(handled).collect(),
            dead_letters: trail.letters.iter().map(LetterRow::from).collect(),
        }
    }
}

fn logged(one: &Logged) -> Value {
    let m = &one.message;
    let destinations: Vec<_> = one
        .readers
        .iter()
        .map(|(name, stands)| match stands {
            Stands::PutAside { state, attempts, error } => {
                json!({"destination": name, "state": state, "attempts": attempts, "error": error})
            }
            Stands::Settled => json!({"destination": name, "state": "settled"}),
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

fn handled(one: &Handled) -> Value {
    json!({
        "consumer": one.consumer,
        "state": one.claim.as_ref().map(|(state, _)| state),
        "claimed_at": one.claim.as_ref().map(|(_, at)| at.to_string()),
        "failures": one.failures.as_ref().map(|(failures, _)| failures),
        "last_error": one.failures.as_ref().map(|(_, error)| error),
        "superseded": one.superseded,
    })
}

fn told(trail: &Trail) -> String {
    let mut parts = Vec::new();
    for one in &trail.logged {
        let mut text = format!("At {} of the log\n{}", one.position, payload(&one.message));
        for (name, stands) in &one.readers {
            text += &match stands {
                Stands::Settled => format!("\n  {name}: settled"),
                Stands::PutAside { state, attempts, error } => format!(
                    "\n  {name}: put aside, {state}, {} ({})",
                    counted(u64::from(*attempts), "attempt"),
                    plain(error)
                ),
                _ => format!("\n  {name}: pending"),
            };
        }
        parts.push(text);
    }
    if parts.is_empty() {
        parts.push("It is not in the log, or no more".to_owned());
    }
    for one in &trail.handled {
        let mut text = match &one.claim {
            Some((state, at)) => format!("{}: {state} at {at}", plain(&one.consumer)),
            None => format!("{}: not handled", plain(&one.consumer)),
        };
        if let Some((failures, error)) = &one.failures {
            text += &format!(", {}: {}", counted(u64::from(*failures), "failure"), plain(error));
        }
        if one.superseded > 0 {
            text += &format!(", run again {}", counted(one.superseded, "time"));
        }
        parts.push(text);
    }
    for letter in &trail.letters {
        parts.push(format!("dead letter {} of {}: {}", letter.id, plain(&letter.of), plain(&letter.error)));
    }
    parts.join("\n")
}

/// The envelope and the payload of a message, for a person.
pub(crate) fn payload(message: &Message) -> String {
    let mut text = String::new();
    for (name, value) in message.attributes() {
        text += &format!("  {name}: {}\n", plain(&value).replace('\n', " "));
    }
    text += &format!("  messageid: {}\n", message.message_id());
    for (name, value) in &message.headers {
        text += &format!("  header {}: {}\n", plain(name), plain(value));
    }
    let json: Option<Value> = serde_json::from_slice(&message.payload).ok();
    let shown = match (json, std::str::from_utf8(&message.payload)) {
        (Some(json), _) => serde_json::to_string_pretty(&json).unwrap_or_default(),
        (None, Ok(text)) => text.to_owned(),
        (None, Err(_)) => format!("({} bytes that are no text)", message.payload.len()),
    };
    let cut: String = shown.chars().take(SHOWN_MAX).collect();
    let more = if cut.len() < shown.len() { "\n…" } else { "" };
    text + &plain(&cut) + more
}
