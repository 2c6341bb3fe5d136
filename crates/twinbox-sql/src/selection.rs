//! The messages that a replay selects.
use crate::{Error, ErrorKind};
use serde_json::{Value, json};
use twinbox_core::{Message, Timestamp, TypePattern, limits};

/// The most event ids that a selection may name.
pub const IDS_MAX: usize = 1000;
/// The most type patterns that a selection may name.
pub const TYPES_MAX: usize = 100;

/// A filter for messages of the log. A message has to match every condition that is set. Default: all
/// messages.
///
/// Times are those of the messages, which their producer may have set. `since` is included, `until` is not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Selection {
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    types: Vec<TypePattern>,
    pub(crate) key: Option<String>,
    pub(crate) ids: Vec<String>,
    pub(crate) source: Option<String>,
    pub(crate) correlation_id: Option<String>,
}

impl Selection {
    /// Selects all messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects messages from this time on.
    pub fn since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }

    /// Selects messages before this time.
    pub fn until(self, until: Option<Timestamp>) -> Self {
        Self { until, ..self }
    }

    /// Selects messages whose type matches one of these patterns.
    pub fn types(self, types: Vec<TypePattern>) -> Self {
        Self { types, ..self }
    }

    /// Selects messages of this key, or of any key without one.
    pub fn key(self, key: Option<String>) -> Self {
        Self { key, ..self }
    }

    /// Selects messages with one of these event ids.
    pub fn ids(self, ids: Vec<String>) -> Self {
        Self { ids, ..self }
    }

    /// Selects messages of this CloudEvents source, or of any source without one.
    pub fn source(self, source: Option<String>) -> Self {
        Self { source, ..self }
    }

    /// Selects messages with this correlation id.
    pub fn correlation_id(self, correlation_id: Option<String>) -> Self {
        Self { correlation_id, ..self }
    }

    /// Refuses a selection that is too large, or that no message can match.
    ///
    /// # Errors
    /// Names the part that is too long or too many.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::new(ErrorKind::Configuration, what));
        if self.ids.len() > IDS_MAX || self.types.len() > TYPES_MAX {
            return refuse(format!("a selection may name {IDS_MAX} ids and {TYPES_MAX} types"));
        }
        let named = [("key", &self.key), ("source", &self.source), ("correlation id", &self.correlation_id)];
        let named = named.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
        for (name, text) in named.chain(self.ids.iter().map(|id| ("id", id))) {
            // No column holds more, and Postgres takes no NUL.
            if text.len() > limits::ID_BYTES_MAX || text.contains('\0') {
                return refuse(format!("no {name} has a NUL or more than {} bytes", limits::ID_BYTES_MAX));
            }
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since >= until
        {
            return refuse(format!("nothing is since {since} and before {until}"));
        }
        Ok(())
    }

    /// Returns whether a message of this type can match the selection.
    #[doc(hidden)]
    pub fn takes(&self, event_type: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|pattern| pattern.matches(event_type))
    }

    /// Returns whether a message matches the selection. The SQL conditions of a selection and
    /// [`takes`](Self::takes) do the same.
    #[doc(hidden)]
    pub fn selects(&self, message: &Message) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        self.since.is_none_or(|since| message.time >= since)
            && self.until.is_none_or(|until| message.time < until)
            && self.takes(&message.event_type)
            && is(&self.key, message.key.as_deref())
            && is(&self.source, Some(&message.source))
            && is(&self.correlation_id, message.correlation_id.as_deref())
            && (self.ids.is_empty() || self.ids.contains(&message.id))
    }

    /// Writes the selection as JSON.
    #[doc(hidden)]
    pub fn to_json(&self) -> String {
        let types = Vec::from_iter(self.types.iter().map(ToString::to_string));
        let all = json!({
            "since": self.since.map(Timestamp::as_micros),
            "until": self.until.map(Timestamp::as_micros),
            "types": types,
            "key": self.key,
            "ids": self.ids,
            "source": self.source,
            "correlation_id": self.correlation_id,
        });
        let Value::Object(mut all) = all else { unreachable!("it was written as an object") };
        all.retain(|_, value| !value.is_null() && *value != json!([]));
        Value::Object(all).to_string()
    }

    /// Reads a selection that was written as JSON.
    ///
    /// # Errors
    /// A newer version of Twinbox wrote it: half of its conditions would select too much.
    #[doc(hidden)]
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let newer = || {
            Error::new(
                ErrorKind::Schema,
                "the selection of a replay has conditions that this version does not know",
            )
        };
        let all: serde_json::Map<String, Value> = serde_json::from_str(text).map_err(|_| newer())?;
        let mut selection = Self::new();
        for (name, value) in all {
            let time = || value.as_i64().map(Timestamp::from_micros).ok_or_else(newer);
            let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(newer);
            let texts =
                || value.as_array().ok_or_else(newer)?.iter().map(text).collect::<Result<Vec<_>, _>>();
            match &*name {
                "since" => selection.since = Some(time()?),
                "until" => selection.until = Some(time()?),
                "types" => {
                    let types = texts()?.iter().map(|text| text.parse()).collect::<Result<_, _>>();
                    selection.types = types.map_err(|_| newer())?;
                }
                "key" => selection.key = Some(text(&value)?),
                "ids" => selection.ids = texts()?,
                "source" => selection.source = Some(text(&value)?),
                "correlation_id" => selection.correlation_id = Some(text(&value)?),
                _ => return Err(newer()),
            }
        }
        Ok(selection)
    }
}

/// The conditions for people, named like the options of the tool.
impl std::fmt::Display for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.since.map(|time| format!("since {time}")));
        parts.extend(self.until.map(|time| format!("until {time}")));
        parts.extend(self.types.iter().map(|pattern| format!("type {pattern}")));
        parts.extend(self.key.as_ref().map(|key| format!("key {key:?}")));
        parts.extend(self.source.as_ref().map(|source| format!("source {source:?}")));
        parts.extend(self.correlation_id.as_ref().map(|id| format!("correlation id {id:?}")));
        match &*self.ids {
            [] => {}
            [id] => parts.push(format!("id {id:?}")),
            ids => parts.push(format!("{} ids", ids.len())),
        }
        f.write_str(&if parts.is_empty() { "everything".to_owned() } else { parts.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_read_as_it_was_written() {
        let all = Selection::new()
            .since(Some(Timestamp::from_micros(5)))
            .until(Some(Timestamp::from_micros(7)))
            .types(vec!["orders.*".parse().unwrap()])
            .key(Some("k'".to_owned()))
            .ids(vec!["1".to_owned(), "2".to_owned()])
            .source(Some("shop".to_owned()))
            .correlation_id(Some("c".to_owned()));
        for selection in [Selection::new(), all] {
            assert_eq!(Selection::from_json(&selection.to_json()).unwrap(), selection);
        }
        assert_eq!(Selection::new().to_json(), "{}");
    }

    #[test]
    fn conditions_of_a_newer_version_are_refused() {
        for text in [r#"{"subject":"x"}"#, r#"{"since":"x"}"#, r#"{"types":["a..b"]}"#, "[]", ""] {
            assert_eq!(Selection::from_json(text).unwrap_err().kind(), ErrorKind::Schema, "{text}");
        }
    }
}
