//! The layer of a route that webhooks come in on.
use super::{Refused, Verified, Verifier};
use crate::{
    disposition::Disposition,
    layer::{Handles, guarded},
    problem::{Problem, Wording},
    request::whole,
    settings::TIME_LIMIT,
    tx::{Held, Work},
};
use axum::{
    body::{Body, Bytes},
    http::{Request, Response, request::Parts},
};
use futures::future::BoxFuture;
use serde_json::Value;
use std::{
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::Instrument as _;
use twinbox_core::crash;
use twinbox_sql::{
    Dialect, Receipt, ReceiptId, Received, Store,
    operation::{Answer, Operation},
};

const BODY_MAX: usize = 1024 * 1024;
/// For how long receipts are kept: longer than any sender tries again.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);
const KEEP_MAX: Duration = Duration::from_secs(90 * 24 * 3600);

/// Takes webhooks in once. A [`tower::Layer`] around a route of `POST`.
///
/// What is not signed as the [`Verifier`] says is refused with `401`. Of the rest the handler gets the body as it came,
/// and an [`IdemTx`](crate::IdemTx): what it writes and publishes commits together with the receipt, and `2xx` is sent
/// after that. Store what came, answer, and do the work where the message is consumed. A handler that answers with an
/// error, panics, or dies leaves no receipt, and the sender tries again. What comes again is answered with `200` and
/// runs nothing.
///
/// The same id with another payload is logged as an error and counted as `webhook.altered`, and nothing runs.
///
/// ```
/// # use axum::{Router, body::Bytes, routing::post};
/// # use twinbox_http::{Fault, IdemTx, webhook::{Inbound, Scheme, Secret, Verifier, InvalidSecret}};
/// # use sqlx::Postgres;
/// # fn app(store: twinbox_sql::Store<Postgres>) -> Result<Router, InvalidSecret> {
/// async fn from_stripe(mut idem: IdemTx<Postgres>, event: Bytes) -> Result<(), Fault> {
///     sqlx::query("INSERT INTO stripe_events (event) VALUES ($1)").bind(&event[..]).execute(&mut *idem.tx()).await?;
///     Ok(())
/// }
///
/// let secret = Secret::bytes("whsec_of_the_dashboard_0123456789")?;
/// let stripe = Inbound::new(store, "stripe", "payments", Verifier::new(Scheme::Stripe, [secret]));
/// let app = Router::new().route("/webhooks/stripe", post(from_stripe).layer(stripe));
/// # Ok(app)
/// # }
/// ```
pub struct Inbound<DB: Dialect>(Arc<Settings<DB>>);

struct Settings<DB: Dialect> {
    store: Store<DB>,
    provider: String,
    endpoint: String,
    verifier: Verifier,
    id_in_body: Option<String>,
    keep: Duration,
    time_limit: Duration,
    body_max: usize,
}

impl<DB: Dialect> Inbound<DB> {
    /// From `provider`, a name of your own for whoever sends, to `endpoint`, a name of your own for what is done with
    /// it here.
    ///
    /// A webhook that one endpoint has received is still new to another: give each route its own name, or the second one of
    /// two that get the same events does nothing. Both names are kept with receipts, so they stay when a route is renamed.
    pub fn new(
        store: Store<DB>,
        provider: impl Into<String>,
        endpoint: impl Into<String>,
        verifier: Verifier,
    ) -> Self {
        let id_in_body = verifier.scheme.id_in_body().map(str::to_owned);
        Self(Arc::new(Settings {
            store,
            provider: provider.into(),
            endpoint: endpoint.into(),
            verifier,
            id_in_body,
            keep: KEEP,
            time_limit: TIME_LIMIT,
            body_max: BODY_MAX,
        }))
    }

    fn with(self, change: impl FnOnce(&mut Settings<DB>)) -> Self {
        let mut settings = Arc::unwrap_or_clone(self.0);
        change(&mut settings);
        Self(Arc::new(settings))
    }

    /// Where the body has the id that tells webhooks apart, as a JSON pointer. Of [`Scheme::Stripe`](super::Scheme::Stripe)
    /// it is `/id` unless said otherwise; of others the id that is signed in the headers counts.
    ///
    /// A webhook that has none there is received all the same, and told apart by the id in its headers, or by the
    /// digest of its body: a retry that differs in a byte is then new. It is logged as a warning, and counted as
    /// `webhook.without_id`.
    #[must_use]
    pub fn id_in_body(self, pointer: impl Into<String>) -> Self {
        self.with(|settings| settings.id_in_body = Some(pointer.into()))
    }

    /// For how long receipts are kept: 7 to 90 days, default 7. Longer than the sender tries again.
    #[must_use]
    pub fn keep(self, keep: Duration) -> Self {
        self.with(|settings| settings.keep = keep.clamp(KEEP, KEEP_MAX))
    }

    /// For how long a handler may run. Default: 60 s. What takes longer is given up, as after any other fault: nothing that
    /// was written stays, no receipt either, and the sender gets `504` and tries again. One that blocks its thread goes on,
    /// and so does a task to which it has given its [`IdemTx`](crate::IdemTx).
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Self {
        self.with(|settings| settings.time_limit = limit)
    }

    /// Bytes of a body. Default 1 MiB. More are refused with `413`.
    #[must_use]
    pub fn body_max(self, bytes: usize) -> Self {
        self.with(|settings| settings.body_max = bytes)
    }
}

impl<DB: Dialect> Settings<DB> {
    async fn answer<S: Handles>(self: Arc<Self>, handler: S, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = match whole(body, self.body_max).await {
            Ok(body) => body,
            Err(problem) => return told(&problem),
        };
        let verified = match self.verify(&parts, &body) {
            Ok(verified) => verified,
            Err(refused) => {
                tracing::warn!(provider = self.provider, %refused, "a webhook was refused");
                self.count("webhook.refused");
                return told(&Problem::NotSigned);
            }
        };
        // A sender that hangs up does not take the handler with it.
        let running = self.receive(handler, parts, body, verified).in_current_span();
        tokio::spawn(running).await.unwrap_or_else(|_| told(&Problem::Failed))
    }

    fn verify(&self, parts: &Parts, body: &[u8]) -> Result<Verified, Refused> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let header = |name: &str| parts.headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
        self.verifier.verify(header, body, now)
    }

    async fn receive<S: Handles>(
        self: Arc<Self>,
        handler: S,
        mut parts: Parts,
        body: Bytes,
        verified: Verified,
    ) -> Response<Body> {
        let in_body = self.id_in_body.as_ref().and_then(|pointer| id_at(&body, pointer));
        if let (Some(pointer), None) = (&self.id_in_body, &in_body) {
            self.count("webhook.without_id");
            let Self { provider, endpoint, .. } = &*self;
            tracing::warn!(
                provider,
                endpoint,
                pointer,
                "a webhook has no id where it should be, and may be handled again when its sender tries again"
            );
        }
        let id = match (&in_body, &verified.id) {
            (Some(id), _) => Some(ReceiptId::Body(id)),
            (None, id) => id.as_deref().map(ReceiptId::Header),
        };
        let Self { provider, endpoint, .. } = &*self;
        let receipt = Receipt { provider, endpoint, id, payload: &body, secret: verified.secret };
        let operation = match self.store.receive(&receipt, self.keep).await {
            Ok(Received::Open(operation)) => operation,
            Ok(Received::Duplicate { payload_differs }) => {
                self.count(if payload_differs { "webhook.altered" } else { "webhook.duplicate" });
                if payload_differs {
                    tracing::error!(
                        provider,
                        endpoint,
                        ?id,
                        "two webhooks with different payloads have one id"
                    );
                }
                return Response::new(Body::empty());
            }
            Err(error) => return self.away(&error),
        };
        crash::point("webhook.after_receipt");
        let held = Held::new(Work::of(operation), None);
        parts.extensions.insert(held.clone());
        parts.extensions.insert(verified);
        let ends_at = Instant::now() + self.time_limit;
        let response = guarded(handler, Request::from_parts(parts, Body::from(body)), ends_at).await;
        crash::point("webhook.after_handler");
        let (mut response, operation) = match (response, held.take().operation) {
            (Ok(response), Some(operation)) => (response, operation),
            (ended, operation) => {
                let why = ended.err().unwrap_or(Problem::Failed);
                tracing::error!(
                    provider,
                    ?why,
                    "the handler of a webhook gave no answer, or kept its transaction"
                );
                if let Some(operation) = operation {
                    operation.abandon().await;
                }
                return told(&why);
            }
        };
        let disposition = response.extensions_mut().remove::<Disposition>();
        match disposition.unwrap_or_else(|| Disposition::of(response.status(), false)) {
            Disposition::Commit => self.commit(operation, response).await,
            _ => {
                operation.abandon().await;
                response
            }
        }
    }

    async fn commit(&self, operation: Operation<DB>, response: Response<Body>) -> Response<Body> {
        match operation.commit(&Answer::default()).await {
            Ok(()) => {
                crash::point("webhook.after_commit");
                self.count("webhook.received");
                response
            }
            // Whether it committed, the next try tells.
            Err(error) => self.away(&error),
        }
    }

    fn away(&self, error: &twinbox_sql::Error) -> Response<Body> {
        tracing::error!(
            error = error as &dyn std::error::Error,
            provider = self.provider,
            "a webhook was not received"
        );
        told(&Problem::StoreAway)
    }

    fn count(&self, name: &'static str) {
        metrics::counter!(name, "provider" => self.provider.clone()).increment(1);
    }
}

