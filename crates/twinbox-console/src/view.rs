//! Rows that several pages show.
use crate::{links::link, moment::Moment};
use twinbox_ops::{
    Dialect, Message, Ops, ParkedDelivery,
    dead_letters::{DeadLetter, DeadLetterId},
    wording::{counted, payload, plain},
};

/// A dead letter in a list.
pub(crate) struct DeadLetterRow {
    pub(crate) id: String,
    pub(crate) link: String,
    pub(crate) event_type: String,
    pub(crate) key: String,
    pub(crate) key_link: String,
    pub(crate) reason: String,
    pub(crate) error: String,
    pub(crate) attempts: u32,
    /// The same in words.
    pub(crate) tried: String,
    pub(crate) given_up_at: Moment,
    pub(crate) is_redriven: bool,
}

impl From<&DeadLetter> for DeadLetterRow {
    fn from(one: &DeadLetter) -> Self {
        let key = one.key.as_deref().unwrap_or_default();
        Self {
            id: plain(&one.id.to_string()),
            link: link("/dead-letters/one", &[("id", &one.id.to_string())]),
            event_type: plain(&one.event_type),
            key: plain(key),
            key_link: link("/keys", &[("key", key)]),
            reason: plain(&one.reason),
            error: plain(&one.error),
            attempts: one.attempts,
            tried: counted(u64::from(one.attempts), "attempt"),
            given_up_at: Moment(one.given_up_at),
            is_redriven: one.is_redriven,
        }
    }
}

/// The word for the owner of a dead letter: the name of the field that selects it.
pub(crate) fn owner_field(id: &DeadLetterId) -> &'static str {
    match id {
        DeadLetterId::OfConsumer(_) => "consumer",
        DeadLetterId::OfDestination(..) => "destination",
    }
}

/// A message with its payload, for a person.
pub(crate) struct MessageView {
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) payload: String,
    pub(crate) is_redacted: bool,
    pub(crate) is_encoded: bool,
}

impl MessageView {
    pub(crate) fn of<DB: Dialect>(ops: &Ops<DB>, message: &Message) -> Self {
        let message = ops.decoded(message);
        let codec = message.header("twinbox-codec").map(plain);
        let is_redacted = message.is_redacted();
        let encoded = codec.filter(|_| !is_redacted);
        Self {
            attributes: message.attributes().map(|(name, text)| (name.to_string(), plain(&text))).collect(),
            headers: message.headers.iter().map(|(name, text)| (plain(name), plain(text))).collect(),
            payload: match &encoded {
                Some(codec) => format!("({} bytes of {codec})", message.payload.len()),
                None => payload(&message.payload),
            },
            is_redacted,
            is_encoded: encoded.is_some(),
        }
    }
}

/// Why a delivery is parked.
pub(crate) fn why_parked(delivery: &ParkedDelivery) -> String {
    match &delivery.failures {
        Some((attempts, error)) => {
            format!("{}: {}", counted(u64::from(*attempts), "failed attempt"), plain(error))
        }
        None => "it waits behind an earlier one".to_owned(),
    }
}
