//! Problem responses (RFC 9457) with an error code and whether a retry can succeed.
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use serde_json::json;
use std::sync::Arc;

/// Why a request failed or was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    MissingKey,
    /// With the reason.
    InvalidKey(String),
    /// The key was used for another request.
    Mismatch,
    InProgress,
    BodyTooLarge,
    BodyIncomplete,
    /// The body did not arrive in time.
    BodyTooSlow,
    /// The bodies that have not arrived whole take as much memory as they may.
    TooManyBodies,
    /// No secret matches the signature of a webhook. The details are only logged: a forger could use them.
    WebhookUnverified,
    StoreUnavailable,
    /// The commit of a request without a key may have succeeded, or its handler has committed a part by
    /// itself. The request is not repeated.
    UnknownOutcome,
    /// The handler did not write in the transaction of the key.
    TransactionUnused,
    Failed,
    /// The handler did not respond before the route's time-out.
    TimedOut,
    /// The request used all its attempts.
    Exhausted,
    /// The caller has as many keys as it may have.
    TooManyKeys,
    /// The service is not set up to handle the request or to read the stored response.
    Misconfigured,
}

/// Decides how the `error_code` of a problem response is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CodeStyle {
    /// Spells error codes like `CONFLICT.idempotency.payload_mismatch`.
    #[default]
    Taxonomy,
    /// Spells error codes like `idempotency_key_payload_mismatch`.
    Flat,
}

/// The status of a request whose key was used for another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MismatchStatus {
    /// Responds with `409 Conflict`: the key is in use.
    #[default]
    Conflict,
    /// Responds with `422 Unprocessable Content`: the request and its key do not belong together.
    UnprocessableContent,
    /// Responds with `400 Bad Request`.
    BadRequest,
}

/// How a route renders its problems.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProblemStyle {
    pub(crate) codes: CodeStyle,
    pub(crate) mismatch: MismatchStatus,
    /// A page that explains each problem under its flat code.
    pub(crate) docs_url: Option<Arc<str>>,
}

/// The fixed parts of a problem. Clients may depend on all of them.
struct Template<'p> {
    status: StatusCode,
    taxonomy: &'static str,
    flat: &'static str,
    title: &'static str,
    detail: &'p str,
}

