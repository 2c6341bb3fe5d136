//! What callers are told when nothing is done: problem details (RFC 9457) with a code and whether to try again.
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use serde_json::json;
use std::sync::Arc;

/// Why a request was answered without running its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    MissingKey,
    /// What is wrong with it.
    InvalidKey(String),
    Mismatch,
    InProgress,
    BodyTooLarge,
    BodyBroken,
    /// A webhook that nobody who may has signed. What is wrong with it is for the log alone.
    NotSigned,
    StoreAway,
    /// A request without a key may be written, and cannot be asked again.
    Unknown,
    /// The handler did not write in the transaction of the key.
    NotUsed,
    Failed,
    /// The handler has not answered within the route's time limit.
    TimedOut,
    /// For the last time.
    Exhausted,
    /// The caller has as many keys as it may have.
    TooManyKeys,
    /// The service is not set up to handle it, or to read what it answered before.
    Misconfigured,
}

/// How codes are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CodeStyle {
    /// `CONFLICT.idempotency.payload_mismatch`
    #[default]
    Taxonomy,
    /// `idempotency_key_payload_mismatch`
    Flat,
}

/// The status of a request whose key was used for another one. Keys that are taken are conflicts to some, and requests that
/// make no sense to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MismatchStatus {
    /// `409`
    #[default]
    Conflict,
    /// `422`
    UnprocessableContent,
    /// `400`
    BadRequest,
}

/// How callers of a route are told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wording {
    pub(crate) codes: CodeStyle,
    pub(crate) mismatch: MismatchStatus,
    /// The page that explains the problems, each under its name.
    pub(crate) docs_url: Option<Arc<str>>,
}

impl Problem {
    /// Status, code in both styles, title, what to do.
    fn parts(&self) -> (StatusCode, &'static str, &'static str, &'static str, &str) {
        match self {
            Self::MissingKey => (
                StatusCode::BAD_REQUEST,
                "VALIDATION.idempotency.missing_key",
                "missing_idempotency_key",
                "This request needs an Idempotency-Key",
                "Send the header `Idempotency-Key` with a value of your own, the same on every retry of this request.",
            ),
            Self::InvalidKey(reason) => (
                StatusCode::BAD_REQUEST,
                "VALIDATION.idempotency.invalid_key",
                "invalid_idempotency_key",
                "The Idempotency-Key is not taken",
                reason,
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
            Self::BodyBroken => (
                StatusCode::BAD_REQUEST,
                "VALIDATION.idempotency.body_broken",
                "body_broken",
                "The request broke off",
                "Send it whole.",
            ),
            Self::Unknown => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL.idempotency.unknown_outcome",
                "unknown_outcome",
                "Whether the request was done is not known",
                "Look for what it makes before you send it again. With an Idempotency-Key it could be sent again at once.",
            ),
            Self::NotSigned => (
                StatusCode::UNAUTHORIZED,
                "AUTH.webhook.not_signed",
                "webhook_not_signed",
                "The webhook is not signed as it should be",
                "Sign it with a secret that is in force, and with the time of now.",
            ),
            Self::StoreAway => (
                StatusCode::SERVICE_UNAVAILABLE,
                "DEPENDENCY.unavailable",
                "service_unavailable",
                "The request was not begun, or its outcome is not known yet",
                "Try again with the same key.",
            ),
            Self::NotUsed => (
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
                "The request failed and changed nothing",
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
        }
    }

    /// In whole seconds. None: trying again does not help.
    const fn retry_after(&self) -> Option<&'static str> {
        match self {
            Self::InProgress | Self::StoreAway | Self::Failed | Self::TimedOut => Some("1"),
            Self::TooManyKeys => Some("60"),
            _ => None,
        }
    }

    pub(crate) fn code(&self, style: CodeStyle) -> &'static str {
        let (_, taxonomy, flat, ..) = self.parts();
        if style == CodeStyle::Taxonomy { taxonomy } else { flat }
    }

    /// For the layer, which knows how its route says it.
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = self.response(&Wording::default(), None);
        response.extensions_mut().insert(self);
        response
    }

    /// `path`: that of the request.
    pub(crate) fn response(&self, wording: &Wording, path: Option<&str>) -> Response<Body> {
        let (status, _, flat, title, detail) = self.parts();
        let status = match wording.mismatch {
            MismatchStatus::UnprocessableContent if *self == Self::Mismatch => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            MismatchStatus::BadRequest if *self == Self::Mismatch => StatusCode::BAD_REQUEST,
            _ => status,
        };
        let docs = wording.docs_url.as_ref().map(|url| format!("{url}#{flat}"));
        let mut body = json!({
            "type": docs.clone().unwrap_or_else(|| format!("urn:twinbox:problem:{flat}")),
            "title": title,
            "status": status.as_u16(),
            "detail": detail,
            "error_code": self.code(wording.codes),
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
