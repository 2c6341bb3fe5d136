//! An event on its way into the outbox.
use crate::{BoxError, Encoded, Event, Message, Timestamp, id, limits, message};
use bytes::Bytes;
use std::{error::Error, fmt};

/// A message before it is published, for when the defaults are not right: an explicit id, key, header or
/// correlation, or a payload that is no Rust type.
///
/// ```
/// # use twinbox_core::Draft;
/// let draft = Draft::raw("orders.placed", 1, &br#"{"order":7}"#[..]).id("order-7").header("region", "eu");
/// assert!(draft.validate().is_ok());
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Draft {
    #[doc(hidden)]
    pub fields: Fields,
}

/// What a draft says, for the store that writes it.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Fields {
    pub id: Option<String>,
    pub event_type: String,
    pub version: u32,
    pub key: Option<String>,
    pub subject: Option<String>,
    pub time: Option<Timestamp>,
    pub correlation_id: Option<String>,
    pub causation_id: Option<String>,
    pub traceparent: Option<String>,
    pub content_type: String,
    pub headers: Vec<(String, String)>,
    pub payload: Bytes,
    pub not_before: Option<Timestamp>,
}

impl Draft {
    /// A draft of `event` with its own key and subject.
    ///
    /// # Errors
    /// The event cannot be written as JSON.
    pub fn of<E: Event>(event: &E) -> Result<Self, InvalidDraft> {
        let payload = serde_json::to_vec(event).map_err(|e| InvalidDraft::Encode(e.into()))?;
        let mut draft = Self::raw(E::TYPE, E::VERSION, payload);
        draft.fields.key = event.key();
        draft.fields.subject = event.subject();
        Ok(draft)
    }

    /// A draft of bytes that are an event already, taken for JSON unless
    /// [`content_type`](Self::content_type) says otherwise.
    pub fn raw(event_type: impl Into<String>, version: u32, payload: impl Into<Bytes>) -> Self {
        Self {
            fields: Fields {
                id: None,
                event_type: event_type.into(),
                version,
                key: None,
                subject: None,
                time: None,
                correlation_id: None,
                causation_id: None,
                traceparent: None,
                content_type: message::JSON.to_owned(),
                headers: Vec::new(),
                payload: payload.into(),
                not_before: None,
            },
        }
    }

