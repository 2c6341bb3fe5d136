//! The fingerprint of a failure, by which dead letters are grouped.
use crate::text::hex;
use sha2::{Digest as _, Sha256};

/// The hexadecimal digits of a fingerprint.
pub(super) const FINGERPRINT_DIGITS: usize = 12;

/// Returns the fingerprint of a dead letter of a consumer. Dead letters of one consumer share it if they have
/// one type and reason, and errors that differ in numbers, ids and quoted texts at most.
pub fn consumer_fingerprint(consumer: &str, event_type: &str, reason: &str, error: &str) -> String {
    fingerprint(["consumer", consumer, event_type, reason, &without_data(error)])
}

/// Returns the fingerprint of a dead letter of a destination: of its type and its error code.
pub fn destination_fingerprint(destination: &str, event_type: &str, error: &str) -> String {
    fingerprint(["destination", destination, event_type, "", &without_data(error)])
}

fn fingerprint(parts: [&str; 5]) -> String {
    let mut hash = Sha256::new_with_prefix("letters/1");
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..FINGERPRINT_DIGITS / 2])
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

    #[test]
    fn owners_types_and_reasons_have_fingerprints_of_their_own() {
        let one = consumer_fingerprint("billing", "orders.placed", "rejected", "order 7 is negative");
        assert_eq!(one.len(), FINGERPRINT_DIGITS);
        assert_eq!(one, consumer_fingerprint("billing", "orders.placed", "rejected", "order 8 is negative"));
        for other in [
            consumer_fingerprint("shipping", "orders.placed", "rejected", "order 7 is negative"),
            consumer_fingerprint("billing", "orders.paid", "rejected", "order 7 is negative"),
            consumer_fingerprint("billing", "orders.placed", "exhausted", "order 7 is negative"),
            destination_fingerprint("billing", "orders.placed", "order 7 is negative"),
        ] {
            assert_ne!(one, other);
        }
    }
}
