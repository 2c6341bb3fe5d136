//! One logical call of a vendor.
use crate::vendor::{Applied, ErrorCode, Response};
use bytes::Bytes;
use http::Request;
use std::time::Duration;
use twinbox_core::limits::bounded;
use uuid::Uuid;

/// One logical call of a vendor: each try sends the same request and the same key.
#[derive(Debug)]
#[must_use]
pub struct Call {
    pub(super) operation: String,
    pub(super) request: Request<Bytes>,
    pub(super) key: Option<Uuid>,
    /// How long ago an earlier process may have sent the key. `None`: it was never sent.
    pub(super) key_age: Option<Duration>,
}

impl Call {
    /// Creates a call. `operation`, such as `charges.create`, has a circuit breaker of its own and labels
    /// metrics: use few of them, without ids.
    pub fn new(operation: impl Into<String>, request: Request<Bytes>) -> Self {
        Self { operation: operation.into(), request, key: None, key_age: None }
    }

    /// Sets the idempotency key, which the client writes as the profile of the vendor says. Without it the
    /// client makes a new one for the call.
    pub fn key(self, key: Uuid) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Says that an earlier call may have sent the key, at most so long ago. When the vendor may have
    /// forgotten it by now, the call fails with `PROVIDER.key_expired` and sends nothing.
    pub fn key_age(self, age: Duration) -> Self {
        Self { key_age: Some(bounded(age)), ..self }
    }
}

/// One try of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Try {
    /// How long the client waited before it: zero before the first.
    pub delay: Duration,
    /// The status of the response, if there was one.
    pub http_code: Option<u16>,
    /// Why it failed. `None`: it succeeded.
    pub error: Option<ErrorCode>,
}

/// The answer of a vendor that acted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Answer {
    /// The answer of a vendor that acted.
    pub applied: Applied,
    /// The response.
    pub response: Response,
    /// The number of tries, the last one included.
    pub attempts: u32,
    /// The first tries, at most 32.
    pub tries: Vec<Try>,
}
