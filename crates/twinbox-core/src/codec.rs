//! What stands between an event and the row that keeps it: encryption, compression.
use crate::{BoxError, Message};
use bytes::Bytes;
use std::sync::Arc;

/// Changes payloads on their way into the outbox and back. Set on a store, where it encodes whatever is
/// published; the consumer runtime decodes before an event is read. Relays and brokers carry what was encoded.
///
/// A message that was encoded says so in the header [`header::CODEC`](crate::message::header::CODEC) and has the
/// content type [`message::ENCODED`](crate::message::ENCODED); decoding brings its own back. One without that
/// header, from a producer that writes SQL or from before the codec was set, passes as it is.
///
/// The bodies of answers to operations with a key are kept in the same way, and without it are not given out. Their headers
/// are kept as they are.
///
/// Both functions run inside the transaction that publishes or handles, so have keys at hand: a call over the
/// network holds it open.
///
/// An encryption with a fresh nonce makes of one event other bytes each time. If a message is published twice
/// under one id, the inbox handles the first and keeps the second as a dead letter, `conflicting_payload`.
///
/// ```
/// use twinbox_core::{BoxError, Encoded, PayloadCodec, PayloadContext};
///
/// /// Stands for an encryption.
/// struct Flip;
///
/// impl PayloadCodec for Flip {
///     fn name(&self) -> &str {
///         "flip"
///     }
///
///     fn encode(&self, _: &PayloadContext<'_>, payload: &[u8]) -> Result<Encoded, BoxError> {
///         Ok(Encoded::new(payload.iter().map(|byte| !byte).collect::<Vec<_>>()).header("key-id", "2026-11"))
///     }
///
///     fn decode(
///         &self,
///         _: &PayloadContext<'_>,
///         headers: &[(String, String)],
///         payload: &[u8],
///     ) -> Result<Vec<u8>, BoxError> {
///         let key = headers.iter().find(|(name, _)| name == "key-id").ok_or("no key id")?;
///         if key.1 != "2026-11" {
///             return Err(format!("no key {:?}", key.1).into());
///         }
///         Ok(payload.iter().map(|byte| !byte).collect())
///     }
/// }
/// ```
pub trait PayloadCodec: Send + Sync + 'static {
    /// The stable name by which a message says how it was encoded: 1 to 120 visible ASCII characters.
    fn name(&self) -> &str;

    /// Encodes a payload.
    ///
    /// # Errors
    /// The publish fails and nothing is written.
    fn encode(&self, context: &PayloadContext<'_>, payload: &[u8]) -> Result<Encoded, BoxError>;

    /// Brings back what [`encode`](Self::encode) was given. `headers` are those of the message, among them what
    /// `encode` added. How far a payload may grow here is for the codec to bound.
    ///
    /// # Errors
    /// The message becomes a dead letter at once, as one that cannot be read. The text is kept with it.
    fn decode(
        &self,
        context: &PayloadContext<'_>,
        headers: &[(String, String)],
        payload: &[u8],
    ) -> Result<Vec<u8>, BoxError>;
}

impl PayloadCodec for Arc<dyn PayloadCodec> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn encode(&self, context: &PayloadContext<'_>, payload: &[u8]) -> Result<Encoded, BoxError> {
        (**self).encode(context, payload)
    }

    fn decode(
        &self,
        context: &PayloadContext<'_>,
        headers: &[(String, String)],
        payload: &[u8],
    ) -> Result<Vec<u8>, BoxError> {
        (**self).decode(context, headers, payload)
    }
}

/// Which message a payload belongs to. The same when it is encoded and when it is decoded, so that it can be
/// bound to the payload as associated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PayloadContext<'a> {
    /// The service that publishes it.
    pub source: &'a str,
    /// The event's id.
    pub id: &'a str,
    /// The event's type.
    pub event_type: &'a str,
    /// The version of the payload.
    pub version: u32,
    /// The key, by which an encryption may choose its own.
    pub key: Option<&'a str>,
}

impl<'a> PayloadContext<'a> {
    #[doc(hidden)]
    pub fn new(
        source: &'a str,
        id: &'a str,
        event_type: &'a str,
        version: u32,
        key: Option<&'a str>,
    ) -> Self {
        Self { source, id, event_type, version, key }
    }
}

impl<'a> From<&'a Message> for PayloadContext<'a> {
    fn from(m: &'a Message) -> Self {
        Self::new(&m.source, &m.id, &m.event_type, m.version, m.key.as_deref())
    }
}

/// An encoded payload.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Encoded {
    pub(crate) payload: Bytes,
    pub(crate) headers: Vec<(String, String)>,
}

impl Encoded {
    /// These bytes. They are held against [`limits::PAYLOAD_BYTES_MAX`](crate::limits::PAYLOAD_BYTES_MAX); what was
    /// encoded may have been longer.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), headers: Vec::new() }
    }

    /// Adds a header to the message, such as the id of a key. It counts like the message's own, and the same
    /// names are reserved.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    #[doc(hidden)]
    pub fn into_parts(self) -> (Bytes, Vec<(String, String)>) {
        (self.payload, self.headers)
    }
}
