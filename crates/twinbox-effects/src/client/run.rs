//! The tries of one call.
use super::{
    call::{Answer, Call, Try},
    error::ClientError,
    guard::{Guard, Refusal},
    next::{Next, is_safe, next},
    settings::Settings,
};
use crate::{
    metrics,
    vendor::{Applied, Certainty, ErrorCode, Response, SendError, VendorError},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use tower::{Service, ServiceExt as _};
use tracing::Instrument as _;
use twinbox_core::crash;
use uuid::Uuid;

/// How long the client waits for an answer, for the vendor.
const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-request-timeout");

/// The most tries of a call that its result lists.
const TRIES_MAX: usize = 32;

pub(super) struct Run<S> {
    pub(super) service: S,
    pub(super) settings: Arc<Settings>,
    pub(super) guard: Arc<Mutex<Guard>>,
}

/// The results of the tries of a call so far.
#[derive(Default)]
struct Progress {
    attempts: u32,
    tries: Vec<Try>,
    /// How long the client waits before the next try.
    delay: Duration,
    /// An earlier try may have acted.
    is_doubtful: bool,
    last: Option<VendorError>,
}

impl Progress {
    fn note(&mut self, result: &Result<(Applied, Response), VendorError>) {
        let delay = std::mem::take(&mut self.delay);
        let (http_code, error) = match result {
            Ok((_, response)) => (Some(response.status), None),
            Err(error) => (error.http_code(), Some(error.code())),
        };
        if self.tries.len() < TRIES_MAX {
            self.tries.push(Try { delay, http_code, error });
        }
    }
}

impl<S> Run<S>
where
    S: Service<Request<Bytes>, Response = Response, Error = SendError> + Clone + Send,
    S::Future: Send,
{
    pub(super) async fn call(self, call: Call) -> Result<Answer, ClientError> {
        let operation = call.operation.clone();
        let mut progress = Progress { is_doubtful: call.key_age.is_some(), ..Progress::default() };
        let result = self.tries(call, &mut progress).await;
        let Progress { attempts, tries, .. } = progress;
        let result = result.map_err(|error| {
            let error = if progress.is_doubtful { error.in_doubt() } else { error };
            let is_safe = is_safe(&self.settings.profile, &error);
            ClientError::new(error, attempts, tries.clone(), is_safe)
        });
        let code = result.as_ref().err().map(ClientError::code);
        metrics::client_called(self.settings.profile.name, &operation, code);
        let (applied, response) = result?;
        Ok(Answer { applied, response, attempts, tries })
    }

    async fn tries(&self, call: Call, progress: &mut Progress) -> Result<(Applied, Response), VendorError> {
        let Settings { profile, retries, budget, .. } = &*self.settings;
        let deadline = Instant::now() + *budget;
        let left = || deadline.saturating_duration_since(Instant::now());
        let Call { operation, mut request, key, key_age } = call;
        if let (Some(age), Some(window)) = (key_age, profile.recovery.key_window())
            && age + *budget >= window
        {
            let what = format!(
                "an earlier call may have acted {age:?} ago, and within the budget of {budget:?} the vendor \
                 may forget its key, which it keeps for {window:?}"
            );
            return Err(VendorError::maybe_applied(ErrorCode::KeyExpired, what));
        }
        profile.place(&profile.format.format(key.unwrap_or_else(Uuid::now_v7)), &mut request)?;
        loop {
            if let Err(refusal) = self.admit(&operation, progress.attempts > 0) {
                if refusal.code == ErrorCode::RateLimited && refusal.wait < left() {
                    progress.delay += refusal.wait;
                    sleep(refusal.wait).await;
                    continue;
                }
                return Err(refused(refusal, progress.last.take()));
            }
            progress.attempts += 1;
            let result = self.try_once(&operation, &request, progress.attempts, left()).await;
            progress.note(&result);
            let error = match result {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            crash::point("client.failed");
            progress.is_doubtful |= error.certainty() == Certainty::MaybeApplied;
            let random = twinbox_core::retry::random();
            match next(profile, retries, &error, progress.attempts, left(), random) {
                Next::Stop(wait) => return Err(error.retry_after(wait)),
                Next::Retry(wait) => {
                    metrics::client_retried(profile.name, &operation, wait);
                    progress.last = Some(error);
                    progress.delay = wait;
                    sleep(wait).await;
                }
            }
        }
    }

    async fn try_once(
        &self,
        operation: &str,
        request: &Request<Bytes>,
        attempt: u32,
        left: Duration,
    ) -> Result<(Applied, Response), VendorError> {
        let Settings { profile, timeout: longest, sends_timeout, .. } = &*self.settings;
        let max = left.min(*longest);
        let mut request = request.clone();
        if *sends_timeout && let Ok(value) = HeaderValue::from_str(&format!("{}ms", max.as_millis())) {
            request.headers_mut().insert(TIMEOUT_HEADER, value);
        }
        let span = tracing::info_span!("vendor_call", vendor = profile.name, operation, attempt);
        let sending = self.service.clone().oneshot(request).instrument(span.clone());
        let result = match timeout(max, sending).await {
            Ok(Ok(response)) => profile.read(&response).map(|applied| (applied, response)),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => {
                Err(VendorError::maybe_applied(ErrorCode::Timeout, format!("no answer within {max:?}")))
            }
        };
        let error = result.as_ref().err();
        if self.guard().note(operation, error, Instant::now().into_std()) {
            tracing::error!(vendor = profile.name, operation, "the circuit breaker is open");
        }
        if let Some(error) = error {
            let code = error.code().as_str();
            let error = error as &dyn std::error::Error;
            span.in_scope(|| tracing::debug!(code, error, "the try failed"));
        }
        result
    }

    fn admit(&self, operation: &str, is_retry: bool) -> Result<(), Refusal> {
        self.guard().admit(operation, is_retry, Instant::now().into_std())
    }

    fn guard(&self) -> MutexGuard<'_, Guard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a try that was not made. After a failed try, that one's error with the time of the next.
fn refused(refusal: Refusal, last: Option<VendorError>) -> VendorError {
    let Refusal { code, wait } = refusal;
    match last {
        Some(last) if code == ErrorCode::Unavailable => last.retry_after(Some(wait)),
        _ => {
            let what = match code {
                ErrorCode::RateLimited => "the vendor has asked for a pause",
                ErrorCode::CircuitOpen => "the circuit breaker is open",
                _ => "there are too many retries",
            };
            VendorError::not_sent(code, what).retry_after(Some(wait))
        }
    }
}
