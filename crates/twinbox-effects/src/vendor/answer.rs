//! How a vendor's answer is read.
use super::{Applied, ErrorCode, VendorError, profile::VendorProfile, retry_after};
use bytes::Bytes;
use http::HeaderMap;
use std::time::{Duration, SystemTime};

/// The longest pause that is believed. A longer one is a fault, and would close the vendor for years.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most bytes of a reference that are kept.
const REFERENCE_BYTES_MAX: usize = 255;

/// A response of a vendor, with as much of its body as was read.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The beginning of the body.
    pub body: Bytes,
}

impl VendorProfile {
    /// Reads a response: whether the vendor acted, and whether another try can help.
    ///
    /// The vendor's own hint about another try comes first, then its codes, then the status.
    ///
    /// # Errors
    /// The vendor did nothing, or may have acted.
    pub fn read(&self, response: &Response) -> Result<Applied, VendorError> {
        let Response { status, headers, body } = response;
        let says =
            |header: Option<&str>| header.and_then(|name| headers.get(name)).map(|value| value == "true");
        let is_replayed = says(self.replayed) == Some(true);
        let is = |signs: &[super::Sign]| signs.iter().any(|sign| sign.is_of(*status, body));
        if (200..300).contains(status) || is(self.duplicates) {
            let is_duplicate = is_replayed || is(self.duplicates);
            return Ok(Applied {
                provider_ref: self.reference(body),
                is_duplicate,
                http_code: Some(*status),
            });
        }
        let text = |what: &str| format!("the vendor answered {status}: {what}");
        let not_applied = |code: ErrorCode, what| VendorError::not_applied(code, text(what));
        let maybe_applied = |code: ErrorCode, what| VendorError::maybe_applied(code, text(what));
        let error = match status {
            _ if is(self.mismatches) => {
                maybe_applied(ErrorCode::PayloadMismatch, "the key was used for another request")
            }
            _ if is(self.in_progress) => {
                maybe_applied(ErrorCode::InProgress, "an earlier try with this key is under way")
            }
            429 => not_applied(ErrorCode::RateLimited, "too many calls"),
            401 | 403 | 407 => not_applied(ErrorCode::Auth, "the credentials were refused"),
            500..=599 if self.keeps_failures && is_replayed => {
                maybe_applied(ErrorCode::Indeterminate, "it repeats a failure, whatever it did before that")
            }
            503 => maybe_applied(ErrorCode::Unavailable, "it cannot work now"),
            504 => maybe_applied(ErrorCode::Timeout, "it did not finish in time"),
            500..=599 => maybe_applied(ErrorCode::Unavailable, "it failed"),
            _ if self.retryable.contains(status) => {
                maybe_applied(ErrorCode::Unavailable, "it asks to try again")
            }
            307 | 308 => not_applied(ErrorCode::Validation, "redirects are not followed"),
            // Many answer a `POST` so after they have acted.
            300..=399 => maybe_applied(ErrorCode::Indeterminate, "redirects are not followed"),
            _ => not_applied(ErrorCode::Validation, "the request was refused"),
        };
        let hinted = says(self.retry_hint).unwrap_or(error.is_retryable());
        let pause = retry_after(headers, SystemTime::now()).map(|pause| pause.min(RETRY_AFTER_MAX));
        Err(error.retryable(hinted).status(*status).retry_after(pause))
    }

