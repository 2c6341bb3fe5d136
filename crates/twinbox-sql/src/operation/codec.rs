//! The bodies of responses, through the codecs of the store.
use super::{key::OperationKey, response::OperationResponse};
use crate::{
    Error,
    catalog::Catalog,
    codecs::{decode_bytes, encode_bytes},
    text::text,
};
use twinbox_core::{PayloadContext, PayloadPurpose};

const WHAT: &str = "the response of an operation";

/// The owner of a response, by the row of its key.
pub(super) struct ResponseKey {
    pub(super) slot: [u8; 32],
    /// The slot tells it too, unless the callers of a tenant share their keys.
    pub(super) principal: String,
}

impl ResponseKey {
    pub(super) fn of(key: &OperationKey) -> Self {
        Self { slot: key.slot(), principal: text(&key.principal).into_owned() }
    }

    /// The context to which the body of a response is bound.
    fn context<'a>(&'a self, service: &'a str, response: &'a OperationResponse) -> PayloadContext<'a> {
        PayloadContext::new(PayloadPurpose::Response, service, None)
            .bind("slot", Some(&self.slot[..]))
            .bind("principal", Some(self.principal.as_bytes()))
            .bind("status", Some(response.status().as_bytes()))
            .bind("http_code", Some(response.code.to_string().into_bytes()))
            .bind("response_headers", Some(&response.headers[..]))
    }
}

/// Encodes the body of a response, and returns the headers that a codec needs to decode it.
pub(super) fn encode(
    catalog: &Catalog,
    key: &ResponseKey,
    response: &OperationResponse,
    body: &[u8],
) -> Result<(Vec<u8>, Option<String>), Error> {
    encode_bytes(&catalog.codecs, &key.context(&catalog.service, response), body, WHAT)
}

/// Decodes the body of a response.
pub(super) fn decode(
    catalog: &Catalog,
    key: &ResponseKey,
    response: &OperationResponse,
    body: Vec<u8>,
    headers: Option<String>,
) -> Result<Vec<u8>, Error> {
    decode_bytes(&catalog.codecs, &key.context(&catalog.service, response), body, headers, WHAT)
}
