//! An event with its envelope: CloudEvents 1.0 attributes with the `partitionkey` and `sequence` extensions.
use crate::{MessageId, Timestamp, limits};
use bytes::Bytes;
use std::borrow::Cow;
use uuid::Uuid;

/// A message, as destinations publish it and sources deliver it.
///
/// Each field is a CloudEvents attribute of the same meaning; [`attributes`](Self::attributes) lists them
/// under their CloudEvents names.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// CloudEvents `id`, unique within its source.
    pub id: String,
    /// CloudEvents `source`: the service that published it.
    pub source: String,
    /// CloudEvents `type`.
    pub event_type: String,
    /// Version of the payload, extension `dataversion`.
    pub version: u32,
    /// What orders messages against each other, extension `partitionkey`.
    pub key: Option<String>,
    /// CloudEvents `subject`: the entity it is about.
    pub subject: Option<String>,
    /// CloudEvents `time`: when it was published.
    pub time: Timestamp,
    /// Place in the log of its source, extension `sequence`: of two messages of one source and key the
    /// later one has the larger. None for messages of other systems.
    pub sequence: Option<u64>,
    /// What one business operation has in common, extension `correlationid`. A message that says nothing
    /// starts an operation, and its own id is what it has in common.
    pub correlation_id: Option<String>,
    /// The message id of the message that caused this one, extension `causationid`.
    pub causation_id: Option<String>,
    /// W3C trace context of the producer, extension `traceparent`.
    pub traceparent: Option<String>,
    /// CloudEvents `datacontenttype`.
    pub content_type: String,
    /// Headers of the application's own.
    pub headers: Vec<(String, String)>,
    /// The payload, CloudEvents `data`.
    pub payload: Bytes,
}

/// Names of the CloudEvents attributes that Twinbox reads and writes.
pub mod attribute {
    /// Always `1.0`.
    pub const SPEC_VERSION: &str = "specversion";
    /// [`Message::id`](super::Message::id)
    pub const ID: &str = "id";
    /// [`Message::source`](super::Message::source)
    pub const SOURCE: &str = "source";
    /// [`Message::event_type`](super::Message::event_type)
    pub const TYPE: &str = "type";
    /// [`Message::version`](super::Message::version)
    pub const VERSION: &str = "dataversion";
    /// [`Message::key`](super::Message::key)
    pub const KEY: &str = "partitionkey";
    /// [`Message::subject`](super::Message::subject)
    pub const SUBJECT: &str = "subject";
    /// [`Message::time`](super::Message::time)
    pub const TIME: &str = "time";
    /// [`Message::sequence`](super::Message::sequence), padded with zeros to 19 digits
    pub const SEQUENCE: &str = "sequence";
    /// [`Message::correlation_id`](super::Message::correlation_id)
    pub const CORRELATION_ID: &str = "correlationid";
    /// [`Message::causation_id`](super::Message::causation_id)
    pub const CAUSATION_ID: &str = "causationid";
    /// [`Message::traceparent`](super::Message::traceparent)
    pub const TRACEPARENT: &str = "traceparent";
    /// [`Message::content_type`](super::Message::content_type)
    pub const CONTENT_TYPE: &str = "datacontenttype";
}

/// Reserved headers that travel with a message like the application's own.
pub mod header {
    /// The name of the [`PayloadCodec`](crate::PayloadCodec) that encoded the payload.
    pub const CODEC: &str = "twinbox-codec";
    /// The content type of what was encoded, if it is not JSON.
    pub const CONTENT_TYPE: &str = "twinbox-content-type";
    /// The replay that sends the message again, as 32 hexadecimal digits.
    pub const REPLAY: &str = "twinbox-replay";
    /// The one consumer that is to run it again; others pass it by.
    pub const REPLAY_FOR: &str = "twinbox-replay-for";
    /// `true`: the payload was blanked. See [`Message::is_redacted`](super::Message::is_redacted).
    pub const REDACTED: &str = "twinbox-redacted";
}

impl Message {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The one consumer that is to run it although it may have, and for which replay. Others pass it by.
    pub fn reprocess(&self) -> Option<(&str, Uuid)> {
        Some((self.header(header::REPLAY_FOR)?, self.header(header::REPLAY)?.parse().ok()?))
    }

    /// Takes the marks of a replay away: whoever reads the log sets them, and nobody who writes it.
    #[doc(hidden)]
    pub fn unmark(&mut self) {
        self.headers.retain(|(name, _)| ![header::REPLAY, header::REPLAY_FOR].contains(&name.as_str()));
    }

    /// Whether its payload was blanked in the store of its source. It keeps its id, its key and its place in the
    /// order; consumers acknowledge it without running a handler.
    pub fn is_redacted(&self) -> bool {
        self.payload.is_empty() && self.header(header::REDACTED) == Some("true")
    }

