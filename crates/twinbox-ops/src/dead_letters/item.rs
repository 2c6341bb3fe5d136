//! Dead letters and groups of them.
use super::id::DeadLetterId;
use sha2::{Digest as _, Sha256};
use twinbox_core::{MessageId, Timestamp};
use twinbox_sql::engine::hex;

/// A dead letter without its message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The id by which commands name the dead letter.
    pub id: DeadLetterId,
    /// The consumer or destination that gave the message up.
    pub owner: String,
    /// The id of the message in the inbox.
    pub message_id: MessageId,
    /// The CloudEvents id of the message.
    pub event_id: String,
    /// The CloudEvents source of the message.
    pub source: String,
    /// The type of the message.
    pub event_type: String,
    /// The key of the message.
    pub key: Option<String>,
    /// Why the message is a dead letter.
    pub reason: String,
    /// The error of the last attempt.
    pub error: String,
    /// How many attempts failed.
    pub attempts: u32,
    /// The time of the message.
    pub time: Timestamp,
    /// The time at which the message became a dead letter.
    pub given_up_at: Timestamp,
    /// Whether the dead letter was redriven and waits for another attempt.
    pub is_redriven: bool,
}

impl DeadLetter {
    /// Returns the fingerprint of the cause, in 12 hexadecimal digits. Dead letters of one consumer or
    /// destination share it if they have one type and reason, and errors that differ in numbers and ids at
    /// most.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new_with_prefix("letters/1");
        let sort = if matches!(self.id, DeadLetterId::OfConsumer(_)) { "consumer" } else { "destination" };
        for part in [sort, &self.owner, &self.event_type, &self.reason, &without_data(&self.error)] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
        hex(&hash.finalize()[..6])
    }
}

/// An error text without words that hold a digit, and without quoted text: those differ from message to
/// message.
fn without_data(error: &str) -> String {
    let mut out = String::with_capacity(error.len());
    let mut quoted = false;
    for part in error.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let word = part.trim_end_matches(|c: char| !c.is_alphanumeric());
        let end = &part[word.len()..];
        if !quoted {
            out += if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word };
            out += end;
        }
        quoted ^= end == "\"";
    }
    out
}

/// Dead letters with the same cause.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterGroup {
    /// The fingerprint of the cause, see [`DeadLetter::fingerprint`].
    pub fingerprint: String,
    /// The newest dead letter of the group.
    pub newest: DeadLetter,
    /// How many dead letters the group has.
    pub dead_letters: u64,
    /// How many dead letters of the group were redriven and wait for another attempt.
    pub redriven: u64,
    /// The time at which the first message of the group became a dead letter.
    pub first_given_up_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_differs_from_message_to_message_is_left_out() {
        for (one, other) in [
            ("order 7 has no customer", "order 4711 has no customer"),
            ("id 01890a5d-ac96-774b is unknown", "id 71890a5d-bc96-874c is unknown"),
            ("no \"blue\" paint", "no \"light red\" paint"),
        ] {
            assert_eq!(without_data(one), without_data(other));
        }
        assert_ne!(without_data("no paint"), without_data("no brush"));
        assert_eq!(without_data(""), "");
        assert_eq!(without_data("é \"unended 7"), "é \"");
    }
}