/// A string that is not empty, or a number.
fn id_at(body: &[u8], pointer: &str) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    match body.pointer(pointer)? {
        Value::String(id) if !id.is_empty() => Some(id.clone()),
        // Of a larger one digits may be gone.
        Value::Number(id) if id.is_u64() || id.is_i64() => Some(id.to_string()),
        _ => None,
    }
}

fn told(problem: &Problem) -> Response<Body> {
    problem.response(&Wording::default(), None)
}

/// What [`Inbound`] puts before a handler.
pub struct InboundService<S, DB: Dialect> {
    inner: S,
    settings: Arc<Settings<DB>>,
}

impl<S, DB: Dialect> Layer<S> for Inbound<DB> {
    type Service = InboundService<S, DB>;

    fn layer(&self, inner: S) -> Self::Service {
        InboundService { inner, settings: self.0.clone() }
    }
}

impl<S: Handles, DB: Dialect> Service<Request<Body>> for InboundService<S, DB> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The clone may not be ready, so it stays here.
        let clone = self.inner.clone();
        let handler = std::mem::replace(&mut self.inner, clone);
        let settings = self.settings.clone();
        Box::pin(async move { Ok(settings.answer(handler, request).await) })
    }
}

impl<S: Clone, DB: Dialect> Clone for InboundService<S, DB> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: self.settings.clone() }
    }
}

impl<DB: Dialect> Clone for Inbound<DB> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<DB: Dialect> Clone for Settings<DB> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            provider: self.provider.clone(),
            endpoint: self.endpoint.clone(),
            verifier: self.verifier.clone(),
            id_in_body: self.id_in_body.clone(),
            ..*self
        }
    }
}

impl<DB: Dialect> fmt::Debug for Inbound<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { provider, endpoint, verifier, id_in_body, keep, .. } = &*self.0;
        f.debug_struct("Inbound")
            .field("provider", provider)
            .field("endpoint", endpoint)
            .field("verifier", verifier)
            .field("id_in_body", id_in_body)
            .field("keep", keep)
            .finish_non_exhaustive()
    }
}

impl<S, DB: Dialect> fmt::Debug for InboundService<S, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboundService").field("provider", &self.settings.provider).finish_non_exhaustive()
    }
}
