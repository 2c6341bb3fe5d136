//! The layer: what is answered without the handler, and its run.
use crate::{
    flights::NoTurn,
    outcome::Call,
    problem::Problem,
    request::{Asked, budget, whole},
    route::strip,
    settings::{Idempotency, Settings},
    tx::{Held, Work},
};
use axum::{
    body::Body,
    http::{HeaderMap, Method, Request, Response, request::Parts},
};
use futures::{FutureExt as _, future::BoxFuture};
use std::{
    convert::Infallible,
    fmt,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, timeout_at};
use tower::{Layer, Service, ServiceExt as _};
use tracing::{Instrument as _, Span};
use twinbox_core::{crash, message::is_traceparent};
use twinbox_sql::{
    Dialect, Error,
    operation::{Answer, Begun, OperationKey, OperationPolicy},
};

const KEY: &str = "idempotency-key";
/// Of requests that change something. What nobody has heard of is no business of a key, nor a name of a metric.
const METHODS: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// What [`Idempotency`] puts before a handler.
pub struct IdempotencyService<S, DB: Dialect> {
    inner: S,
    settings: Arc<Settings<DB>>,
}

/// A handler, or a route with its inner layers.
pub(crate) trait Handles:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> Handles for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

impl<S, DB: Dialect> Layer<S> for Idempotency<DB> {
    type Service = IdempotencyService<S, DB>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { inner, settings: self.0.clone() }
    }
}

impl<S: Handles, DB: Dialect> Service<Request<Body>> for IdempotencyService<S, DB> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The clone may not be ready, so it stays here.
        let clone = self.inner.clone();
        let mut handler = std::mem::replace(&mut self.inner, clone);
        strip(request.headers_mut());
        if !METHODS.contains(request.method()) {
            return Box::pin(async move { handler.call(request).await });
        }
        let settings = self.settings.clone();
        Box::pin(async move { Ok(settings.answer(handler, request).await) })
    }
}

impl<DB: Dialect> Settings<DB> {
    async fn answer<S: Handles>(self: Arc<Self>, handler: S, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let call = Call::new(&self, &parts);
        let key = match self.key(&parts.headers) {
            Ok(key) => key,
            Err(problem) => return call.refused(problem),
        };
        let Some(scope) = self.scope_of(&parts) else {
            tracing::error!("an idempotent route needs a scope: say `.scope(…)`, or put the layer on routes");
            return call.refused(Problem::Failed);
        };
        let body = match whole(body, self.body_max).await {
            Ok(body) => body,
            Err(problem) => return call.refused(problem),
        };
        let (asked, wording, tasks) = (Asked::new(&parts, body), self.wording.clone(), self.running.clone());
        // A caller that leaves does not take the handler with it: what was begun ends, and is there when it asks again.
        let running = async move {
            let Some(key) = key else { return call.without_key(handler, asked, parts).await };
            let key = self.key_of(&parts, scope, key);
            let digest = asked.digest(self.policy.algorithm, &self.excluded);
            let call = call.of_key(&key, &digest);
            let span = call.span();
            call.keyed(handler, key, asked, digest, parts).instrument(span).await
        };
        let done = tasks.spawn(running.in_current_span()).await;
        done.unwrap_or_else(|_| Problem::Failed.response(&wording, None))
    }

    fn key(&self, headers: &HeaderMap) -> Result<Option<String>, Problem> {
        let values = Vec::from_iter(headers.get_all(KEY).iter().map(|value| value.as_bytes()));
        match values[..] {
            [] if self.required || self.lease.is_some() => Err(Problem::MissingKey),
            [] => Ok(None),
            _ => self.keys.read(&values).map(Some).map_err(|error| Problem::InvalidKey(error.reason())),
        }
    }

    /// Waits for another process only with a permit, so that no key can take the pool from other routes.
    async fn begin(
        &self,
        key: &OperationKey,
        asked: &Asked,
        policy: &OperationPolicy,
    ) -> Result<Begun<Work<DB>>, Error> {
        let at_once = OperationPolicy { wait: Duration::ZERO, ..*policy };
        match self.try_begin(key, asked, &at_once).await? {
            Begun::InFlight if !policy.wait.is_zero() => {}
            begun => return Ok(begun),
        }
        let Ok(_permit) = self.waiters.try_acquire() else { return Ok(Begun::InFlight) };
        self.try_begin(key, asked, policy).await
    }

    pub(crate) async fn find(&self, key: &OperationKey, asked: &Asked) -> Result<Option<Answer>, Error> {
        let context = asked.context();
        self.store.find_operation(key, asked.fingerprinted(&context, &self.excluded)).await
    }

