//! The vendor that sends webhooks.
use super::{
    endpoint::{Endpoint, Endpoints},
    guarded::{GuardedService, refusal},
};
use crate::{
    side_effect::SideEffect,
    vendor::{
        Applied, ErrorCode, Recovery, Response, SendError, Vendor, VendorCall, VendorError, VendorProfile,
        retry_after,
    },
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header::CONTENT_TYPE};
use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tower::ServiceExt as _;
use twinbox_core::BoxFuture;

/// The name of the vendor that effects with webhooks choose.
pub const WEBHOOK_VENDOR: &str = "webhook";

/// The longest pause that a receiver may ask for, which is the longest one of the schedule.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// The same webhook may come twice, with the same id.
const PROFILE: VendorProfile = VendorProfile {
    sources: &["https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md"],
    as_of: "2026-11-24",
    is_verified: true,
    ..VendorProfile::new("webhook", Recovery::AtLeastOnce)
};

/// Sends webhooks as [Standard Webhooks](https://www.standardwebhooks.com) describes it.
///
/// An effect of the kind `webhook.<type>:<endpoint>` goes to the endpoint with that id. Its body is sent as
/// it was planned. The header `webhook-id` is the id of the effect, the same for all tries, so that the
/// receiver recognizes a repeated one. `webhook-timestamp` is the time of the try, and `webhook-signature`
/// has a signature for each secret of the endpoint.
///
/// Any answer but `2xx` is a failure, redirects included. `410` disables the endpoint. Each endpoint has a
/// circuit breaker of its own, so one that is away delays no other. While it is open, effects wait and their
/// tries do not count: disable an endpoint that is away for good, and its effects fail.
pub struct WebhookVendor<E> {
    endpoints: E,
    service: GuardedService,
}

impl<E: Endpoints> WebhookVendor<E> {
    /// Creates the vendor with the name `webhook`. Give it to the dispatcher with
    /// [`options`](super::options).
    pub fn new(endpoints: E, service: GuardedService) -> Self {
        Self { endpoints, service }
    }

    async fn deliver(&self, effect: &SideEffect) -> Result<Applied, VendorError> {
        // Nothing was sent, but an answer of the application closes the breaker of the endpoint.
        let refuse = |what: &str| VendorError::not_applied(ErrorCode::Validation, what);
        let id = endpoint_id(effect)
            .ok_or_else(|| refuse("a webhook has a kind such as webhook.paid:ep_42, with its endpoint"))?;
        let found = self.endpoints.find(id).await.map_err(|error| {
            VendorError::not_sent(ErrorCode::Transient, "the endpoint could not be looked up")
                .with_source(error)
        })?;
        let endpoint = found.ok_or_else(|| refuse("there is no such endpoint"))?;
        if endpoint.is_disabled {
            return Err(refuse("the endpoint is disabled"));
        }
        let request = request(&endpoint, effect, SystemTime::now())?;
        let response = self.service.clone().oneshot(request).await.map_err(failed)?;
        let read = read(&response);
        if response.status == 410 {
            let disabled = self.endpoints.disable(id).await;
            let error = disabled.as_ref().err().map(|error| &**error as &dyn std::error::Error);
            tracing::warn!(endpoint = id, error, "the endpoint of a webhook is gone: it is disabled");
        }
        read
    }
}

/// The qualifier of the kind.
fn endpoint_id(effect: &SideEffect) -> Option<&str> {
    effect.kind.split_once(':').map(|(_, endpoint)| endpoint).filter(|endpoint| !endpoint.is_empty())
}

