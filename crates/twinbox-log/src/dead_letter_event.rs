//! The event of a dead letter.
use twinbox_core::{Draft, Message};

/// The type of the event that a relay publishes for each dead letter, if `dead_letter_events` is set.
///
/// Its payload is a JSON object: `destination`, `message_id`, and of the message `source`, `event_id`,
/// `event_type`, `key` and `sequence`; `attempts` and the code `error`. The message itself stays in the log.
pub const DEAD_LETTER: &str = "twinbox.dead_letter";

/// The event of a dead letter. None if the dead letter is such an event itself: it would go on for ever.
pub(crate) fn event(destination: &str, message: &Message, attempts: u32, error: &str) -> Option<Draft> {
    if message.event_type == DEAD_LETTER {
        return None;
    }
    let payload = serde_json::json!({
        "destination": destination,
        "message_id": message.message_id().to_string(),
        "source": message.source,
        "event_id": message.id,
        "event_type": message.event_type,
        "key": message.key,
        "sequence": message.sequence,
        "attempts": attempts,
        "error": error,
    });
    // Without the key: it would wait behind the parked messages of the key.
    let draft = Draft::of_twinbox(DEAD_LETTER, 1, payload.to_string());
    // The log may hold one that no draft may have. The event goes without it.
    let correlated = message.correlation_id.as_ref().map(|id| draft.clone().correlation_id(id));
    Some(correlated.filter(|correlated| correlated.validate().is_ok()).unwrap_or(draft))
}
