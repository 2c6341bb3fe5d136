//! Puts the idempotency key into a request.
use super::{ErrorCode, KeyPlace, VendorError, VendorProfile};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use std::str::FromStr as _;

impl VendorProfile {
    /// Puts a key where the vendor expects it.
    pub(crate) fn place(&self, key: &str, request: &mut Request<Bytes>) -> Result<(), VendorError> {
        let refuse = |what: &str| VendorError::not_sent(ErrorCode::Validation, what);
        match self.key {
            KeyPlace::Header(name) => {
                let name = HeaderName::from_str(name).map_err(|_| refuse("a header cannot be sent"))?;
                let value = HeaderValue::from_str(key).map_err(|_| refuse("a header cannot be sent"))?;
                request.headers_mut().insert(name, value);
            }
            KeyPlace::Body(pointer) => {
                *request.body_mut() = with_member(request.body(), pointer, key)
                    .ok_or_else(|| refuse("the body is no JSON object"))?;
            }
            KeyPlace::Nowhere => {}
        }
        Ok(())
    }
}

/// The JSON object with a text at a pointer. `None`: it is no JSON object, or something else is in the way.
fn with_member(body: &[u8], pointer: &str, text: &str) -> Option<Bytes> {
    let mut body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let mut at = &mut body;
    for name in pointer.split('/').skip(1) {
        at = at
            .as_object_mut()?
            .entry(name.replace("~1", "/").replace("~0", "~"))
            .or_insert_with(|| serde_json::Value::Object(serde_json::Map::new()));
    }
    *at = text.into();
    serde_json::to_vec(&body).ok().map(Bytes::from)
}