    pub(crate) async fn try_begin(
        &self,
        key: &OperationKey,
        asked: &Asked,
        policy: &OperationPolicy,
    ) -> Result<Begun<Work<DB>>, Error> {
        let context = asked.context();
        let request = asked.fingerprinted(&context, &self.excluded);
        let policy = &OperationPolicy { algorithm: asked.algorithm(policy.algorithm), ..*policy };
        let Some(lease) = self.lease else {
            return Ok(self.store.begin_operation(key, request, policy).await?.map(Work::of));
        };
        let begun = self.store.lease_operation(key, request, policy, lease).await?;
        Ok(begun.map(|lease| Work { operation: None, lease: Some(lease) }))
    }
}

impl<DB: Dialect> Call<DB> {
    async fn keyed<S: Handles>(
        self,
        handler: S,
        key: OperationKey,
        asked: Asked,
        digest: [u8; 32],
        parts: Parts,
    ) -> Response<Body> {
        let began = Instant::now();
        let wait =
            budget(&parts).map_or(self.settings.policy.wait, |all| (all / 2).min(self.settings.policy.wait));
        let turn = match self.settings.flights.turn(key.slot(), digest, wait).await {
            Ok(turn) => turn,
            Err(NoTurn::InFlight) => return self.refused(Problem::InProgress),
            Err(NoTurn::Mismatch) => return self.refused(Problem::Mismatch),
        };
        let policy = OperationPolicy { wait: wait.saturating_sub(began.elapsed()), ..self.settings.policy };
        crash::point("request.before_claim");
        let begun = self.settings.begin(&key, &asked, &policy).await;
        self.waited(began.elapsed());
        match begun {
            Ok(Begun::Open(work)) => {
                turn.runs(digest);
                self.run(handler, key, asked, parts, work).await
            }
            Ok(Begun::Known(answer)) => self.replay(answer, Some(parts)).await,
            Ok(Begun::Mismatch) => self.refused(Problem::Mismatch),
            Ok(Begun::InFlight) => self.refused(Problem::InProgress),
            Ok(Begun::TooMany) => self.refused(Problem::TooManyKeys),
            Err(error) => self.store_failed(&error),
        }
    }

    async fn run<S: Handles>(
        self,
        handler: S,
        key: OperationKey,
        asked: Asked,
        mut parts: Parts,
        work: Work<DB>,
    ) -> Response<Body> {
        crash::point("request.before_handler");
        Span::current().record("attempt", work.attempt());
        let is_exhausted = work.failures_left(self.settings.attempts_max) == Some(0);
        let ends_at = Instant::now() + self.settings.time_limit;
        let again = self.settings.render.is_some().then(|| parts.clone());
        let held = Held::new(work, traceparent(&parts.headers));
        parts.extensions.insert(held.clone());
        let response = if is_exhausted {
            Ok(self.exhausted())
        } else {
            guarded(handler, asked.request(parts), ends_at).await
        };
        crash::point("request.after_handler");
        let response = self.settle(&key, &asked, held, response, again, ends_at).await;
        crash::point("request.before_answer");
        response
    }

    async fn without_key<S: Handles>(self, handler: S, asked: Asked, mut parts: Parts) -> Response<Body> {
        let operation = match self.settings.store.begin_without_key().await {
            Ok(operation) => operation,
            Err(error) => return self.store_failed(&error),
        };
        let held = Held::new(Work::of(operation), traceparent(&parts.headers));
        parts.extensions.insert(held.clone());
        let ends_at = Instant::now() + self.settings.time_limit;
        let response = guarded(handler, asked.request(parts), ends_at).await;
        self.settle_without_key(held, response).await
    }
}

fn traceparent(headers: &HeaderMap) -> Option<String> {
    let traceparent = headers.get("traceparent")?.to_str().ok()?;
    is_traceparent(traceparent).then(|| traceparent.to_owned())
}

impl<S: Clone, DB: Dialect> Clone for IdempotencyService<S, DB> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: self.settings.clone() }
    }
}

/// # Errors
/// It panicked, or has not answered in time and is dropped.
pub(crate) async fn guarded<S: Handles>(
    handler: S,
    request: Request<Body>,
    ends_at: Instant,
) -> Result<Response<Body>, Problem> {
    let running = AssertUnwindSafe(handler.oneshot(request)).catch_unwind();
    match timeout_at(ends_at, running).await {
        Ok(Ok(Ok(response))) => Ok(response),
        Ok(Ok(Err(never))) => match never {},
        Ok(Err(_)) => Err(Problem::Failed),
        Err(_) => Err(Problem::TimedOut),
    }
}

impl<S, DB: Dialect> fmt::Debug for IdempotencyService<S, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService").field("scope", &self.settings.scope).finish_non_exhaustive()
    }
}
