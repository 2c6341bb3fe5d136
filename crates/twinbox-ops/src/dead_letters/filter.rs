//! A filter for dead letters.
use super::{id::DeadLetterId, item::DeadLetter};
use twinbox_core::{Timestamp, TypePattern};

/// A filter for dead letters. A dead letter has to match every condition that is set. Default: all dead
/// letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct DeadLetterFilter {
    /// Those of this consumer.
    pub consumer: Option<String>,
    /// Those of this destination.
    pub destination: Option<String>,
    /// Those with one of these numbers. Empty: any number.
    pub ids: Vec<DeadLetterId>,
    /// Those of this group: see [`DeadLetter::fingerprint`], or how it begins.
    pub fingerprint: Option<String>,
    /// Those whose type matches one of these patterns.
    pub types: Vec<TypePattern>,
    /// Those of this key.
    pub key: Option<String>,
    /// Those of the message with this event id or message id.
    pub message: Option<String>,
    /// Those that became dead letters at this time or later.
    pub since: Option<Timestamp>,
    /// Those that became dead letters before this time.
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
            && self.since.is_none_or(|since| dead_letter.died_at >= since)
            && self.until.is_none_or(|until| dead_letter.died_at < until)
            && self.message.as_deref().is_none_or(|id| {
                id == dead_letter.event_id || id.eq_ignore_ascii_case(&dead_letter.message_id.to_string())
            })
            && self.fingerprint.as_deref().is_none_or(|begins| dead_letter.fingerprint().starts_with(begins))
    }
}
