//! Messages: events with their CloudEvents 1.0 envelope.
mod ahead;
pub mod attribute;
mod cut;
pub mod header;
mod trace_context;

pub use trace_context::{TraceContext, is_traceparent, is_tracestate};

use crate::{id::MessageId, limits, timestamp::Timestamp};
use bytes::Bytes;
use std::borrow::Cow;
use uuid::Uuid;

/// An event with its envelope, as destinations publish it and sources deliver it.
///
/// The fields are CloudEvents attributes; [`attributes`](Self::attributes) lists them by their CloudEvents
/// names.
///
/// ```
/// use std::collections::HashMap;
/// use twinbox_core::{Draft, MessageId};
///
/// let draft = Draft::raw("orders.placed", 1, &br#"{"order":7}"#[..]).id("order-7").key("7");
/// let message = draft.into_message("shop");
/// assert_eq!(message.message_id(), MessageId::of("shop", "orders.placed", "order-7"));
///
/// let attributes: HashMap<_, _> = message.attributes().collect();
/// assert_eq!(attributes["type"], "orders.placed");
/// assert_eq!(attributes["partitionkey"], "7");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The event's id, unique within its source. CloudEvents `id`.
    pub id: String,
    /// The service that published the message. CloudEvents `source`.
    pub source: String,
    /// The event type. CloudEvents `type`.
    pub event_type: String,
    /// The version of the payload. CloudEvents extension `dataversion`.
    pub version: u32,
    /// The key, which orders messages against each other. CloudEvents extension `partitionkey`.
    pub key: Option<String>,
    /// The entity that the event is about. CloudEvents `subject`.
    pub subject: Option<String>,
    /// The time at which the message was published. CloudEvents `time`.
    pub time: Timestamp,
    /// The position in the log of the source. CloudEvents extension `sequence`.
    ///
    /// Of two messages with the same source and key, the later one has the larger sequence. `None` for
    /// messages of other systems.
    pub sequence: Option<u64>,
    /// The id that all messages of one business operation share. CloudEvents extension `correlationid`.
    ///
    /// A message that arrives without one starts an operation: it gets its own event id here.
    pub correlation_id: Option<String>,
    /// The message id of the message that caused this one. CloudEvents extension `causationid`.
    pub causation_id: Option<String>,
    /// The W3C trace context of the producer. CloudEvents extension `traceparent`.
    pub traceparent: Option<String>,
    /// The content type of the payload. CloudEvents `datacontenttype`.
    pub content_type: String,
    /// The headers: those of the application and those in [`header`].
    pub headers: Vec<(String, String)>,
    /// The payload. CloudEvents `data`.
    pub payload: Bytes,
}

impl Message {
    /// Returns the value of the first header with that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns the one consumer that reprocesses this message, and the id of the replay.
    ///
    /// That consumer runs its handler although it may have handled the message before. Other consumers
    /// acknowledge the message without running a handler.
    pub fn reprocess_target(&self) -> Option<(&str, Uuid)> {
        Some((self.header(header::REPLAY_FOR)?, self.header(header::REPLAY)?.parse().ok()?))
    }

    /// Removes the headers of a replay. Only a reader of the log may set them, not a producer.
    #[doc(hidden)]
    pub fn remove_replay_headers(&mut self) {
        self.headers.retain(|(name, _)| ![header::REPLAY, header::REPLAY_FOR].contains(&name.as_str()));
    }

    /// Returns whether the payload was redacted in the store of the source.
    ///
    /// The message keeps its id, its key and its position. Consumers acknowledge it without running a
    /// handler.
    pub fn is_redacted(&self) -> bool {
        self.payload.is_empty() && self.header(header::REDACTED) == Some("true")
    }

    /// Returns the W3C trace state, which belongs to [`traceparent`](Self::traceparent). CloudEvents
    /// extension `tracestate`.
    pub fn tracestate(&self) -> Option<&str> {
        self.traceparent.as_ref().and(self.header(header::TRACESTATE)).filter(|text| is_tracestate(text))
    }

    /// Returns the bytes of all texts, headers and the payload together.
    pub fn bytes(&self) -> usize {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let texts = self.id.len() + self.source.len() + self.event_type.len() + self.content_type.len();
        let optionals =
            [&self.key, &self.subject, &self.correlation_id, &self.causation_id, &self.traceparent];
        texts + optionals.into_iter().map(optional).sum::<usize>() + headers + self.payload.len()
    }

    /// Returns the message id, by which the inbox removes duplicates.
    pub fn message_id(&self) -> MessageId {
        MessageId::of(&self.source, &self.event_type, &self.id)
    }

