//! Drafts: messages before they are published.
mod headers;
mod invalid;

pub use headers::{is_reserved, is_transported};
pub use invalid::InvalidDraft;

use crate::{
    codec::EncodedPayload,
    event::Event,
    id, limits,
    message::TraceContext,
    message::{self, Message},
    timestamp::Timestamp,
};
use bytes::Bytes;
use invalid::{check_length, check_text, malformed};

/// A message before it is published, with an id, key, header or time that the application chooses.
///
/// [`Draft::of`] takes an event. [`Draft::raw`] takes bytes, for a payload that is not a Rust type.
///
/// ```
/// use twinbox_core::Draft;
///
/// let draft = Draft::raw("orders.placed", 1, &br#"{"order":7}"#[..])
///     .id("order-7")
///     .key("7")
///     .header("region", "eu");
/// draft.validate()?;
///
/// let error = draft.header("content-type", "text/plain").validate().unwrap_err();
/// assert!(error.to_string().starts_with("`header name` is reserved"));
/// # Ok::<(), twinbox_core::InvalidDraft>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Draft {
    #[doc(hidden)]
    pub fields: Fields,
}

/// The fields of a draft, as the store writes them to the outbox.
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
    pub tracestate: Option<String>,
    pub content_type: String,
    pub headers: Vec<(String, String)>,
    pub payload: Bytes,
    pub not_before: Option<Timestamp>,
    /// Whether Twinbox itself made the event, so that its type may be one of its own.
    pub is_of_twinbox: bool,
}

impl Fields {
    /// Sets the trace context, unless the draft has one.
    pub fn trace_or(&mut self, trace: Option<TraceContext>) {
        if self.traceparent.is_none()
            && let Some(trace) = trace
        {
            (self.traceparent, self.tracestate) = (Some(trace.traceparent), trace.tracestate);
        }
    }

    /// Puts the trace state among the headers, as the store keeps it. Call it after the checks, which refuse
    /// the name in a draft.
    pub fn with_tracestate(mut self) -> Self {
        let tracestate = self.tracestate.take().filter(|_| self.traceparent.is_some());
        message::add_tracestate(&mut self.headers, tracestate);
        self
    }
}

impl Draft {
    /// Creates a draft of an event, with the key and the subject of the event.
    ///
    /// # Errors
    /// The event cannot be written as JSON.
    pub fn of<E: Event>(event: &E) -> Result<Self, InvalidDraft> {
        let payload = serde_json::to_vec(event).map_err(|error| InvalidDraft::Encode(error.into()))?;
        let mut draft = Self::raw(E::TYPE, E::VERSION, payload);
        draft.fields.key = event.key();
        draft.fields.subject = event.subject();
        Ok(draft)
    }

