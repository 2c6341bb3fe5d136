//! The tower service: claims the key of a request, runs its handler, and settles it.
use crate::{
    begin::KeyedRequest,
    call::Call,
    claim::Claim,
    handler::{self, Handler},
    handover::Handover,
    headers,
    idempotency::Idempotency,
    problem::Problem,
    request::{BufferedRequest, caller_timeout},
    settings::Settings,
    turns::NoTurn,
};
use axum::{
    body::Body,
    http::{HeaderMap, Method, Request, Response, request::Parts},
};
use futures::future::BoxFuture;
use std::{
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::{Instrument as _, Span};
use twinbox_core::{crash, message::TraceContext, task_name::TaskName};
use twinbox_sql::{Dialect, operation::OperationStart};

/// Methods that change something. An unknown method passes through: callers choose it freely, so it must not
/// become a label of a metric.
const METHODS: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// The service that [`Idempotency`] puts around a handler.
pub struct IdempotencyService<S, DB: Dialect> {
    inner: S,
    settings: Arc<Settings<DB>>,
}

impl<S, DB: Dialect> Layer<S> for Idempotency<DB> {
    type Service = IdempotencyService<S, DB>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { inner, settings: self.0.clone() }
    }
}

impl<S: Handler, DB: Dialect> Service<Request<Body>> for IdempotencyService<S, DB> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // Only `self.inner` was polled ready. It runs the request, and its clone stays here.
        let clone = self.inner.clone();
        let mut handler = std::mem::replace(&mut self.inner, clone);
        headers::strip(request.headers_mut());
        if !METHODS.contains(request.method()) {
            return Box::pin(async move { handler.call(request).await });
        }
        let settings = self.settings.clone();
        Box::pin(async move { Ok(settings.respond(handler, request).await) })
    }
}

impl<DB: Dialect> Settings<DB> {
    async fn respond(self: Arc<Self>, handler: impl Handler, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let call = Call::new(&self, &parts);
        let key = match self.parse_key(&parts.headers) {
            Ok(key) => key,
            Err(problem) => return call.refuse(&problem),
        };
        let Some(scope) = self.scope_of(&parts) else {
            tracing::error!(
                "an idempotent route needs a scope: set `Idempotency::scope`, or put the layer on routes"
            );
            return call.refuse(&Problem::Failed);
        };
        let body = match self.body_reader.read(body).await {
            Ok(body) => body,
            Err(problem) => return call.refuse(&problem),
        };
        let content = BufferedRequest::new(&parts, body);
        let (style, running) = (self.problem_style.clone(), self.running.clone());
        // A caller that disconnects drops this future. The spawned request continues, and a retry finds its
        // response.
        let request = async move {
            let Some(key) = key else { return call.run_without_key(handler, content, parts).await };
            let request = self.keyed(&parts, scope, key, content).await;
            let call = call.with_key(&request);
            let span = call.span();
            call.run_once(handler, request, parts).instrument(span).await
        };
        let response = running.spawn(TaskName::KeyedRequest.of(request.in_current_span())).await;
        response.unwrap_or_else(|_| Problem::Failed.response(&style, None))
    }
}

impl<DB: Dialect> Call<DB> {
    async fn run_once(self, handler: impl Handler, request: KeyedRequest, parts: Parts) -> Response<Body> {
        let started = Instant::now();
        let wait_max = self.settings.policy.wait;
        let wait = caller_timeout(&parts.headers).map_or(wait_max, |timeout| (timeout / 2).min(wait_max));
        let turn = match self.settings.turns.take(request.key.slot(), request.fingerprint, wait).await {
            Ok(turn) => turn,
            Err(NoTurn::InProgress) => return self.refuse(&Problem::InProgress),
            Err(NoTurn::Mismatch) => return self.refuse(&Problem::Mismatch),
        };
        // A handler under a lease takes one when it begins its transaction.
        let permit = match self.settings.lease {
            None => match self.settings.store.engine().request_permit().await {
                Ok(permit) => Some(permit),
                Err(error) => return self.store_failed(&error),
            },
            Some(_) => None,
        };
        crash::point("request.before_claim");
        let begun = self.settings.claim(&request, wait.saturating_sub(started.elapsed())).await;
        self.record_key_wait(started.elapsed());
        let _permit = permit.filter(|_| matches!(begun, Ok(OperationStart::Open(_))));
        match begun {
            Ok(OperationStart::Open(claim)) => {
                turn.set_running(request.fingerprint);
                self.run(handler, request, parts, claim).await
            }
            Ok(OperationStart::Completed(stored)) => self.replay(stored, Some(parts)).await,
            Ok(OperationStart::Mismatch) => self.refuse(&Problem::Mismatch),
            Ok(OperationStart::InFlight) => self.refuse(&Problem::InProgress),
            Ok(OperationStart::TooMany) => self.refuse(&Problem::TooManyKeys),
            Err(error) => self.store_failed(&error),
        }
    }

    async fn run(
        self,
        handler: impl Handler,
        request: KeyedRequest,
        mut parts: Parts,
        claim: Claim<DB>,
    ) -> Response<Body> {
        crash::point("request.before_handler");
        Span::current().record("attempt", claim.attempt());
        let is_exhausted = claim.failures_left(self.settings.attempts_max) == Some(0);
        let deadline = handler::deadline(self.settings.handler_timeout);
        let replay_parts = self.settings.render.is_some().then(|| parts.clone());
        let handover = Handover::new(claim, trace(&parts.headers));
        parts.extensions.insert(handover.clone());
        let response = if is_exhausted {
            Ok(self.exhausted())
        } else {
            handler::run(handler, request.content.to_request(parts), deadline).await
        };
        crash::point("request.after_handler");
        let response = self.settle(&request, handover, response, replay_parts, deadline).await;
        crash::point("request.before_answer");
        response
    }

    async fn run_without_key(
        self,
        handler: impl Handler,
        content: BufferedRequest,
        mut parts: Parts,
    ) -> Response<Body> {
        let _permit = match self.settings.store.engine().request_permit().await {
            Ok(permit) => permit,
            Err(error) => return self.store_failed(&error),
        };
        let operation = match self.settings.begin_without_key().await {
            Ok(operation) => operation,
            Err(error) => return self.store_failed(&error),
        };
        let handover = Handover::new(Claim::Transaction(operation), trace(&parts.headers));
        parts.extensions.insert(handover.clone());
        let deadline = handler::deadline(self.settings.handler_timeout);
        let response = handler::run(handler, content.to_request(parts), deadline).await;
        self.settle_without_key(handover, response).await
    }
}

fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| headers.get(name)?.to_str().ok();
    TraceContext::new(text("traceparent")?, text("tracestate"))
}

impl<S: Clone, DB: Dialect> Clone for IdempotencyService<S, DB> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: self.settings.clone() }
    }
}

impl<S, DB: Dialect> fmt::Debug for IdempotencyService<S, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService").field("scope", &self.settings.scope).finish_non_exhaustive()
    }
}
