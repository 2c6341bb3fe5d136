//! Deliveries whose message id is claimed already.
use crate::{
    context::Context,
    dead_letter::dead_letter,
    metrics::PAYLOAD_CONFLICTS,
    outcome::{DeliveryOutcome, RepeatAtOnce},
};
use metrics::counter;
use twinbox_core::{Message, id, limits};
use twinbox_sql::{
    Dialect,
    inbox::{DeadReason, Duplicate},
};

/// The bytes that [`id_of_conflict`] adds: `~` and 32 digits.
const SUFFIX_BYTES: usize = 33;

/// Ends a delivery whose message id is claimed.
///
/// A message with another payload than the claimed one is not a copy. It becomes a dead letter, once, under
/// an id of its own. Redrive, it runs as a message of its own; the first claim stays as it is.
pub(crate) async fn end_duplicate<DB: Dialect, S>(
    context: &Context<'_, DB, S>,
    message: &Message,
    earlier: &Duplicate,
) -> Result<DeliveryOutcome, RepeatAtOnce> {
    if !earlier.payload_differs {
        return Ok(DeliveryOutcome::Duplicate);
    }
    let error = format!(
        "the message {:?} of {:?} was {} before with another payload: two messages have one id",
        message.id, message.source, earlier.state
    );
    let renamed = Message { id: id_of_conflict(message), ..message.clone() };
    let inbox = context.inbox;
    let outcome = dead_letter(context, &renamed, DeadReason::ConflictingPayload, &error, 0).await;
    // A recorded start has the id that both messages share.
    context.starts.end(inbox, vec![message.message_id()]).await;
    if matches!(outcome, Ok(DeliveryOutcome::DeadLettered { .. })) {
        let consumer = inbox.consumer().to_owned();
        counter!(PAYLOAD_CONFLICTS, "consumer" => consumer.clone()).increment(1);
        tracing::error!(
            consumer,
            message_id = %message.message_id(),
            source = message.source,
            event_id = message.id,
            "two messages with one id have different payloads; the second is a dead letter"
        );
    }
    outcome
}

/// Returns an id for the second message, the same for each copy of it.
fn id_of_conflict(message: &Message) -> String {
    let digits = id::derive("conflict/1", &[message.id.as_bytes(), &message.payload]).simple();
    let end = message.id.floor_char_boundary(limits::ID_BYTES_MAX - SUFFIX_BYTES);
    format!("{}~{digits}", &message.id[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinbox_core::Timestamp;

    #[test]
    fn the_id_of_a_conflict_is_the_same_for_each_copy_and_within_the_limits() {
        let with = |id: &str, payload: &'static str| {
            let time = Timestamp::from_micros(0);
            id_of_conflict(&Message::placeholder(id.to_owned(), "shop".to_owned(), time, payload.into()))
        };
        assert_eq!(with("o-1", "{}"), with("o-1", "{}"));
        assert!(with("o-1", "{}").starts_with("o-1~"));
        assert_ne!(with("o-1", "{}"), with("o-1", "[]"));
        let long = "ü".repeat(limits::ID_BYTES_MAX / 2);
        assert!(with(&long, "{}").len() <= limits::ID_BYTES_MAX);
        assert_ne!(with(&long, "{}"), with(&format!("{long}2"), "{}"));
    }
}
