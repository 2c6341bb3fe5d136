//! The payload codecs of a store.
mod effect;

pub use self::effect::EffectColumns;
use crate::{Error, ErrorKind, text};
use std::{borrow::Cow, fmt, sync::Arc};
use twinbox_core::{
    BoxError, DecodeError, Draft, Message, PayloadCodec, PayloadContext,
    draft::Fields,
    limits,
    message::{self, header},
};

/// The codecs of a store: one that encodes, and any number that decode.
#[derive(Clone, Default)]
pub struct Codecs {
    /// The codec that encodes every payload that is published.
    pub encoder: Option<Arc<dyn PayloadCodec>>,
    /// The codecs that only decode. Of one name, the encoder comes first.
    pub decoders: Vec<Arc<dyn PayloadCodec>>,
    /// Whether a payload that is not encoded is refused.
    pub is_required: bool,
}

impl Codecs {
    /// Returns all codecs, the encoder first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn PayloadCodec>> {
        self.encoder.iter().chain(&self.decoders)
    }

    /// Returns the codec with a name.
    pub fn named(&self, name: &str) -> Option<&Arc<dyn PayloadCodec>> {
        self.all().find(|codec| codec.name() == name)
    }

    /// Refuses names that cannot be values of headers, and a store that would refuse what it writes.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_required && self.encoder.is_none() {
            let what = "`require_codec` needs a codec that encodes: add `StoreOptions::codec`";
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        let is_fit = |name: &str| {
            (1..=limits::NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
        };
        match self.all().find(|codec| !is_fit(codec.name())) {
            None => Ok(()),
            Some(codec) => Err(Error::new(
                ErrorKind::Configuration,
                format!("the codec name {:?} must have 1 to 120 visible ASCII characters", codec.name()),
            )),
        }
    }

    /// The message with its payload decoded. A payload that was not encoded stays as it is, or is refused.
    /// One that was redacted has nothing to decode.
    pub(crate) fn decode<'m>(&self, message: &'m Message) -> Result<Cow<'m, Message>, DecodeError> {
        let Some(name) = message.header(header::CODEC) else {
            return match self.is_required && !message.is_redacted() {
                true => Err(DecodeError::NotEncoded),
                false => Ok(Cow::Borrowed(message)),
            };
        };
        let Some(codec) = self.named(name) else {
            return Err(DecodeError::UnknownCodec { codec: name.to_owned() });
        };
        let payload = codec
            .decode(&PayloadContext::from(message), &message.headers, &message.payload)
            .map_err(|source| DecodeError::Codec { codec: name.to_owned(), source })?;
        let mut plain = Message { payload: payload.into(), ..message.clone() };
        let content_type = message.header(header::CONTENT_TYPE).unwrap_or(message::JSON);
        plain.content_type = content_type.to_owned();
        plain.headers.retain(|(name, _)| ![header::CODEC, header::CONTENT_TYPE].contains(&name.as_str()));
        Ok(Cow::Owned(plain))
    }
}

/// The fields of a message with its payload encoded.
pub(crate) fn encode(codec: &dyn PayloadCodec, service: &str, fields: Fields) -> Result<Fields, Error> {
    let encoded = codec.encode(&context(service, &fields), &fields.payload).map_err(|e| {
        Error::new(ErrorKind::Codec, format!("the codec {:?} could not encode the payload", codec.name()))
            .with_source(e)
    })?;
    Ok(Draft { fields }.encoded(codec.name(), encoded)?.fields)
}

/// The context to which the payload of a message is bound.
fn context<'a>(service: &'a str, fields: &'a Fields) -> PayloadContext<'a> {
    PayloadContext::of_message(
        service,
        fields.id.as_deref().unwrap_or_default(),
        &fields.event_type,
        fields.version,
        fields.key.as_deref(),
        fields.subject.as_deref(),
        &fields.content_type,
    )
}

/// Encodes bytes that are no message, and returns the headers that a codec needs to decode them. `what` names
/// the bytes in an error.
///
/// # Errors
/// [`ErrorKind::Codec`]: the codec refused.
pub fn encode_bytes(
    codecs: &Codecs,
    context: &PayloadContext<'_>,
    bytes: &[u8],
    what: &str,
) -> Result<(Vec<u8>, Option<String>), Error> {
    let Some(codec) = &codecs.encoder else { return Ok((bytes.to_vec(), None)) };
    let encoded = codec.encode(context, bytes).map_err(|e| failed("encode", codec.name(), what, e))?;
    let (bytes, mut headers) = encoded.into_parts();
    headers.push((header::CODEC.to_owned(), codec.name().to_owned()));
    Ok((bytes.into(), text::headers(&headers)))
}

/// Decodes bytes that are no message. Without headers they were not encoded.
///
/// # Errors
/// [`ErrorKind::Codec`]: the store has no codec of that name, or the codec refused; or the bytes were not
/// encoded, and the store requires that.
pub fn decode_bytes(
    codecs: &Codecs,
    context: &PayloadContext<'_>,
    bytes: Vec<u8>,
    headers: Option<String>,
    what: &str,
) -> Result<Vec<u8>, Error> {
    let Some(headers) = headers else {
        return if codecs.is_required { Err(not_encoded(what)) } else { Ok(bytes) };
    };
    let headers = text::read_headers(&headers);
    let name = headers.iter().find(|(name, _)| name == header::CODEC).map_or("", |(_, codec)| codec);
    let Some(codec) = codecs.named(name) else {
        return Err(failed("decode", name, what, "this store has no codec of that name".into()));
    };
    codec.decode(context, &headers, &bytes).map_err(|e| failed("decode", name, what, e))
}

fn failed(verb: &str, codec: &str, what: &str, source: BoxError) -> Error {
    Error::new(ErrorKind::Codec, format!("the codec {codec:?} could not {verb} {what}")).with_source(source)
}

fn not_encoded(what: &str) -> Error {
    Error::new(
        ErrorKind::Codec,
        format!(
            "{what} is not encoded, and this store refuses that: write it through a store with the codec, or \
             leave `StoreOptions::require_codec` away until none is left"
        ),
    )
}

/// Names alone: a codec may hold keys.
impl fmt::Debug for Codecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().map(|codec| codec.name())).finish()
    }
}
