//! Bodies of answers through the codecs of a store, which encode what it keeps.
use crate::{Error, ErrorKind, codec::Codecs, row, text::hex};
use twinbox_core::{BoxError, PayloadContext, message::header};

/// What an answer belongs to, in place of a message.
fn context(slot: &str) -> PayloadContext<'_> {
    PayloadContext::new("idempotency", slot, "answer", 1, None)
}

/// The body as it is to be kept, and the headers that say how it was encoded.
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

/// Brings back what [`encode`] was given.
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
    let what = format!("the codec {codec:?} could not {what} the answer of an operation");
    Error::new(ErrorKind::Codec, what).with_source(source)
}