    /// Lists the CloudEvents attributes that are set, by their CloudEvents names.
    ///
    /// The defaults of [`from_attributes`](Self::from_attributes) are left out: version 1, JSON, and a
    /// correlation id that is the event's own id.
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
            (a::TRACESTATE, self.tracestate()),
        ];
        let computed = computed.into_iter().filter_map(|(name, text)| Some((name, text?.into())));
        let sometimes = sometimes.into_iter().filter_map(|(name, text)| Some((name, text?.into())));
        always.into_iter().chain(computed).chain(sometimes)
    }

    /// Builds a message from its CloudEvents attributes. `get` returns the value of an attribute.
    ///
    /// # Errors
    /// An attribute is missing or cannot be read. A trace context that cannot be read is left out instead,
    /// because a message is worth more than its trace.
    pub fn from_attributes(
        get: impl Fn(&str) -> Option<String>,
        mut headers: Vec<(String, String)>,
        payload: Bytes,
    ) -> Result<Self, InvalidEnvelope> {
        use attribute as a;
        let need = |name| get(name).ok_or(InvalidEnvelope { attribute: name, problem: "is missing" });
        let bad = |attribute| InvalidEnvelope { attribute, problem: "cannot be read" };
        if need(a::SPEC_VERSION)? != "1.0" {
            return Err(InvalidEnvelope { attribute: a::SPEC_VERSION, problem: "is not 1.0" });
        }
        let id = need(a::ID)?;
        let traceparent = get(a::TRACEPARENT).filter(|text| is_traceparent(text));
        if traceparent.is_some() {
            add_tracestate(&mut headers, get(a::TRACESTATE));
        }
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
            traceparent,
            content_type: get(a::CONTENT_TYPE).unwrap_or_else(|| JSON.to_owned()),
            headers,
            payload,
            id,
        })
    }

    /// Checks a message of another system against the bounds of [`limits`]. A source calls this before it
    /// delivers.
    ///
    /// # Errors
    /// Names the attribute and its bound.
    pub fn check_limits(&self) -> Result<(), String> {
        use attribute as a;
        if self.event_type.len() > limits::TYPE_BYTES_MAX || !is_type_name(&self.event_type) {
            return Err("the CloudEvents attribute `type` is not a type name".to_owned());
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
            return Err(format!("the payload has more than {} bytes", limits::PAYLOAD_BYTES_MAX));
        }
        if !headers_fit(&self.headers) {
            return Err(format!(
                "the message has more than {} headers, or its headers have more than {} bytes",
                limits::HEADERS_MAX,
                limits::HEADERS_BYTES_MAX
            ));
        }
        Ok(())
    }

    /// Builds a message that stands in for an unreadable one, so that it can be stored and inspected.
    ///
    /// `id` is the id that the broker gave it. A payload longer than [`limits::UNREADABLE_BYTES_MAX`] is
    /// [cut](Self::is_cut) to that length.
    pub fn placeholder(id: String, source: String, time: Timestamp, payload: Bytes) -> Self {
        let mut message = Self {
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
        };
        message.cut_payload(limits::UNREADABLE_BYTES_MAX);
        message
    }
}

/// How the types of Twinbox's own events begin.
pub(crate) const OWN_TYPES: &str = "twinbox.";

/// The event type that stands in for a missing one, so that a broken message can be stored.
pub const UNKNOWN_TYPE: &str = "unknown";

/// The content type of events that serde wrote as JSON.
pub const JSON: &str = "application/json";

/// The content type of a payload that a [`PayloadCodec`](crate::PayloadCodec) encoded, or of an unknown one.
pub const ENCODED: &str = "application/octet-stream";

/// The error for an envelope that is not a CloudEvents 1.0 message with Twinbox's extensions.
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

/// Puts a trace state among the headers, unless that breaks a bound: a message is worth more than its trace.
pub(crate) fn add_tracestate(headers: &mut Vec<(String, String)>, tracestate: Option<String>) {
    let Some(tracestate) = tracestate.filter(|text| is_tracestate(text)) else { return };
    headers.push((header::TRACESTATE.to_owned(), tracestate));
    if !headers_fit(headers) {
        headers.pop();
    }
}

/// Whether the bounds of headers hold.
fn headers_fit(headers: &[(String, String)]) -> bool {
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    headers.len() <= limits::HEADERS_MAX && bytes <= limits::HEADERS_BYTES_MAX
}

/// Returns whether the text can be the name of an event type: words of letters, digits, `-` and `_`, joined
/// by dots.
///
/// Such a name is safe inside a NATS subject: it has no wildcard and no empty token.
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
    fn a_message_survives_its_attributes() {
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
        for extreme in [i64::MIN, i64::MAX] {
            attributes.insert("time", Timestamp::from_micros(extreme).to_string().into());
            assert!(read(&attributes).is_err(), "{extreme}");
        }
        attributes.remove("id");
        assert_eq!(read(&attributes).unwrap_err().to_string(), "the CloudEvents attribute `id` is missing");
    }

    #[test]
    fn a_trace_state_survives_with_its_trace() {
        let state = |name: &str| (name.to_owned(), "vendor=1, other=a b".to_owned());
        let mut message = message();
        message.headers.push(state(header::TRACESTATE));
        let mut attributes: HashMap<_, _> = message.attributes().collect();
        assert_eq!(attributes["tracestate"], "vendor=1, other=a b");
        assert_eq!(read(&attributes).unwrap(), message);
        for bad in ["".to_owned(), "a=\n".to_owned(), "é".to_owned(), "a".repeat(513)] {
            attributes.insert("tracestate", bad.into());
            assert_eq!(read(&attributes).unwrap().tracestate(), None);
        }
        attributes.insert("tracestate", "vendor=1".into());
        attributes.remove("traceparent");
        assert_eq!(read(&attributes).unwrap(), Message { traceparent: None, ..super::tests::message() });
        let without = Message { traceparent: None, ..message.clone() };
        assert!(without.attributes().all(|(name, _)| name != "tracestate"));
    }

    #[test]
    fn a_trace_state_breaks_no_bound() {
        let full = (0..limits::HEADERS_MAX).map(|n| (format!("h{n}"), String::new())).collect::<Vec<_>>();
        let mut headers = full.clone();
        add_tracestate(&mut headers, Some("vendor=1".to_owned()));
        assert_eq!(headers, full);
    }

    #[test]
    fn type_names_have_no_wildcard() {
        assert!(is_type_name("orders.placed") && is_type_name("billing.invoice-issued_2"));
        for bad in ["", ".", "a..b", "a.", "*", "a.>", "a b", "a\r\nb", "é"] {
            assert!(!is_type_name(bad), "{bad:?}");
        }
    }
}