    /// How many bytes its texts, headers and payload take together.
    pub fn bytes(&self) -> usize {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let texts = self.id.len() + self.source.len() + self.event_type.len() + self.content_type.len();
        let optionals =
            [&self.key, &self.subject, &self.correlation_id, &self.causation_id, &self.traceparent];
        texts + optionals.into_iter().map(optional).sum::<usize>() + headers + self.payload.len()
    }

    /// The identity by which the inbox removes duplicates.
    pub fn message_id(&self) -> MessageId {
        MessageId::of(&self.source, &self.id)
    }

    /// The CloudEvents attributes that are set, by their CloudEvents names. What
    /// [`from_attributes`](Self::from_attributes) assumes is left out: version 1, JSON, and a correlation id
    /// that is the event's own id.
    pub fn attributes(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        use attribute as a;
        let always = [
            (a::SPEC_VERSION, "1.0".into()),
            (a::ID, self.id.as_str().into()),
            (a::SOURCE, self.source.as_str().into()),
            (a::TYPE, self.event_type.as_str().into()),
            (a::TIME, self.time.to_string().into()),
        ];
        let version = (self.version != 1).then(|| self.version.to_string());
        let sequence = self.sequence.map(|n| format!("{n:019}"));
        let computed = [(a::VERSION, version), (a::SEQUENCE, sequence)];
        let sometimes = [
            (a::CONTENT_TYPE, Some(self.content_type.as_str()).filter(|text| *text != JSON)),
            (a::KEY, self.key.as_deref()),
            (a::SUBJECT, self.subject.as_deref()),
            (a::CORRELATION_ID, self.correlation_id.as_deref().filter(|id| *id != self.id)),
            (a::CAUSATION_ID, self.causation_id.as_deref()),
            (a::TRACEPARENT, self.traceparent.as_deref()),
        ];
        let computed = computed.into_iter().filter_map(|(name, text)| Some((name, text?.into())));
        let sometimes = sometimes.into_iter().filter_map(|(name, text)| Some((name, text?.into())));
        always.into_iter().chain(computed).chain(sometimes)
    }

    /// The message that `get` spells out: it answers with the value of a CloudEvents attribute.
    ///
    /// # Errors
    /// Names the attribute that is missing or cannot be read. A trace context that cannot be read is left
    /// out, because a message is worth more than its trace.
    pub fn from_attributes(
        get: impl Fn(&str) -> Option<String>,
        headers: Vec<(String, String)>,
        payload: Bytes,
    ) -> Result<Self, InvalidEnvelope> {
        use attribute as a;
        let need = |name| get(name).ok_or(InvalidEnvelope { attribute: name, problem: "is missing" });
        let bad = |attribute| InvalidEnvelope { attribute, problem: "cannot be read" };
        if need(a::SPEC_VERSION)? != "1.0" {
            return Err(InvalidEnvelope { attribute: a::SPEC_VERSION, problem: "is not 1.0" });
        }
        let id = need(a::ID)?;
        Ok(Self {
            source: need(a::SOURCE)?,
            event_type: need(a::TYPE)?,
            version: get(a::VERSION).map_or(Ok(1), |v| v.parse()).map_err(|_| bad(a::VERSION))?,
            key: get(a::KEY),
            subject: get(a::SUBJECT),
            time: Timestamp::parse(&need(a::TIME)?).ok_or(bad(a::TIME))?,
            sequence: get(a::SEQUENCE).and_then(|n| n.parse().ok()),
            correlation_id: get(a::CORRELATION_ID).or_else(|| Some(id.clone())),
            causation_id: get(a::CAUSATION_ID),
            traceparent: get(a::TRACEPARENT).filter(|t| is_traceparent(t)),
            content_type: get(a::CONTENT_TYPE).unwrap_or_else(|| JSON.to_owned()),
            headers,
            payload,
            id,
        })
    }

