//! The client of a vendor.
use super::{
    call::{Answer, Call},
    error::ClientError,
    guard::Guard,
    run::Run,
    settings::Settings,
};
use crate::{
    metrics,
    vendor::{Response, SendError, VendorProfile},
};
use bytes::Bytes;
use http::Request;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};
use tower::{Layer, Service};
use twinbox_core::{BoxFuture, RetryPolicy, limits::bounded};

/// The settings of a [`Client`], and a [`tower::Layer`] that makes one from a service which sends requests.
///
/// Clients of one layer share circuit breakers, rate gate and the budget of retries. Make one layer for each
/// vendor and account, and keep it.
///
/// ```
/// use bytes::Bytes;
/// use http::Request;
/// use tower::service_fn;
/// use twinbox_effects::{Response, SendError, client::{Call, ClientLayer}, profiles};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In an application this is a `ReqwestService`.
/// let service = service_fn(async |request: Request<Bytes>| {
///     assert!(request.headers().contains_key("Idempotency-Key"));
///     let body = r#"{"id":"ch_1"}"#.into();
///     Ok::<_, SendError>(Response { status: 200, headers: Default::default(), body })
/// });
/// let stripe = ClientLayer::new(profiles::STRIPE_V1).client(service);
/// let request = Request::post("https://api.stripe.com/v1/charges").body(Bytes::new())?;
/// let answer = stripe.send(Call::new("charges.create", request)).await?;
/// assert_eq!((answer.applied.provider_ref.as_deref(), answer.attempts), (Some("ch_1"), 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ClientLayer {
    settings: Settings,
    guard: Arc<Mutex<Guard>>,
}

impl ClientLayer {
    /// Creates a layer with the retries of [`RetryPolicy::client`], 10 s for a call and 5 s for each of its
    /// tries.
    pub fn new(profile: VendorProfile) -> Self {
        metrics::describe_client();
        let settings = Settings {
            profile,
            retries: RetryPolicy::client(),
            budget: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            sends_timeout: false,
        };
        Self { settings, guard: Arc::new(Mutex::new(Guard::new(true))) }
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Sets the delays between tries. For a caller with time to wait: [`RetryPolicy::vendor`] and a budget of
    /// a minute.
    pub fn retries(self, retries: RetryPolicy) -> Self {
        self.with(|settings| settings.retries = retries)
    }

    /// Sets how long a call may take, with its tries and waits. A wait that is longer than the rest ends the
    /// call: see [`ClientError::retry_after`].
    pub fn budget(self, budget: Duration) -> Self {
        self.with(|settings| settings.budget = bounded(budget))
    }

    /// Sets how long a try may take. After that the vendor may have acted.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.timeout = bounded(timeout))
    }

    /// Tells the vendor how long the client waits for its answer, in the header `X-Request-Timeout`.
    pub fn send_timeout(self) -> Self {
        self.with(|settings| settings.sends_timeout = true)
    }
}

impl ClientLayer {
    /// Returns a client that sends its requests with `service`, as [`Layer::layer`] does.
    pub fn client<S>(&self, service: S) -> Client<S> {
        Client { inner: service, settings: Arc::new(self.settings.clone()), guard: self.guard.clone() }
    }
}

impl<S> Layer<S> for ClientLayer {
    type Service = Client<S>;

    fn layer(&self, inner: S) -> Client<S> {
        self.client(inner)
    }
}

/// Calls a vendor, with any service that sends requests. Cheap to clone.
///
/// The service must not follow redirects and not try again by itself, as
/// [`ReqwestService`](crate::ReqwestService).
pub struct Client<S> {
    inner: S,
    settings: Arc<Settings>,
    guard: Arc<Mutex<Guard>>,
}

impl<S> Client<S> {
    /// Opens the circuit breaker of an operation until [`close`](Self::close), in this process.
    pub fn isolate(&self, operation: &str) {
        self.guard().isolate(operation);
    }

    /// Closes the circuit breaker of an operation, whoever opened it.
    pub fn close(&self, operation: &str) {
        self.guard().close_breaker(operation);
    }

    fn guard(&self) -> std::sync::MutexGuard<'_, Guard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Client<S>
where
    S: Service<Request<Bytes>, Response = Response, Error = SendError> + Clone + Send + 'static,
    S::Future: Send,
{
    /// Makes one logical call. The vendor acts once, as far as its profile promises.
    ///
    /// Dropped half-way, the call ends; the vendor may have acted.
    ///
    /// # Errors
    /// The vendor refused, no safe try is left, or the next one does not fit into the budget.
    pub async fn send(&self, call: Call) -> Result<Answer, ClientError> {
        let run =
            Run { service: self.inner.clone(), settings: self.settings.clone(), guard: self.guard.clone() };
        run.call(call).await
    }
}

impl<S> Service<Call> for Client<S>
where
    S: Service<Request<Bytes>, Response = Response, Error = SendError> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    type Response = Answer;
    type Error = ClientError;
    type Future = BoxFuture<'static, Result<Answer, ClientError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        // Each try waits for the service itself.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { client.send(call).await })
    }
}

impl<S: Clone> Clone for Client<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: self.settings.clone(), guard: self.guard.clone() }
    }
}

impl fmt::Debug for ClientLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientLayer").field("profile", &self.settings.profile.name).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("profile", &self.settings.profile.name).finish_non_exhaustive()
    }
}
