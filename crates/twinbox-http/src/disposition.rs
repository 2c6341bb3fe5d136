//! What becomes of what a handler wrote.
use axum::{
    http::StatusCode,
    response::{IntoResponseParts, ResponseParts},
};
use std::convert::Infallible;

/// What becomes of what a handler wrote, and of the key. By default the status of its response says it; a handler that
/// means something else puts this into its answer: `(StatusCode::PAYMENT_REQUIRED, Disposition::RejectKeep, …)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Disposition {
    /// All of it is committed, and the answer is kept. Of `2xx` and `3xx`.
    Commit,
    /// Nothing that was written stays, but the answer is kept: the same request gets the same refusal again. Of `4xx` on
    /// routes that [keep errors](crate::Idempotency::keep_errors), if the handler decided it.
    RejectKeep,
    /// Nothing stays and the key is free: what was missing may be there at the next try. Of other `4xx`.
    Reject,
    /// As [`Reject`](Self::Reject), after a failure of the service. A key that is held by a lease stays that request's. Of
    /// `5xx` and `408`, and of a panic.
    Fault,
}

impl Disposition {
    /// What is temporary, or a matter of who asks, is never kept.
    pub(crate) fn of(status: StatusCode, errors_kept: bool) -> Self {
        use StatusCode as S;
        let passes = [
            S::UNAUTHORIZED,
            S::FORBIDDEN,
            S::TOO_EARLY,
            S::TOO_MANY_REQUESTS,
            S::PAYLOAD_TOO_LARGE,
            S::UNSUPPORTED_MEDIA_TYPE,
        ];
        match status.as_u16() {
            // Nobody knows how far it has come.
            408 => Self::Fault,
            200..=399 => Self::Commit,
            400..=499 if errors_kept && !passes.contains(&status) => Self::RejectKeep,
            400..=499 => Self::Reject,
            _ => Self::Fault,
        }
    }
}

impl IntoResponseParts for Disposition {
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
    fn the_status_says_what_becomes_of_it() {
        let of = |status, errors_kept| Disposition::of(StatusCode::from_u16(status).unwrap(), errors_kept);
        for status in [200, 201, 204, 303, 304] {
            assert_eq!([of(status, true), of(status, false)], [Disposition::Commit; 2], "{status}");
        }
        for status in [400, 402, 404, 409, 422] {
            assert_eq!(
                [of(status, true), of(status, false)],
                [Disposition::RejectKeep, Disposition::Reject],
                "{status}"
            );
        }
        for status in [401, 403, 413, 415, 425, 429] {
            assert_eq!([of(status, true), of(status, false)], [Disposition::Reject; 2], "{status}");
        }
        for status in [100, 101, 408, 500, 502, 503, 504, 599, 999] {
            assert_eq!([of(status, true), of(status, false)], [Disposition::Fault; 2], "{status}");
        }
    }
}
