//! A job that is a request to a service.
use super::{
    run::JobRun,
    target::{AttemptResult, Target},
};
use crate::vendor::{Response, SendError, base_url, is_path, retry_after};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use std::{fmt, sync::Arc, time::SystemTime};
use tower::{Service, ServiceExt as _};
use twinbox_core::{BoxError, BoxFuture};
use twinbox_sql::{Error, ErrorKind};

/// The most bytes of a path.
const PATH_BYTES_MAX: usize = 2048;

type Authorize = dyn for<'a> Fn(&'a [String]) -> BoxFuture<'a, Result<HeaderMap, BoxError>> + Send + Sync;

/// A path of a service that does the work of a job, such as `POST /v1/admin/locks/release-expired`.
///
/// Each attempt of a run sends the same request: a `POST` without a body, with the run id as
/// `Idempotency-Key` and as `X-Job-Run-Id`, and with the time for which it is scheduled as
/// `X-Job-Scheduled-For`. A service that keeps idempotency keys therefore does the work once.
///
/// | answer | means |
/// |---|---|
/// | 2xx | the run is done |
/// | 409 | an earlier attempt is under way: try again |
/// | 429, 5xx, none in time, a lost connection | try again, never before `Retry-After` |
/// | any other | the run has failed |
///
/// The service of `tower` must not follow redirects and not try again by itself.
pub struct HttpTarget<S> {
    url: Uri,
    scopes: Vec<String>,
    authorize: Option<Box<Authorize>>,
    service: S,
}

impl<S> HttpTarget<S> {
    /// Creates a target: a path of the service at `base_url`.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the base URL is not absolute, or is not `https` and leads to another
    /// machine than this one, or the path does not begin with `/`.
    pub fn new(base: impl Into<String>, path: &str, service: S) -> Result<Self, Error> {
        Self::with_base_url(&base_url(base.into(), false)?, path, service)
    }

    /// Creates a target as [`new`](Self::new) does, also where the request leaves this machine without TLS,
    /// such as in a network that encrypts by itself.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the base URL is not absolute, or the path does not begin with `/`.
    pub fn plain(base: impl Into<String>, path: &str, service: S) -> Result<Self, Error> {
        Self::with_base_url(&base_url(base.into(), true)?, path, service)
    }

    fn with_base_url(base: &str, path: &str, service: S) -> Result<Self, Error> {
        let url = (path.starts_with('/') && is_path(path) && path.len() <= PATH_BYTES_MAX)
            .then(|| format!("{base}{path}").parse().ok());
        let Some(url) = url.flatten() else {
            let what = format!(
                "the path {path:?} of a job must begin with / and have at most {PATH_BYTES_MAX} bytes"
            );
            return Err(Error::new(ErrorKind::Configuration, what));
        };
        Ok(Self { url, scopes: Vec::new(), authorize: None, service })
    }

    /// Sets the scopes that the credentials of the request need.
    #[must_use]
    pub fn scopes<T: Into<String>>(self, scopes: impl IntoIterator<Item = T>) -> Self {
        Self { scopes: scopes.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the function that makes the headers with the credentials for the scopes, such as `Authorization`.
    /// It is called for each attempt. Its error means another attempt, and only the fact is stored.
    #[must_use]
    pub fn authorize(
        self,
        authorize: impl for<'a> Fn(&'a [String]) -> BoxFuture<'a, Result<HeaderMap, BoxError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { authorize: Some(Box::new(authorize)), ..self }
    }

    async fn request(&self, run: &JobRun) -> Result<Request<Bytes>, BoxError> {
        let mut request = Request::new(Bytes::new());
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, self.url.clone());
        if let Some(authorize) = &self.authorize {
            *request.headers_mut() = authorize(&self.scopes).await?;
        }
        let id = HeaderValue::from_str(&run.run_id.to_string())?;
        let scheduled_for = HeaderValue::from_str(&run.scheduled_for.to_string())?;
        for (name, value) in
            [("idempotency-key", &id), ("x-job-run-id", &id), ("x-job-scheduled-for", &scheduled_for)]
        {
            request.headers_mut().insert(HeaderName::from_static(name), value.clone());
        }
        Ok(request)
    }
}

impl<S> HttpTarget<S>
where
    S: Service<Request<Bytes>, Response = Response, Error = SendError> + Clone + Send + Sync,
    S::Future: Send,
{
    /// Sends the request of a run once.
    pub(super) async fn call(&self, run: &JobRun) -> AttemptResult {
        let request = match self.request(run).await {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(job = run.job, %error, "the request of a job could not be made");
                return AttemptResult::retry(None, "the credentials of the request could not be had");
            }
        };
        match self.service.clone().oneshot(request).await {
            Ok(response) => read(&response),
            Err(error) => AttemptResult::retry(None, error.to_string()),
        }
    }
}

/// Makes the function that sends one request.
pub(super) fn http_target<S>(target: HttpTarget<S>) -> Target
where
    S: Service<Request<Bytes>, Response = Response, Error = SendError> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let target = Arc::new(target);
    Arc::new(move |run| {
        let target = target.clone();
        Box::pin(async move { target.call(&run).await })
    })
}

fn read(Response { status, headers, .. }: &Response) -> AttemptResult {
    let text = |what: &str| format!("the service answered {status}: {what}");
    let not_before = retry_after(headers, SystemTime::now());
    let result = match status {
        200..=299 => AttemptResult::done(None),
        409 => AttemptResult::retry(not_before, text("an earlier attempt is under way")),
        429 => AttemptResult::retry(not_before, text("too many calls")),
        500..=599 => AttemptResult::retry(not_before, text("it failed")),
        300..=399 => AttemptResult::failed(text("redirects are not followed")),
        401 | 403 => AttemptResult::failed(text("the credentials were refused")),
        _ => AttemptResult::failed(text("the request was refused")),
    };
    AttemptResult { http_code: Some(*status), ..result }
}

impl<S> fmt::Debug for HttpTarget<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("url", &self.url)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::target::Outcome, *};
    use std::time::Duration;

    /// R14, R30
    #[test]
    fn answers_of_a_service() {
        let read = |status, headers: &[(&'static str, &'static str)]| {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let headers = headers.iter().map(pair).collect();
            super::read(&Response { status, headers, body: Bytes::new() }).outcome
        };
        let at_once = Outcome::Retry(Duration::ZERO);
        for (status, expected) in [
            (200, Outcome::Done),
            (204, Outcome::Done),
            (301, Outcome::Failed),
            (400, Outcome::Failed),
            (401, Outcome::Failed),
            (404, Outcome::Failed),
            (409, at_once),
            (429, at_once),
            (500, at_once),
            (503, at_once),
        ] {
            assert_eq!(read(status, &[]), expected, "{status}");
        }
        for status in [409, 429, 503] {
            assert_eq!(read(status, &[("retry-after", "7")]), Outcome::Retry(Duration::from_secs(7)));
        }
    }

    #[test]
    fn a_target_stays_behind_its_base_url() {
        for path in ["", "v1", "@evil.example/", "?a", "/a b", ".evil.example"] {
            assert!(HttpTarget::new("https://jobs.example", path, ()).is_err(), "{path:?}");
        }
        assert!(HttpTarget::new("/v1", "/run", ()).is_err());
        assert!(HttpTarget::new("http://jobs.example", "/run", ()).is_err());
        HttpTarget::plain("http://jobs.example", "/run", ()).unwrap();
        let target = HttpTarget::new("https://jobs.example/v1/", "/run?a=1", ()).unwrap();
        assert_eq!(target.url, "https://jobs.example/v1/run?a=1");
    }
}
