//! The bodies of responses, through the codecs of the store.
use crate::{Error, ErrorKind, codecs::Codecs, row, text::hex};
use twinbox_core::{BoxError, PayloadContext, message::header};

/// The context of a response, in the place of a message.
fn context(slot: &str) -> PayloadContext<'_> {
    PayloadContext::new("idempotency", slot, "answer", 1, None)
}

/// Encodes a body, and returns the headers that a codec needs to decode it.
pub(super) fn encode(
    codecs: &Codecs,
    slot: &[u8; 32],
    body: &[u8],
) -> Result<(Vec<u8>, Option<String>), Error> {
    let Some(codec) = &codecs.encoder else { return Ok((body.to_vec(), None)) };
    let encoded = codec.encode(&context(&hex(slot)), body).map_err(|e| failed("encode", codec.name(), e))?;
    let (body, mut headers) = encoded.into_parts();
    headers.push((header::CODEC.to_owned(), codec.name().to_owned()));
    Ok((body.into(), row::headers(&headers)))
}

/// Decodes a body.
pub(super) fn decode(
    codecs: &Codecs,
    slot: &[u8; 32],
    body: Vec<u8>,
    headers: Option<String>,
) -> Result<Vec<u8>, Error> {
    let Some(headers) = headers else { return Ok(body) };
    let headers = row::read_headers(&headers);
    let name = headers.iter().find(|(name, _)| name == header::CODEC).map_or("", |(_, codec)| codec);
    let Some(codec) = codecs.named(name) else {
        return Err(failed("decode", name, "this store has no codec of that name".into()));
    };
    codec.decode(&context(&hex(slot)), &headers, &body).map_err(|e| failed("decode", name, e))
}

fn failed(what: &str, codec: &str, source: BoxError) -> Error {
    let what = format!("the codec {codec:?} could not {what} the response of an operation");
    Error::new(ErrorKind::Codec, what).with_source(source)
}
