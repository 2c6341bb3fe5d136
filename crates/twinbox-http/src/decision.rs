//! A response decides whether the handler's writes commit, whether the response is stored, and who may use
//! the idempotency key again.
use axum::{
    http::StatusCode,
    response::{IntoResponseParts, ResponseParts},
};
use std::convert::Infallible;

/// Decides whether the handler's writes commit and whether its response is stored.
///
/// By default the status of the response decides. A handler that needs something else adds a decision to its
/// response:
///
/// ```
/// use axum::{http::StatusCode, response::IntoResponse};
/// use twinbox_http::Decision;
///
/// fn account_closed() -> impl IntoResponse {
///     (StatusCode::PAYMENT_REQUIRED, Decision::RejectAndStore, "the account is closed")
/// }
/// # account_closed().into_response();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Decision {
    /// Commits the writes and stores the response. The default for `2xx` and `3xx`.
    Commit,
    /// Rolls the writes back and stores the response: the same request gets the same response again.
    ///
    /// The default for `4xx` on routes that [store errors](crate::Idempotency::store_errors), except for
    /// `401`, `403`, `413`, `415`, `425` and `429`, which another caller or a later attempt need not get.
    RejectAndStore,
    /// Rolls the writes back and frees the key, because the next attempt may succeed. The default for other
    /// `4xx`.
    Reject,
    /// Rolls the writes back and stores nothing, after a failure of the service. The default for `5xx`,
    /// `408`, a panic, and any status that has no other default.
    ///
    /// Without a lease any request may use the key again. With a lease only the same request may.
    Fail,
}

impl Decision {
    /// Returns the decision for a response without one.
    pub(crate) fn by_status(status: StatusCode, stores_errors: bool) -> Self {
        use StatusCode as S;
        // They depend on the caller's credentials, on the time, or on a limit in front of the handler.
        let never_stored = [
            S::UNAUTHORIZED,
            S::FORBIDDEN,
            S::TOO_EARLY,
            S::TOO_MANY_REQUESTS,
            S::PAYLOAD_TOO_LARGE,
            S::UNSUPPORTED_MEDIA_TYPE,
        ];
        match status.as_u16() {
            // A time-out inside the service: how far the handler got is unknown.
            408 => Self::Fail,
            200..=399 => Self::Commit,
            400..=499 if stores_errors && !never_stored.contains(&status) => Self::RejectAndStore,
            400..=499 => Self::Reject,
            _ => Self::Fail,
        }
    }
}

impl IntoResponseParts for Decision {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D7, R60, R63
    #[test]
    fn the_status_decides() {
        let decide =
            |status, stores_errors| Decision::by_status(StatusCode::from_u16(status).unwrap(), stores_errors);
        for status in [200, 201, 204, 303, 304] {
            assert_eq!([decide(status, true), decide(status, false)], [Decision::Commit; 2], "{status}");
        }
        for status in [400, 402, 404, 409, 422] {
            assert_eq!(
                [decide(status, true), decide(status, false)],
                [Decision::RejectAndStore, Decision::Reject],
                "{status}"
            );
        }
        for status in [401, 403, 413, 415, 425, 429] {
            assert_eq!([decide(status, true), decide(status, false)], [Decision::Reject; 2], "{status}");
        }
        for status in [100, 101, 408, 500, 502, 503, 504, 599, 999] {
            assert_eq!([decide(status, true), decide(status, false)], [Decision::Fail; 2], "{status}");
        }
    }
}
