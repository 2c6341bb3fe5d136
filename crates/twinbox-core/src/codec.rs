//! Payload codecs: encryption or compression between an event and its row in the outbox.
#[cfg(feature = "encryption")]
mod aes_gcm;
mod context;

#[cfg(feature = "encryption")]
pub use self::aes_gcm::{AesGcm, InvalidKeys};
pub use self::context::{PayloadContext, PayloadPurpose};
use crate::boxed::BoxError;
use bytes::Bytes;
use std::sync::Arc;

/// Encodes payloads on their way into the outbox and decodes them before a handler reads them.
///
/// A store has the codec. It encodes every payload that it publishes; the consumer runtime decodes. Relays
/// and brokers carry encoded payloads.
///
/// An encoded message names its codec in the header [`header::CODEC`](crate::message::header::CODEC) and has
/// the content type [`message::ENCODED`](crate::message::ENCODED). Decoding restores the content type. A
/// message without that header is not decoded: a producer wrote it with SQL, or before the store had a codec.
/// `StoreOptions::require_codec` refuses it instead.
///
/// `AesGcm`, behind the feature `encryption`, is one that encrypts. One of your own takes
/// [`PayloadContext::associated_data`], or whoever may write rows can put a payload where it does not belong.
///
/// Requests of side effects and stored responses of operations with a key are encoded too: their bodies, not
/// their headers. Without the codec the dispatcher does not send them, and the store does not return them.
///
/// Both functions run inside the transaction that publishes or handles. A call over the network would hold
/// that transaction open, so have the encryption keys in memory.
///
/// An encryption with a fresh nonce turns one event into other bytes each time. If a message is published
/// twice with one id, the inbox handles the first and keeps the second as a dead letter,
/// `conflicting_payload`.
///
/// ```
/// use twinbox_core::{BoxError, EncodedPayload, PayloadCodec, PayloadContext};
///
/// /// Stands in for an encryption.
/// struct Flip;
///
/// impl PayloadCodec for Flip {
///     fn name(&self) -> &str {
///         "flip"
///     }
///
///     fn encode(&self, _: &PayloadContext<'_>, payload: &[u8]) -> Result<EncodedPayload, BoxError> {
///         let inverted: Vec<u8> = payload.iter().map(|byte| !byte).collect();
///         Ok(EncodedPayload::new(inverted).header("key-id", "2026-11"))
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
    /// Returns the stable name that an encoded message carries: 1 to 120 visible ASCII characters.
    fn name(&self) -> &str;

    /// Encodes a payload.
    ///
    /// # Errors
    /// On an error the publish fails and nothing is written.
    fn encode(&self, context: &PayloadContext<'_>, payload: &[u8]) -> Result<EncodedPayload, BoxError>;

    /// Decodes a payload that [`encode`](Self::encode) encoded.
    ///
    /// `headers` are the headers of the message, with those that `encode` added. A codec that decompresses
    /// sets its own bound for the size of the result.
    ///
    /// # Errors
    /// On an error the message becomes a dead letter at once, as undecodable. The text of the error is stored
    /// with it.
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

    fn encode(&self, context: &PayloadContext<'_>, payload: &[u8]) -> Result<EncodedPayload, BoxError> {
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

/// An encoded payload, with the headers that decoding needs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct EncodedPayload {
    pub(crate) payload: Bytes,
    pub(crate) headers: Vec<(String, String)>,
}

impl EncodedPayload {
    /// Creates an encoded payload without headers.
    ///
    /// [`limits::PAYLOAD_BYTES_MAX`](crate::limits::PAYLOAD_BYTES_MAX) bounds these bytes. The payload before
    /// encoding may be longer.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), headers: Vec::new() }
    }

    /// Adds a header to the message, such as the id of an encryption key.
    ///
    /// It counts towards the limits of headers, and the names that are reserved for an application are
    /// reserved here too.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    #[doc(hidden)]
    pub fn into_parts(self) -> (Bytes, Vec<(String, String)>) {
        (self.payload, self.headers)
    }
}
