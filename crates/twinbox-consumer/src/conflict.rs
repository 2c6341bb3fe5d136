//! Two messages under one id: the first was claimed, and the second has another payload.
use crate::{
    Outcome,
    attempt::{Once, bury},
    start::Runtime,
};
use metrics::counter;
use twinbox_core::{Message, id, limits};
use twinbox_sql::{
    Dialect,
    inbox::{DeadReason, Duplicate},
};

/// The end of a conflicting message's id, which the first message has not: `~` and 32 digits.
const SUFFIX_BYTES: usize = 33;

/// Ends the delivery of a message whose id is claimed. One with another payload than the first is kept as a dead
/// letter, once, under an id of its own: redriven, it runs as a message of its own, and the claim of the first stays
/// as it is.
pub(crate) async fn duplicate<DB: Dialect, S>(
    runtime: &Runtime<'_, DB, S>,
    consumer: &'static str,
    message: &Message,
    earlier: &Duplicate,
) -> Once {
    if !earlier.payload_differs {
        return Outcome::Duplicate.into();
    }
    let error = format!(
        "the message {:?} of {:?} was {} before with another payload: two messages have one id",
        message.id, message.source, earlier.state
    );
    let own = Message { id: own_id(message), ..message.clone() };
    let kept = bury(runtime.store, consumer, &own, DeadReason::ConflictingPayload, &error, 0).await;
    // Its start, if there is one on record, is under the id of the first.
    runtime.end(consumer, vec![message.message_id()]).await;
    if matches!(kept, Once::Done(Outcome::DeadLettered { .. })) {
        counter!("twinbox.consumer.payload_conflicts", "consumer" => consumer).increment(1);
        tracing::error!(
            consumer,
            message_id = %message.message_id(),
            source = message.source,
            event_id = message.id,
            "two messages with one id have different payloads; the second is kept as a dead letter"
        );
    }
    kept
}

/// The same for each copy of the second message.
fn own_id(message: &Message) -> String {
    let own = id::derive("conflict/1", &[message.id.as_bytes(), &message.payload]).simple();
    let end = message.id.floor_char_boundary(limits::ID_BYTES_MAX - SUFFIX_BYTES);
    format!("{}~{own}", &message.id[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinbox_core::Timestamp;

    #[test]
    fn an_id_of_its_own_is_the_same_for_each_copy_and_within_the_limits() {
        let with = |id: &str, payload: &'static str| {
            let time = Timestamp::from_micros(0);
            own_id(&Message::unreadable(id.to_owned(), "shop".to_owned(), time, payload.into()))
        };
        assert_eq!(with("o-1", "{}"), with("o-1", "{}"));
        assert!(with("o-1", "{}").starts_with("o-1~"));
        assert_ne!(with("o-1", "{}"), with("o-1", "[]"));
        let long = "ü".repeat(limits::ID_BYTES_MAX / 2);
        assert!(with(&long, "{}").len() <= limits::ID_BYTES_MAX);
        assert_ne!(with(&long, "{}"), with(&format!("{long}2"), "{}"));
    }
}
