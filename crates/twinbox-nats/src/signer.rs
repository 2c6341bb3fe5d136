//! The name of a message and the mark of a replay, which only the relays of a destination can write.
//!
//! Anybody can compute message ids. With one as `Nats-Msg-Id` a stranger could publish under the name of a
//! message to come, and the server would drop that one as a duplicate.
use crate::replay_mark;
use async_nats::HeaderMap;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::{KeyPair, KeyPairType};
use twinbox_core::{
    Message,
    destination::{DestinationSecret, Outgoing},
    message::header as own,
};

/// The bytes of a name, of the 32 that a tag has.
const NAME_BYTES: usize = 16;

/// Names and signs the messages of a destination below a prefix.
pub(crate) struct Signer {
    names: DestinationSecret,
    replays: KeyPair,
}

impl Signer {
    pub(crate) fn new(secret: &DestinationSecret, prefix: &str) -> Self {
        let seed = *secret.for_purpose("replay/1").as_bytes();
        let replays = KeyPair::new_from_raw(KeyPairType::Service, seed);
        Self {
            // A stream may hold the messages of several destinations, each with its own copy.
            names: secret.for_purpose(&format!("nats-msg-id/1 {prefix}")),
            replays: replays.expect("any 32 bytes are a seed"),
        }
    }

    /// Returns the `Nats-Msg-Id` of a message: the same one whenever a row of the log is sent, and another
    /// one for each replay of it. The time is a part of it because a restored database gives positions again.
    pub(crate) fn name(&self, Outgoing { message, name, .. }: &Outgoing<'_>) -> String {
        let tag = self.names.tag(&[
            message.message_id().as_uuid().as_bytes(),
            &message.sequence.unwrap_or(u64::MAX).to_be_bytes(),
            &message.time.as_micros().to_be_bytes(),
            &name.to_be_bytes(),
            message.header(own::REPLAY).unwrap_or_default().as_bytes(),
        ]);
        URL_SAFE_NO_PAD.encode(&tag[..NAME_BYTES])
    }

    /// Signs the mark of a replay, if the message has one.
    pub(crate) fn sign(&self, message: &Message, headers: &mut HeaderMap) {
        replay_mark::sign(&self.replays, message, headers);
    }

    /// Returns the name under which the key of these signatures is in the metadata of the stream.
    pub(crate) fn replay_key(&self) -> String {
        replay_mark::metadata_name(&self.replays.public_key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use twinbox_core::{Draft, Timestamp};

    fn signer(secret: u8, prefix: &str) -> Signer {
        Signer::new(&DestinationSecret::from_bytes([secret; 32]), prefix)
    }

    fn row(position: u64) -> Message {
        let message = Draft::raw("orders.placed", 1, &b"{}"[..]).id("order-7").into_message("shop");
        Message { sequence: Some(position), time: Timestamp::from_micros(5), ..message }
    }

    #[test]
    fn a_row_has_the_same_name_whenever_it_is_sent() {
        let message = row(1);
        let first = Outgoing::first(&message);
        let repeated = Outgoing { may_be_repeated: true, ..first };
        assert_eq!(signer(1, "events").name(&first), signer(1, "events").name(&repeated));
        assert_eq!(signer(1, "events").name(&first).len(), 22);
    }

    /// A stranger lacks the secret. Two copies that are both to be stored differ in one of the others.
    #[test]
    fn all_that_makes_a_name_changes_it() {
        let message = row(1);
        let mut replayed = row(1);
        replayed.headers.push(("twinbox-replay".to_owned(), "00112233445566778899aabbccddeeff".to_owned()));
        let others = [
            row(2),
            Message { time: Timestamp::from_micros(6), ..row(1) },
            Message { id: "order-8".to_owned(), ..row(1) },
            Message { source: "bank".to_owned(), ..row(1) },
            Message { event_type: "orders.paid".to_owned(), ..row(1) },
            replayed,
        ];
        let mut names = vec![
            signer(1, "events").name(&Outgoing::first(&message)),
            signer(2, "events").name(&Outgoing::first(&message)),
            signer(1, "other").name(&Outgoing::first(&message)),
            signer(1, "events").name(&Outgoing { name: 1, ..Outgoing::first(&message) }),
        ];
        names.extend(others.iter().map(|other| signer(1, "events").name(&Outgoing::first(other))));
        assert_eq!(HashSet::<_>::from_iter(&names).len(), names.len());
    }

    #[test]
    fn all_relays_of_a_destination_sign_with_one_key() {
        assert_eq!(signer(1, "events").replay_key(), signer(1, "other").replay_key());
        assert_ne!(signer(1, "events").replay_key(), signer(2, "events").replay_key());
    }
}
