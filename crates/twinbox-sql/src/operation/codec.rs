//! The bodies of responses, through the codecs of the store.
use crate::{
    Error,
    codecs::{Codecs, decode_bytes, encode_bytes},
    text::hex,
};
use twinbox_core::PayloadContext;

const WHAT: &str = "the response of an operation";

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
    encode_bytes(codecs, &context(&hex(slot)), body, WHAT)
}

/// Decodes a body.
pub(super) fn decode(
    codecs: &Codecs,
    slot: &[u8; 32],
    body: Vec<u8>,
    headers: Option<String>,
) -> Result<Vec<u8>, Error> {
    decode_bytes(codecs, &context(&hex(slot)), body, headers, WHAT)
}