fn request(endpoint: &Endpoint, effect: &SideEffect, now: SystemTime) -> Result<Request<Bytes>, VendorError> {
    let refuse = |what: &str| VendorError::not_applied(ErrorCode::Validation, what);
    let url = reqwest::Url::parse(&endpoint.url).map_err(|_| refuse("the URL of the endpoint is no URL"))?;
    let uri: Uri = url.as_str().parse().map_err(|_| refuse("the URL of the endpoint is no URL"))?;
    let (id, body) = (effect.id.to_string(), effect.request.body.clone());
    let signed_at_s = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let signatures = endpoint.secrets.iter().map(|secret| secret.sign(&id, signed_at_s, &body));
    let signatures = Vec::from_iter(signatures).join(" ");
    let mut request = Request::new(body);
    (*request.method_mut(), *request.uri_mut()) = (Method::POST, uri);
    let headers = &effect.request.headers;
    let mut all = vec![(CONTENT_TYPE.as_str(), effect.request.content_type.as_str())];
    all.extend(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    // Last, so that no header of the request replaces one.
    let signed_at_s = signed_at_s.to_string();
    all.extend([
        ("webhook-id", &*id),
        ("webhook-timestamp", &signed_at_s),
        ("webhook-signature", &signatures),
    ]);
    for (name, value) in all {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse("a header cannot be sent"))?;
        let value = HeaderValue::from_str(value).map_err(|_| refuse("a header cannot be sent"))?;
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}

/// Reads an answer. Whatever is no success may be repaired by the receiver, within the schedule.
fn read(response: &Response) -> Result<Applied, VendorError> {
    let status = response.status;
    if (200..300).contains(&status) {
        return Ok(Applied { http_code: Some(status), ..Applied::new() });
    }
    let text = |what: &str| format!("the endpoint answered {status}: {what}");
    let error = match status {
        410 => VendorError::not_applied(ErrorCode::Validation, text("it is gone")),
        300..=399 => VendorError::not_applied(ErrorCode::Unavailable, text("redirects are not followed")),
        504 => VendorError::maybe_applied(ErrorCode::Timeout, text("it did not finish in time")),
        500..=599 => VendorError::maybe_applied(ErrorCode::Unavailable, text("it failed")),
        // Counted like the others: nobody may keep webhooks here for ever.
        429 => VendorError::not_applied(ErrorCode::Unavailable, text("too many calls")),
        _ => VendorError::not_applied(ErrorCode::Unavailable, text("it was refused")),
    };
    let pause = retry_after(&response.headers, SystemTime::now()).map(|pause| pause.min(RETRY_AFTER_MAX));
    Err(error.status(status).retry_after(pause))
}

fn failed(error: SendError) -> VendorError {
    match refusal(&error) {
        Some(refused) if refused.is_final() => {
            VendorError::not_applied(ErrorCode::Validation, refused.to_string())
        }
        Some(refused) => VendorError::not_sent(ErrorCode::Unavailable, refused.to_string()),
        None => error.into(),
    }
}

impl<E: Endpoints> Vendor for WebhookVendor<E> {
    fn name(&self) -> &str {
        WEBHOOK_VENDOR
    }

    fn profile(&self) -> &VendorProfile {
        &PROFILE
    }

    fn operation<'a>(&self, effect: &'a SideEffect) -> &'a str {
        endpoint_id(effect).unwrap_or_default()
    }

    fn pauses_as_one(&self) -> bool {
        false
    }

    fn send<'a>(&'a self, call: &'a VendorCall) -> BoxFuture<'a, Result<Applied, VendorError>> {
        Box::pin(self.deliver(&call.effect))
    }
}

impl<E> fmt::Debug for WebhookVendor<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookVendor").field("service", &self.service).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::Certainty;
    use http::HeaderMap;

    fn answer(status: u16, retry_after: Option<&str>) -> Response {
        let headers = retry_after.map(|value| (http::header::RETRY_AFTER, value.parse().unwrap()));
        Response { status, headers: HeaderMap::from_iter(headers), body: Bytes::new() }
    }

    #[test]
    fn only_gone_is_final() {
        assert!([200, 204, 299].iter().all(|status| read(&answer(*status, None)).is_ok()));
        for status in [301, 307, 400, 401, 404, 408, 409, 429, 500, 502, 503, 504, 599] {
            let error = read(&answer(status, None)).unwrap_err();
            // A code that is retryable: an effect in doubt is decided by the stored one.
            assert!(error.is_retryable() && error.code().is_retryable(), "{status}");
        }
        let gone = read(&answer(410, None)).unwrap_err();
        assert_eq!((gone.is_retryable(), gone.certainty()), (false, Certainty::NotApplied));
    }

    #[test]
    fn a_receiver_cannot_keep_a_webhook_for_ever() {
        let pause = |text| read(&answer(503, Some(text))).unwrap_err().earliest_retry();
        assert_eq!(pause("7"), Some(Duration::from_secs(7)));
        assert_eq!(pause("99999999999"), Some(RETRY_AFTER_MAX));
        assert_ne!(read(&answer(429, Some("7"))).unwrap_err().code(), ErrorCode::RateLimited);
    }
}