    /// The event's id, unique within the service. Two messages with one id are one message to every
    /// consumer. Default: derived inside a handler, UUIDv7 elsewhere.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.fields.id = Some(id.into());
        self
    }

    /// What orders this message against others.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.fields.key = Some(key.into());
        self
    }

    /// The entity that the event is about.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.fields.subject = Some(subject.into());
        self
    }

    /// When it happened. Default: the database's time when it is written to the log. Orders nothing; but a consumer
    /// that has forgotten messages which are newer cannot tell this one from them, and does not run it.
    pub fn time(mut self, time: Timestamp) -> Self {
        self.fields.time = Some(time);
        self
    }

    /// Keeps the message out of the log until then, by the clock of the database. It is committed with the
    /// transaction all the same, and can be cancelled by its message id while it waits.
    ///
    /// Whoever moves due messages brings it to the log: the program `twinbox-relay` does, and so does
    /// `twinbox_relay::Mover` in a program of your own. Without one it waits. Its place among the messages of its
    /// key is where it is moved to, not where it was published. A time that is past is due at once.
    pub fn not_before(mut self, time: Timestamp) -> Self {
        self.fields.not_before = Some(time);
        self
    }

    /// What the whole business operation shares. Default: inherited inside a handler, the event's own id
    /// elsewhere.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.fields.correlation_id = Some(id.into());
        self
    }

    /// The message id of what caused this. Default: the handled message inside a handler, none elsewhere.
    pub fn causation_id(mut self, id: impl Into<String>) -> Self {
        self.fields.causation_id = Some(id.into());
        self
    }

    /// W3C trace context. One that cannot be read is left out, never an error.
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.fields.traceparent = Some(traceparent.into()).filter(|t| message::is_traceparent(t));
        self
    }

    /// What the payload is. Default `application/json`.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.fields.content_type = content_type.into();
        self
    }

    /// Adds a header of the application's own.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.headers.push((name.into(), value.into()));
        self
    }

    /// The message that this draft becomes, without a database: what is not set gets a fresh id, the time of
    /// 1970 and no sequence. For tests and tools.
    pub fn into_message(self, source: &str) -> Message {
        let f = self.fields;
        let id = f.id.unwrap_or_else(id::fresh);
        Message {
            correlation_id: f.correlation_id.or_else(|| Some(id.clone())),
            id,
            source: source.to_owned(),
            event_type: f.event_type,
            version: f.version,
            key: f.key,
            subject: f.subject,
            time: f.time.unwrap_or(Timestamp::from_micros(0)),
            sequence: None,
            causation_id: f.causation_id,
            traceparent: f.traceparent,
            content_type: f.content_type,
            headers: f.headers,
            payload: f.payload,
        }
    }

    /// Holds the draft against every bound in [`limits`].
    ///
    /// # Errors
    /// The first thing to change, with its name, size and limit. Publishing checks the same, of the encoded payload
    /// if the store has a codec, and writes nothing when it fails.
    pub fn validate(&self) -> Result<(), InvalidDraft> {
        let f = &self.fields;
        bounded("type", &f.event_type, limits::TYPE_BYTES_MAX)?;
        if !message::is_type_name(&f.event_type) {
            return malformed("type", "must be words of letters, digits, `-` and `_` joined by dots");
        }
        if f.version == 0 {
            return malformed("version", "is counted from 1");
        }
        text("id", f.id.as_deref(), limits::ID_BYTES_MAX)?;
        text("key", f.key.as_deref(), limits::KEY_BYTES_MAX)?;
        text("subject", f.subject.as_deref(), limits::SUBJECT_BYTES_MAX)?;
        text("correlation_id", f.correlation_id.as_deref(), limits::CORRELATION_BYTES_MAX)?;
        text("causation_id", f.causation_id.as_deref(), limits::CORRELATION_BYTES_MAX)?;
        text("content_type", Some(&f.content_type), limits::CONTENT_TYPE_BYTES_MAX)?;
        if f.id.as_deref() == Some("") {
            return malformed("id", "is empty");
        }
        if f.payload.len() > limits::PAYLOAD_BYTES_MAX {
            return too_long("payload", f.payload.len(), limits::PAYLOAD_BYTES_MAX);
        }
        headers(&f.headers)
    }

    /// The draft with its payload encoded, within every bound. The reserved headers come last, because nobody
    /// else may write them.
    #[doc(hidden)]
    pub fn encoded(mut self, codec: &str, encoded: Encoded) -> Result<Self, InvalidDraft> {
        self.fields.payload = encoded.payload;
        self.fields.headers.extend(encoded.headers);
        self.validate()?;
        let f = &mut self.fields;
        f.headers.push((message::header::CODEC.to_owned(), codec.to_owned()));
        let plain = std::mem::replace(&mut f.content_type, message::ENCODED.to_owned());
        if plain != message::JSON {
            f.headers.push((message::header::CONTENT_TYPE.to_owned(), plain));
        }
        header_room(&f.headers)?;
        Ok(self)
    }
}

fn text(field: &'static str, value: Option<&str>, max: usize) -> Result<(), InvalidDraft> {
    let Some(value) = value else { return Ok(()) };
    bounded(field, value, max)?;
    if value.chars().any(char::is_control) {
        return malformed(field, "holds a control character");
    }
    Ok(())
}

fn header_room(headers: &[(String, String)]) -> Result<(), InvalidDraft> {
    if headers.len() > limits::HEADERS_MAX {
        return Err(InvalidDraft::TooManyHeaders { count: headers.len() });
    }
    let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > limits::HEADERS_BYTES_MAX {
        return too_long("headers", bytes, limits::HEADERS_BYTES_MAX);
    }
    Ok(())
}

fn headers(headers: &[(String, String)]) -> Result<(), InvalidDraft> {
    header_room(headers)?;
    for (name, value) in headers {
        bounded("header name", name, limits::HEADER_NAME_BYTES_MAX)?;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return malformed("header name", "must be letters, digits, `-` and `_`");
        }
        if is_reserved(name) {
            return malformed(
                "header name",
                "is reserved: `nats-`, `ce-`, `twinbox-`, `traceparent`, `tracestate`, `content-type`",
            );
        }
        if value.chars().any(char::is_control) {
            return malformed("header value", "holds a control character");
        }
    }
    Ok(())
}

