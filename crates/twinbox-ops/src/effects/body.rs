//! The body of an effect's request, for a person.
use twinbox_core::message::header;
use twinbox_sql::{
    Error, ErrorKind,
    engine::{Catalog, EffectColumns, decode_bytes, read_headers},
};

/// The body of an effect's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectBody {
    /// The body as it is sent.
    Plain(Vec<u8>),
    /// The store has no codec that decodes the body.
    Encoded {
        /// The name of the codec that encoded it.
        codec: String,
        /// The length of the encoded body, in bytes.
        bytes: usize,
    },
}

/// Decodes a stored body, where the store can. A plain one is shown also where the store requires a codec.
pub(super) fn read(
    catalog: &Catalog,
    columns: &EffectColumns<'_>,
    body: Vec<u8>,
    codec_headers: Option<String>,
) -> Result<EffectBody, Error> {
    let headers = codec_headers.as_deref().map(read_headers).unwrap_or_default();
    let Some((_, codec)) = headers.into_iter().find(|(name, _)| name == header::CODEC) else {
        return Ok(EffectBody::Plain(body));
    };
    let (bytes, context) = (body.len(), columns.context(&catalog.service));
    match decode_bytes(&catalog.codecs, &context, body, codec_headers, "the request of a side effect") {
        Ok(plain) => Ok(EffectBody::Plain(plain)),
        Err(error) if error.kind() == ErrorKind::Codec => Ok(EffectBody::Encoded { codec, bytes }),
        Err(error) => Err(error),
    }
}
