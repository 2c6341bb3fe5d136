//! A filter for dead letters.
use super::{id::DeadLetterId, item::DeadLetter};
use twinbox_core::{Timestamp, TypePattern};

/// A filter for dead letters. A dead letter has to match every condition that is set. Default: all dead
/// letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct DeadLetterFilter {
    /// Selects the dead letters of this consumer.
    pub consumer: Option<String>,
    /// Selects the dead letters of this destination.
    pub destination: Option<String>,
    /// Selects the dead letters with these ids. Empty: any number.
    pub ids: Vec<DeadLetterId>,
    /// Selects the dead letters of this group: see [`DeadLetter::fingerprint`], or how it begins.
    pub fingerprint: Option<String>,
    /// Selects the dead letters whose event type matches one of these patterns.
    pub types: Vec<TypePattern>,
    /// Selects the dead letters whose message has this key.
    pub key: Option<String>,
    /// Selects the dead letters of the message with this event id or message id.
    pub message: Option<String>,
    /// Selects the dead letters that were made at this time or later.
    pub since: Option<Timestamp>,
    /// Selects the dead letters that were made before this time.
    pub until: Option<Timestamp>,
}

impl DeadLetterFilter {
    /// Returns whether a dead letter matches the filter.
    pub fn matches(&self, dead_letter: &DeadLetter) -> bool {
        let is_consumers = matches!(dead_letter.id, DeadLetterId::OfConsumer(_));
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        (self.consumer.is_none() || is_consumers && is(&self.consumer, &dead_letter.owner))
            && (self.destination.is_none() || !is_consumers && is(&self.destination, &dead_letter.owner))
            && (self.ids.is_empty() || self.ids.contains(&dead_letter.id))
            && (self.types.is_empty() || self.types.iter().any(|one| one.matches(&dead_letter.event_type)))
            && (self.key.is_none() || self.key == dead_letter.key)
            && self.since.is_none_or(|since| dead_letter.given_up_at >= since)
            && self.until.is_none_or(|until| dead_letter.given_up_at < until)
            && self.message.as_deref().is_none_or(|id| {
                id == dead_letter.event_id || id.eq_ignore_ascii_case(&dead_letter.message_id.to_string())
            })
            && self.fingerprint.as_deref().is_none_or(|begins| dead_letter.fingerprint().starts_with(begins))
    }
}