/// Whether a header of this name belongs to a broker or to the envelope.
pub fn is_reserved(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["nats-", "ce-", "twinbox-"].iter().any(|prefix| name.starts_with(prefix))
        || ["traceparent", "tracestate", "content-type"].contains(&name.as_str())
}

/// Whether a destination takes a header of this name along, and a source brings it.
pub fn travels(name: &str) -> bool {
    use message::header as h;
    !is_reserved(name) || [h::CODEC, h::CONTENT_TYPE, h::REDACTED, h::REPLAY, h::REPLAY_FOR].contains(&name)
}

fn bounded(field: &'static str, value: &str, max: usize) -> Result<(), InvalidDraft> {
    if value.len() > max { too_long(field, value.len(), max) } else { Ok(()) }
}

fn too_long(field: &'static str, bytes: usize, max: usize) -> Result<(), InvalidDraft> {
    Err(InvalidDraft::TooLong { field, bytes, max })
}

fn malformed(field: &'static str, problem: &'static str) -> Result<(), InvalidDraft> {
    Err(InvalidDraft::Malformed { field, problem })
}

/// What has to change before a draft can be published. Nothing was written.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidDraft {
    /// A field is longer than its bound in [`limits`].
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// The bound in bytes.
        max: usize,
    },
    /// More headers than [`limits::HEADERS_MAX`].
    TooManyHeaders {
        /// How many there are.
        count: usize,
    },
    /// A field has a form that some broker or database would not carry.
    Malformed {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The event cannot be written as JSON.
    Encode(BoxError),
}

impl fmt::Display for InvalidDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { field, bytes, max } => {
                write!(f, "`{field}` has {bytes} bytes and may have {max}")
            }
            Self::TooManyHeaders { count } => {
                write!(f, "{count} headers, and there may be {}", limits::HEADERS_MAX)
            }
            Self::Malformed { field, problem } => write!(f, "`{field}` {problem}"),
            Self::Encode(_) => f.write_str("the event cannot be written as JSON"),
        }
    }
}

impl Error for InvalidDraft {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Encode(e) => Some(e.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn draft() -> Draft {
        Draft::raw("orders.placed", 1, &b"{}"[..])
    }

    #[track_caller]
    fn refused(draft: Draft, why: &str) {
        assert_eq!(draft.validate().unwrap_err().to_string(), why);
    }

    #[test]
    fn every_bound_names_what_to_change() {
        draft().validate().unwrap();
        refused(draft().key("k".repeat(256)), "`key` has 256 bytes and may have 255");
        refused(draft().id(""), "`id` is empty");
        refused(draft().subject("a\0b"), "`subject` holds a control character");
        refused(
            Draft::raw("orders.*", 1, ""),
            "`type` must be words of letters, digits, `-` and `_` joined by dots",
        );
        refused(Draft::raw("orders", 0, ""), "`version` is counted from 1");
        refused(Draft::raw("orders", 1, vec![0; 983_041]), "`payload` has 983041 bytes and may have 983040");
        refused(draft().header("x", "a\r\nNats-Msg-Id: 1"), "`header value` holds a control character");
        let many = (0..33).fold(draft(), |d, n| d.header(format!("h{n}"), ""));
        refused(many, "33 headers, and there may be 32");
        refused(draft().header("x", "v".repeat(16_384)), "`headers` has 16385 bytes and may have 16384");
        for name in ["Nats-Msg-Id", "ce-id", "Content-Type", "twinbox-codec", "twinbox-redacted"] {
            assert!(draft().header(name, "").validate().unwrap_err().to_string().contains("reserved"));
        }
    }

    proptest! {
        /// Whatever passes can stand in a header line.
        #[test]
        fn what_passes_is_one_header_line(name in any::<String>(), value in any::<String>()) {
            if draft().header(&name, &value).validate().is_ok() {
                let line = format!("{name}: {value}");
                prop_assert!(!line.contains(['\r', '\n', '\0']) && !is_reserved(&name));
            }
        }
    }
}