    /// Holds what others wrote against the bounds that the store sets its own messages; a source does so before it
    /// delivers.
    ///
    /// # Errors
    /// Says which attribute breaks which bound.
    pub fn check_limits(&self) -> Result<(), String> {
        use attribute as a;
        if self.event_type.len() > limits::TYPE_BYTES_MAX || !is_type_name(&self.event_type) {
            return Err("the CloudEvents attribute `type` is no type name".to_owned());
        }
        let texts = [
            (a::ID, Some(&self.id), limits::ID_BYTES_MAX),
            (a::SOURCE, Some(&self.source), limits::SOURCE_BYTES_MAX),
            (a::KEY, self.key.as_ref(), limits::KEY_BYTES_MAX),
            (a::SUBJECT, self.subject.as_ref(), limits::SUBJECT_BYTES_MAX),
            (a::CORRELATION_ID, self.correlation_id.as_ref(), limits::CORRELATION_BYTES_MAX),
            (a::CAUSATION_ID, self.causation_id.as_ref(), limits::CORRELATION_BYTES_MAX),
            (a::CONTENT_TYPE, Some(&self.content_type), limits::CONTENT_TYPE_BYTES_MAX),
        ];
        for (attribute, text, max) in texts {
            let Some(text) = text else { continue };
            if text.len() > max {
                return Err(format!("the CloudEvents attribute `{attribute}` has more than {max} bytes"));
            }
            if text.chars().any(char::is_control) {
                return Err(format!("the CloudEvents attribute `{attribute}` holds a control character"));
            }
        }
        if self.payload.len() > limits::PAYLOAD_BYTES_MAX {
            return Err(format!("its payload has more than {} bytes", limits::PAYLOAD_BYTES_MAX));
        }
        let bytes: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if self.headers.len() > limits::HEADERS_MAX || bytes > limits::HEADERS_BYTES_MAX {
            return Err(format!(
                "it has more than {} headers or {} bytes of them",
                limits::HEADERS_MAX,
                limits::HEADERS_BYTES_MAX
            ));
        }
        Ok(())
    }

    /// What stands in for a message that cannot be read, under the id that its broker gave it: enough to keep and to
    /// look at.
    pub fn unreadable(id: String, source: String, time: Timestamp, mut payload: Bytes) -> Self {
        payload.truncate(limits::PAYLOAD_BYTES_MAX);
        Self {
            id,
            source,
            event_type: UNKNOWN_TYPE.to_owned(),
            version: 1,
            key: None,
            subject: None,
            time,
            sequence: None,
            correlation_id: None,
            causation_id: None,
            traceparent: None,
            content_type: ENCODED.to_owned(),
            headers: Vec::new(),
            payload,
        }
    }
}

/// The type of what does not say its own.
pub const UNKNOWN_TYPE: &str = "unknown";

/// The content type of events that serde wrote.
pub const JSON: &str = "application/json";

/// The content type of a payload that a [`PayloadCodec`](crate::PayloadCodec) encoded, or that nothing is known of.
pub const ENCODED: &str = "application/octet-stream";

/// An envelope that is not a CloudEvents 1.0 message of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidEnvelope {
    attribute: &'static str,
    problem: &'static str,
}

impl std::fmt::Display for InvalidEnvelope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the CloudEvents attribute `{}` {}", self.attribute, self.problem)
    }
}

impl std::error::Error for InvalidEnvelope {}

/// Whether this is a W3C trace parent, version 00.
pub fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let hex = |s: &str| s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let lengths: Vec<usize> = parts.iter().map(|p| p.len()).collect();
    lengths == [2, 32, 16, 2] && parts[0] == "00" && parts.iter().all(|p| hex(p))
}

/// Whether this can name an event type: words of letters, digits, `-` and `_`, joined by dots. Such a name
/// is safe inside a NATS subject: no wildcard, no empty token.
pub fn is_type_name(text: &str) -> bool {
    text.split('.').all(|word| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn message() -> Message {
        Message {
            id: "1".into(),
            source: "shop".into(),
            event_type: "orders.placed".into(),
            version: 2,
            key: Some("o-1".into()),
            subject: None,
            time: Timestamp::from_micros(1_789_000_000_123_456),
            sequence: Some(42),
            correlation_id: Some("c".into()),
            causation_id: None,
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            content_type: JSON.into(),
            headers: vec![("region".into(), "eu".into())],
            payload: Bytes::from_static(b"{}"),
        }
    }

    fn read(attributes: &HashMap<&str, Cow<'_, str>>) -> Result<Message, InvalidEnvelope> {
        let m = message();
        Message::from_attributes(
            |name| attributes.get(name).map(|text| text.to_string()),
            m.headers,
            m.payload,
        )
    }

    #[test]
    fn attributes_come_back_as_they_went() {
        let message = message();
        let mut attributes: HashMap<_, _> = message.attributes().collect();
        assert_eq!(attributes["sequence"], "0000000000000000042");
        assert_eq!(read(&attributes).unwrap(), message);
        attributes.insert("traceparent", "garbage".repeat(1000).into());
        assert_eq!(read(&attributes).unwrap().traceparent, None);
        attributes.insert("time", "yesterday".into());
        assert_eq!(
            read(&attributes).unwrap_err().to_string(),
            "the CloudEvents attribute `time` cannot be read"
        );
        attributes.remove("id");
        assert_eq!(read(&attributes).unwrap_err().to_string(), "the CloudEvents attribute `id` is missing");
    }

    #[test]
    fn type_names_hold_no_wildcard() {
        assert!(is_type_name("orders.placed") && is_type_name("billing.invoice-issued_2"));
        for bad in ["", ".", "a..b", "a.", "*", "a.>", "a b", "a\r\nb", "é"] {
            assert!(!is_type_name(bad), "{bad:?}");
        }
    }
}