    /// Creates a draft of a payload in bytes, which is JSON unless `content_type` is set.
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
                tracestate: None,
                content_type: message::JSON.to_owned(),
                headers: Vec::new(),
                payload: payload.into(),
                not_before: None,
                is_of_twinbox: false,
            },
        }
    }

    /// Creates a draft of an event of Twinbox itself. No other event has such a type.
    #[doc(hidden)]
    pub fn of_twinbox(event_type: &'static str, version: u32, payload: impl Into<Bytes>) -> Self {
        let mut draft = Self::raw(event_type, version, payload);
        draft.fields.is_of_twinbox = true;
        draft
    }

    /// Sets the event's id, which is unique within the service.
    ///
    /// Consumers treat two messages with the same id as one. Default: derived inside a handler, UUIDv7
    /// elsewhere.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.fields.id = Some(id.into());
        self
    }

    /// Sets the key, which orders this message against others.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.fields.key = Some(key.into());
        self
    }

    /// Sets the entity that the event is about.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.fields.subject = Some(subject.into());
        self
    }

    /// Sets the time at which the event happened. Default: the database's time when the log gets the message.
    ///
    /// The time does not order messages. But a consumer does not run a message that is older than messages
    /// which its inbox has purged: it could be a duplicate of one of them.
    pub fn time(mut self, time: Timestamp) -> Self {
        self.fields.time = Some(time);
        self
    }

    /// Delays the message until a time, by the clock of the database. A time in the past is due at once.
    ///
    /// The message is committed with its transaction, but it is not in the log yet. While it waits, it can be
    /// cancelled by its message id. When it is due, the program `twinbox-relay` moves it to the log, or
    /// `twinbox_relay::DelayedMessageMover` in a program of your own. Without either, it waits.
    ///
    /// Its order among the messages of its key is given by the move, not by the publish.
    pub fn not_before(mut self, time: Timestamp) -> Self {
        self.fields.not_before = Some(time);
        self
    }

    /// Sets the id that all messages of one business operation share.
    ///
    /// Default: inherited inside a handler, the event's own id elsewhere.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.fields.correlation_id = Some(id.into());
        self
    }

    /// Sets the message id of the message that caused this one.
    ///
    /// Default: the handled message inside a handler, none elsewhere.
    pub fn causation_id(mut self, id: impl Into<String>) -> Self {
        self.fields.causation_id = Some(id.into());
        self
    }

    /// Sets the W3C trace context of the message. A text that is not one is left out; it is not an error.
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.fields.traceparent = Some(traceparent.into()).filter(|t| message::is_traceparent(t));
        self
    }

    /// Sets the W3C trace state, which belongs to the trace context and is left out without it. A text that
    /// is not one, or has more than 512 bytes, is left out too.
    pub fn tracestate(mut self, tracestate: impl Into<String>) -> Self {
        self.fields.tracestate = Some(tracestate.into()).filter(|text| message::is_tracestate(text));
        self
    }

    /// Sets the content type of the payload. Default: `application/json`.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.fields.content_type = content_type.into();
        self
    }

    /// Adds a header of the application to the message.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.headers.push((name.into(), value.into()));
        self
    }

    /// Turns this draft into a message without a database, for tests and tools.
    ///
    /// A missing id is made, a missing time is 1970-01-01, and the message has no sequence.
    pub fn into_message(self, source: &str) -> Message {
        let f = self.fields.with_tracestate();
        let id = f.id.unwrap_or_else(id::new_event_id);
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

    /// Checks the draft against every bound in [`limits`].
    ///
    /// Publishing checks the same bounds, with the encoded payload if the store has a codec. If that fails,
    /// it writes nothing.
    ///
    /// # Errors
    /// Names the first field to change, with its size and its limit.
    pub fn validate(&self) -> Result<(), InvalidDraft> {
        let f = &self.fields;
        check_length("type", f.event_type.len(), limits::TYPE_BYTES_MAX)?;
        if !message::is_type_name(&f.event_type) {
            return Err(malformed("type", "must be words of letters, digits, `-` and `_` joined by dots"));
        }
        if f.event_type.starts_with(message::OWN_TYPES) && !f.is_of_twinbox {
            let problem = "is reserved: types that begin with `twinbox.` are of Twinbox itself";
            return Err(malformed("type", problem));
        }
        if f.version == 0 {
            return Err(malformed("version", "must be 1 or more"));
        }
        check_text("id", f.id.as_deref(), limits::ID_BYTES_MAX)?;
        check_text("key", f.key.as_deref(), limits::KEY_BYTES_MAX)?;
        check_text("subject", f.subject.as_deref(), limits::SUBJECT_BYTES_MAX)?;
        check_text("correlation_id", f.correlation_id.as_deref(), limits::CORRELATION_BYTES_MAX)?;
        check_text("causation_id", f.causation_id.as_deref(), limits::CORRELATION_BYTES_MAX)?;
        check_text("content_type", Some(&f.content_type), limits::CONTENT_TYPE_BYTES_MAX)?;
        if f.id.as_deref() == Some("") {
            return Err(malformed("id", "is empty"));
        }
        if f.time.is_some_and(|time| !time.fits_rfc3339()) {
            return Err(malformed("time", "is outside of the years 0 to 9999"));
        }
        check_length("payload", f.payload.len(), limits::PAYLOAD_BYTES_MAX)?;
        headers::check(&f.headers)
    }

    /// Replaces the payload by its encoded form and checks every bound again.
    ///
    /// The codec's reserved headers are added after the check, which refuses them in a draft.
    #[doc(hidden)]
    pub fn encoded(mut self, codec: &str, encoded: EncodedPayload) -> Result<Self, InvalidDraft> {
        self.fields.payload = encoded.payload;
        self.fields.headers.extend(encoded.headers);
        self.validate()?;
        let f = &mut self.fields;
        f.headers.push((message::header::CODEC.to_owned(), codec.to_owned()));
        let plain = std::mem::replace(&mut f.content_type, message::ENCODED.to_owned());
        if plain != message::JSON {
            f.headers.push((message::header::CONTENT_TYPE.to_owned(), plain));
        }
        headers::check_bounds(&f.headers)?;
        Ok(self)
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
    fn the_error_names_the_field_to_change() {
        draft().validate().unwrap();
        refused(draft().key("k".repeat(256)), "`key` has 256 bytes, more than the limit of 255");
        refused(draft().id(""), "`id` is empty");
        refused(draft().subject("a\0b"), "`subject` holds a control character");
        for extreme in [i64::MIN, i64::MAX] {
            let draft = draft().time(Timestamp::from_micros(extreme));
            refused(draft, "`time` is outside of the years 0 to 9999");
        }
        refused(
            Draft::raw("orders.*", 1, ""),
            "`type` must be words of letters, digits, `-` and `_` joined by dots",
        );
        refused(
            Draft::raw("twinbox.dead_letter", 1, ""),
            "`type` is reserved: types that begin with `twinbox.` are of Twinbox itself",
        );
        Draft::of_twinbox("twinbox.dead_letter", 1, "").validate().unwrap();
        Draft::raw("twinboxes.sold", 1, "").validate().unwrap();
        refused(Draft::raw("orders", 0, ""), "`version` must be 1 or more");
        refused(
            Draft::raw("orders", 1, vec![0; 983_041]),
            "`payload` has 983041 bytes, more than the limit of 983040",
        );
        refused(draft().header("x", "a\r\nNats-Msg-Id: 1"), "`header value` holds a control character");
        let many = (0..33).fold(draft(), |d, n| d.header(format!("h{n}"), ""));
        refused(many, "the message has 33 headers, more than the limit of 32");
        let long = draft().header("x", "v".repeat(16_384));
        refused(long, "`headers` has 16385 bytes, more than the limit of 16384");
        for name in ["Nats-Msg-Id", "ce-id", "Content-Type", "twinbox-codec", "twinbox-redacted"] {
            assert!(draft().header(name, "").validate().unwrap_err().to_string().contains("reserved"));
        }
    }

    proptest! {
        #[test]
        fn a_valid_header_is_one_line(name in any::<String>(), value in any::<String>()) {
            if draft().header(&name, &value).validate().is_ok() {
                let line = format!("{name}: {value}");
                prop_assert!(!line.contains(['\r', '\n', '\0']) && !is_reserved(&name));
            }
        }
    }
}
