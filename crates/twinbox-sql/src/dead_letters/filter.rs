//! A filter for dead letters.
use super::{
    fingerprint::FINGERPRINT_DIGITS,
    id::{DeadLetterId, DeadLetterOwner},
    item::DeadLetter,
};
use crate::{Error, ErrorKind};
use serde_json::{Map, Value, json};
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
            && self.fingerprint.as_deref().is_none_or(|begins| dead_letter.fingerprint.starts_with(begins))
    }

    /// Returns the one consumer or destination that the filter names.
    pub fn owner(&self) -> Option<DeadLetterOwner> {
        match (&self.consumer, &self.destination) {
            (Some(consumer), None) => Some(DeadLetterOwner::Consumer(consumer.clone())),
            (None, Some(destination)) => Some(DeadLetterOwner::Destination(destination.clone())),
            _ => None,
        }
    }

    /// Returns the filter for dead letters of one owner.
    pub fn of(owner: &DeadLetterOwner) -> Self {
        match owner {
            DeadLetterOwner::Consumer(name) => Self { consumer: Some(name.clone()), ..Self::default() },
            DeadLetterOwner::Destination(id) => Self { destination: Some(id.clone()), ..Self::default() },
        }
    }

    /// Adds the whole fingerprint that another filter has.
    #[doc(hidden)]
    pub fn with_group_of(self, filter: &Self) -> Self {
        Self { fingerprint: filter.group().map(str::to_owned), ..self }
    }

    /// Returns the fingerprint of the filter, if it has all its digits: an index leads to its group.
    #[doc(hidden)]
    pub fn group(&self) -> Option<&str> {
        self.fingerprint.as_deref().filter(|one| one.len() == FINGERPRINT_DIGITS)
    }

    /// Writes the filter as JSON.
    #[doc(hidden)]
    pub fn to_json(&self) -> String {
        let all = json!({
            "consumer": self.consumer,
            "destination": self.destination,
            "ids": Vec::from_iter(self.ids.iter().map(ToString::to_string)),
            "fingerprint": self.fingerprint,
            "types": Vec::from_iter(self.types.iter().map(ToString::to_string)),
            "key": self.key,
            "message": self.message,
            "since": self.since.map(Timestamp::as_micros),
            "until": self.until.map(Timestamp::as_micros),
        });
        let Value::Object(mut all) = all else { unreachable!("it was written as an object") };
        all.retain(|_, value| !value.is_null() && *value != json!([]));
        Value::Object(all).to_string()
    }

    /// Reads a filter that was written as JSON.
    ///
    /// # Errors
    /// A newer version of Twinbox wrote it: half of its conditions would select too much.
    #[doc(hidden)]
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let newer = || {
            let what = "the filter of a bulk action has conditions that this version does not know";
            Error::new(ErrorKind::Schema, what)
        };
        let all: Map<String, Value> = serde_json::from_str(text).map_err(|_| newer())?;
        let mut filter = Self::default();
        for (name, value) in all {
            let text = || value.as_str().map(str::to_owned).ok_or_else(newer);
            let time = || value.as_i64().map(Timestamp::from_micros).ok_or_else(newer);
            let list = || {
                let texts = value.as_array().ok_or_else(newer)?.iter().map(|one| one.as_str());
                texts.collect::<Option<Vec<_>>>().ok_or_else(newer)
            };
            match &*name {
                "consumer" => filter.consumer = Some(text()?),
                "destination" => filter.destination = Some(text()?),
                "fingerprint" => filter.fingerprint = Some(text()?),
                "key" => filter.key = Some(text()?),
                "message" => filter.message = Some(text()?),
                "since" => filter.since = Some(time()?),
                "until" => filter.until = Some(time()?),
                "ids" => {
                    let ids = list()?.into_iter().map(str::parse).collect::<Result<_, _>>();
                    filter.ids = ids.map_err(|_| newer())?;
                }
                "types" => {
                    let types = list()?.into_iter().map(str::parse).collect::<Result<_, _>>();
                    filter.types = types.map_err(|_| newer())?;
                }
                _ => return Err(newer()),
            }
        }
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_as_it_was_written() {
        let filter = DeadLetterFilter {
            consumer: Some("billing".to_owned()),
            destination: None,
            ids: vec![DeadLetterId::OfConsumer(7), DeadLetterId::OfDestination("nats".to_owned(), 9)],
            fingerprint: Some("0123456789ab".to_owned()),
            types: vec!["orders.*".parse().unwrap()],
            key: Some("customer-7".to_owned()),
            message: Some("order-1".to_owned()),
            since: Some(Timestamp::from_micros(1)),
            until: Some(Timestamp::from_micros(2)),
        };
        for filter in [filter, DeadLetterFilter::default()] {
            assert_eq!(DeadLetterFilter::from_json(&filter.to_json()).unwrap(), filter);
        }
    }

    #[test]
    fn a_condition_of_a_newer_version_selects_nothing() {
        for text in ["{\"tenant\":\"a\"}", "{\"since\":\"today\"}", "[]", "{\"ids\":[1]}", ""] {
            assert!(DeadLetterFilter::from_json(text).is_err(), "{text}");
        }
    }
}
