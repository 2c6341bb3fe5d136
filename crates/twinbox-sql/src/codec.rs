//! Payloads through the codecs of a store.
use crate::{Dialect, Error, ErrorKind, Store};
use std::{borrow::Cow, fmt, sync::Arc};
use twinbox_core::{
    DecodeError, Draft, Message, PayloadCodec, PayloadContext,
    draft::Fields,
    limits,
    message::{self, header},
};

#[derive(Clone, Default)]
pub(crate) struct Codecs {
    pub(crate) encoder: Option<Arc<dyn PayloadCodec>>,
    pub(crate) decoders: Vec<Arc<dyn PayloadCodec>>,
}

impl Codecs {
    fn all(&self) -> impl Iterator<Item = &Arc<dyn PayloadCodec>> {
        self.encoder.iter().chain(&self.decoders)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<dyn PayloadCodec>> {
        self.all().find(|codec| codec.name() == name)
    }

    /// Their names become values of headers.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let fit = |name: &str| {
            (1..=limits::NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
        };
        match self.all().find(|codec| !fit(codec.name())) {
            None => Ok(()),
            Some(codec) => Err(Error::new(
                ErrorKind::Configuration,
                format!("the codec name {:?} must have 1 to 120 visible ASCII characters", codec.name()),
            )),
        }
    }
}

/// The message as it is to be written.
pub(crate) fn encode(codec: &dyn PayloadCodec, service: &str, fields: Fields) -> Result<Fields, Error> {
    let id = fields.id.as_deref().unwrap_or_default();
    let context = PayloadContext::new(service, id, &fields.event_type, fields.version, fields.key.as_deref());
    let encoded = codec.encode(&context, &fields.payload).map_err(|e| {
        Error::new(ErrorKind::Codec, format!("the codec {:?} could not encode the payload", codec.name()))
            .with_source(e)
    })?;
    Ok(Draft { fields }.encoded(codec.name(), encoded)?.fields)
}

impl<DB: Dialect> Store<DB> {
    /// The names of the codecs that it decodes with.
    pub fn codecs(&self) -> impl Iterator<Item = &str> {
        self.statements().codecs.all().map(|codec| codec.name())
    }

    /// The message as it was before its payload was encoded. One that was not is itself. The consumer runtime does
    /// it before it runs a handler; messages that the store gives out, dead letters among them, are as they are
    /// kept.
    ///
    /// # Errors
    /// This store has no codec of that name, or the codec cannot decode it. Neither goes away by trying again.
    pub fn decode<'m>(&self, message: &'m Message) -> Result<Cow<'m, Message>, DecodeError> {
        let Some(name) = message.header(header::CODEC) else { return Ok(Cow::Borrowed(message)) };
        let Some(codec) = self.statements().codecs.named(name) else {
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

/// Names alone: a codec may hold keys.
impl fmt::Debug for Codecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().map(|codec| codec.name())).finish()
    }
}