    fn reference(&self, body: &[u8]) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        let text = match body.pointer(self.reference?)? {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some(text[..text.floor_char_boundary(REFERENCE_BYTES_MAX)].to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::{Certainty, profiles};

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &'static str) -> Response {
        let headers = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
        });
        Response { status, headers: headers.collect(), body: Bytes::from_static(body.as_bytes()) }
    }

    /// R30, R40, D4
    #[test]
    fn an_answer_is_read_as_the_vendor_means_it() {
        use Certainty::{MaybeApplied, NotApplied};
        use ErrorCode as Code;
        let replayed = [("idempotent-replayed", "true")];
        for (profile, response, code, certainty, is_retryable) in [
            (&profiles::STRIPE_V1, answer(400, &[], "{}"), Code::Validation, NotApplied, false),
            (&profiles::STRIPE_V1, answer(402, &[], "{}"), Code::Validation, NotApplied, false),
            (&profiles::STRIPE_V1, answer(401, &[], ""), Code::Auth, NotApplied, false),
            (&profiles::STRIPE_V1, answer(409, &[], ""), Code::InProgress, MaybeApplied, true),
            (&profiles::STRIPE_V1, answer(429, &[], ""), Code::RateLimited, NotApplied, true),
            (&profiles::STRIPE_V1, answer(500, &[], ""), Code::Unavailable, MaybeApplied, true),
            (&profiles::STRIPE_V1, answer(500, &replayed, ""), Code::Indeterminate, MaybeApplied, false),
            (&profiles::STRIPE_V2, answer(500, &replayed, ""), Code::Unavailable, MaybeApplied, true),
            (&profiles::STRIPE_V1, answer(504, &[], ""), Code::Timeout, MaybeApplied, true),
            (
                &profiles::STRIPE_V1,
                answer(500, &[("stripe-should-retry", "false")], ""),
                Code::Unavailable,
                MaybeApplied,
                false,
            ),
            (
                &profiles::STRIPE_V1,
                answer(400, &[], r#"{"error":{"type":"idempotency_error"}}"#),
                Code::PayloadMismatch,
                MaybeApplied,
                false,
            ),
            (
                &profiles::RESEND,
                answer(409, &[], r#"{"name":"concurrent_idempotent_requests"}"#),
                Code::InProgress,
                MaybeApplied,
                true,
            ),
            (
                &profiles::RESEND,
                answer(409, &[], r#"{"name":"invalid_idempotent_request"}"#),
                Code::PayloadMismatch,
                MaybeApplied,
                false,
            ),
            (&profiles::PAYPAL, answer(408, &[], ""), Code::Unavailable, MaybeApplied, true),
            (&profiles::RESEND, answer(408, &[], ""), Code::Validation, NotApplied, false),
            (&profiles::RESEND, answer(307, &[("location", "/")], ""), Code::Validation, NotApplied, false),
            (
                &profiles::RESEND,
                answer(303, &[("location", "/")], ""),
                Code::Indeterminate,
                MaybeApplied,
                false,
            ),
        ] {
            let error = profile.read(&response).unwrap_err();
            let found = (error.code(), error.certainty(), error.is_retryable());
            assert_eq!(found, (code, certainty, is_retryable), "{}: {response:?}", profile.name);
        }
        let limited = profiles::RESEND.read(&answer(429, &[("retry-after", "7")], "")).unwrap_err();
        assert_eq!(limited.earliest_retry(), Some(Duration::from_secs(7)));
        let absurd = profiles::RESEND.read(&answer(429, &[("retry-after", "99999999999")], "")).unwrap_err();
        assert_eq!(absurd.earliest_retry(), Some(RETRY_AFTER_MAX));
    }

    /// R72
    #[test]
    fn a_repeated_answer_is_a_duplicate() {
        let first = profiles::STRIPE_V1.read(&answer(200, &[], r#"{"id":"ch_1"}"#)).unwrap();
        assert_eq!(first, Applied { http_code: Some(200), ..Applied::new().provider_ref("ch_1") });
        let again = [("idempotent-replayed", "true")];
        assert!(profiles::STRIPE_V1.read(&answer(200, &again, "")).unwrap().is_duplicate);
        let brevo = profiles::BREVO.read(&answer(400, &[], r#"{"code":"duplicate_parameter"}"#)).unwrap();
        assert!(brevo.is_duplicate && brevo.provider_ref.is_none());
    }
}