impl Problem {
    fn template(&self) -> Template<'_> {
        let (status, taxonomy, flat, title, detail) = match self {
            Self::MissingKey => (
                StatusCode::BAD_REQUEST,
                "VALIDATION.idempotency.missing_key",
                "missing_idempotency_key",
                "This request needs an Idempotency-Key",
                "Send the header `Idempotency-Key` with a value of your own, the same on every retry of \
                this request.",
            ),
            Self::InvalidKey(reason) => (
                StatusCode::BAD_REQUEST,
                "VALIDATION.idempotency.invalid_key",
                "invalid_idempotency_key",
                "The Idempotency-Key is not taken",
                &**reason,
            ),
            Self::Mismatch => (
                StatusCode::CONFLICT,
                "CONFLICT.idempotency.payload_mismatch",
                "idempotency_key_payload_mismatch",
                "The Idempotency-Key was used for another request",
                "A new request needs a new key; a retry must be the same request.",
            ),
            Self::InProgress => (
                StatusCode::CONFLICT,
                "CONFLICT.idempotency.in_progress",
                "idempotency_key_in_progress",
                "A request with this Idempotency-Key is in progress",
                "Try again with the same key.",
            ),
            Self::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "VALIDATION.idempotency.body_too_large",
                "body_too_large",
                "The request is too large",
                "Send less at a time.",
            ),
            Self::BodyIncomplete => (
                StatusCode::BAD_REQUEST,
                "VALIDATION.idempotency.body_broken",
                "body_broken",
                "The request broke off",
                "Send it whole.",
            ),
            Self::BodyTooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                "TRANSIENT.idempotency.body_slow",
                "body_slow",
                "The request did not arrive in time",
                "Send it again, without a pause.",
            ),
            Self::TooManyBodies => (
                StatusCode::SERVICE_UNAVAILABLE,
                "TRANSIENT.idempotency.too_many_bodies",
                "too_many_bodies",
                "Too many requests are arriving",
                "Try again with the same key.",
            ),
            Self::UnknownOutcome => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL.idempotency.unknown_outcome",
                "unknown_outcome",
                "Whether the request was done is not known",
                "Look for what it makes before you ask for it again.",
            ),
            Self::WebhookUnverified => (
                StatusCode::UNAUTHORIZED,
                "AUTH.webhook.not_signed",
                "webhook_not_signed",
                "The webhook is not signed as it should be",
                "Sign it with a secret that is in force, and with the time of now.",
            ),
            Self::StoreUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "DEPENDENCY.unavailable",
                "service_unavailable",
                "The request was not begun, or its outcome is not known yet",
                "Try again with the same key.",
            ),
            Self::TransactionUnused => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL.idempotency.not_used",
                "idempotency_not_used",
                "The request was not handled",
                "This is a fault of the service: its handler does not write in the transaction of the key.",
            ),
            Self::Failed => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "TRANSIENT.internal",
                "internal_error",
                "The request failed",
                "Try again with the same key.",
            ),
            Self::TimedOut => (
                StatusCode::GATEWAY_TIMEOUT,
                "TRANSIENT.timeout",
                "timed_out",
                "The request took too long",
                "Try again with the same key.",
            ),
            Self::Exhausted => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL.idempotency.attempts_exhausted",
                "attempts_exhausted",
                "The request failed too often",
                "It is not tried again. How far it has come has to be looked at.",
            ),
            Self::Misconfigured => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL.idempotency.misconfigured",
                "idempotency_misconfigured",
                "The request was not handled",
                "This is a fault of the service, and its log tells which.",
            ),
            Self::TooManyKeys => (
                StatusCode::TOO_MANY_REQUESTS,
                "RATE_LIMIT.exceeded",
                "too_many_idempotency_keys",
                "Too many requests with new Idempotency-Keys",
                "Try again with the same key when earlier ones have expired.",
            ),
        };
        Template { status, taxonomy, flat, title, detail }
    }

    /// The header `Retry-After`, in seconds. `None` if a retry cannot succeed.
    const fn retry_after(&self) -> Option<&'static str> {
        match self {
            Self::InProgress
            | Self::StoreUnavailable
            | Self::BodyTooSlow
            | Self::TooManyBodies
            | Self::Failed
            | Self::TimedOut => Some("1"),
            Self::TooManyKeys => Some("60"),
            _ => None,
        }
    }

    pub(crate) fn code(&self, style: CodeStyle) -> &'static str {
        let template = self.template();
        if style == CodeStyle::Taxonomy { template.taxonomy } else { template.flat }
    }

    /// Renders the problem in the default style and attaches it, so that the layer can render it again in the
    /// style of its route.
    pub(crate) fn handler_response(self) -> Response<Body> {
        let mut response = self.response(&ProblemStyle::default(), None);
        response.extensions_mut().insert(self);
        response
    }

    /// Renders the problem. `path` is the request's.
    pub(crate) fn response(&self, style: &ProblemStyle, path: Option<&str>) -> Response<Body> {
        let Template { status, flat, title, detail, .. } = self.template();
        let status = match style.mismatch {
            MismatchStatus::UnprocessableContent if *self == Self::Mismatch => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            MismatchStatus::BadRequest if *self == Self::Mismatch => StatusCode::BAD_REQUEST,
            _ => status,
        };
        let docs = style.docs_url.as_ref().map(|url| format!("{url}#{flat}"));
        let mut body = json!({
            "type": docs.clone().unwrap_or_else(|| format!("urn:twinbox:problem:{flat}")),
            "title": title,
            "status": status.as_u16(),
            "detail": detail,
            "error_code": self.code(style.codes),
            "retryable": self.retry_after().is_some(),
        });
        if let Some(path) = path {
            body["instance"] = path.into();
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let link = docs.and_then(|docs| HeaderValue::try_from(format!("<{docs}>; rel=\"describedby\"")).ok());
        if let Some(link) = link {
            headers.insert(header::LINK, link);
        }
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}
