//! The layer of a route that receives webhooks.
use super::{
    endpoint::{Endpoint, RETENTION_MAX, RETENTION_MIN},
    verifier::Verifier,
};
use crate::{handler::Handler, metrics};
use axum::{
    body::Body,
    http::{Request, Response},
};
use futures::future::BoxFuture;
use std::{
    convert::Infallible,
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tower::{Layer, Service};
use twinbox_core::limits::bounded;
use twinbox_sql::{Dialect, Store};

/// A tower layer that verifies webhooks and lets each of them through to the handler once. It is a
/// [`tower::Layer`] for a `POST` route.
///
/// A webhook that the [`Verifier`] refuses gets `401`. For a new webhook the handler gets the body as it was
/// received, an [`IdemTx`](crate::IdemTx), and the [`Signature`](super::Signature) as an `Extension`. Its
/// writes and messages commit together with a receipt, and the `2xx` is sent after the commit. Store the
/// event, respond, and do the work where the message is consumed. A handler that writes without its `IdemTx`
/// writes again after a crash: its writes are not with the receipt.
///
/// A handler that fails, panics or crashes leaves no receipt, and the sender retries. A repeated webhook gets
/// `200`, and the handler does not run. If its payload differs from the first one, an error is logged and
/// `twinbox_http_webhook_mismatches_total` counts.
///
/// ```
/// use axum::{Router, body::Body, body::Bytes, http::Request, routing::post};
/// use sqlx::Sqlite;
/// use tower::ServiceExt as _;
/// use twinbox_http::{IdemTx, ServerError, webhook::{Inbound, Scheme, Secret, Verifier}};
/// use twinbox_sql::{Store, sqlite};
///
/// async fn receive(mut idem: IdemTx<Sqlite>, event: Bytes) -> Result<(), ServerError> {
///     let insert = sqlx::query("INSERT INTO stripe_events (event) VALUES (?)").bind(&event[..]);
///     insert.execute(&mut *idem.tx()).await?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.db");
/// let store = Store::new(sqlite::open(path).await?, "shop")?;
/// # store.migrate().await?;
/// # sqlx::query("CREATE TABLE stripe_events (event BLOB NOT NULL)").execute(store.pool()).await?;
/// let secret = Secret::from_bytes("whsec_of_the_dashboard_0123456789")?;
/// let verifier = Verifier::new(Scheme::Stripe, [secret.clone()]);
/// let inbound = Inbound::new(store.clone(), "stripe", "payments", verifier);
/// let app = Router::new().route("/webhooks/stripe", post(receive).layer(inbound));
///
/// let event = r#"{"id":"evt_1","type":"refund.succeeded"}"#;
/// let now_s = std::time::UNIX_EPOCH.elapsed()?.as_secs();
/// for _ in 0..2 {
///     let mut request = Request::post("/webhooks/stripe");
///     for (name, value) in secret.sign(Scheme::Stripe, "", now_s, event.as_bytes()) {
///         request = request.header(name, value);
///     }
///     let request = request.body(Body::from(event))?;
///     assert_eq!(app.clone().oneshot(request).await?.status(), 200);
/// }
/// let count = sqlx::query_scalar("SELECT count(*) FROM stripe_events");
/// let received: i64 = count.fetch_one(store.pool()).await?;
/// assert_eq!(received, 1);
/// # Ok(())
/// # }
/// ```
pub struct Inbound<DB: Dialect>(Arc<Endpoint<DB>>);

impl<DB: Dialect> Inbound<DB> {
    /// Creates the layer for webhooks from `provider` to `endpoint`; both are names that you choose.
    ///
    /// Receipts are scoped to provider and endpoint, and both names are stored with them. Two routes that get
    /// the same events need two endpoint names, else the second route finds only duplicates. Keep the names
    /// when a route is renamed.
    pub fn new(
        store: Store<DB>,
        provider: impl Into<String>,
        endpoint: impl Into<String>,
        verifier: Verifier,
    ) -> Self {
        metrics::describe_webhooks();
        Self(Arc::new(Endpoint::new(store, provider.into(), endpoint.into(), verifier)))
    }

    fn with(self, change: impl FnOnce(&mut Endpoint<DB>)) -> Self {
        let mut endpoint = Arc::unwrap_or_clone(self.0);
        change(&mut endpoint);
        Self(Arc::new(endpoint))
    }

    /// Sets where the body has the webhook's id, as a JSON pointer.
    ///
    /// The default is `/id` for [`Scheme::Stripe`](super::Scheme::Stripe), and the signed id in the headers
    /// for other schemes.
    ///
    /// A webhook without an id at the pointer is received too. It is identified by the id in its headers,
    /// else by the digest of its body: a retry that differs in one byte is then a new webhook. A warning is
    /// logged and `twinbox_http_webhooks_without_id_total` counts.
    #[must_use]
    pub fn id_in_body(self, pointer: impl Into<String>) -> Self {
        self.with(|endpoint| endpoint.id_in_body = Some(pointer.into()))
    }

    /// Sets how long received webhooks are remembered: 7 to 90 days. The default is 7 days.
    ///
    /// Choose more than the time for which the sender retries. A shorter or longer time is replaced by the
    /// nearest allowed one.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|endpoint| endpoint.retention = retention.clamp(RETENTION_MIN, RETENTION_MAX))
    }

    /// Sets how long a handler may run. The default is 60 s.
    ///
    /// A handler that takes longer is dropped. Its writes and the receipt are rolled back, and the sender
    /// gets `504` and retries. A handler that blocks its thread continues, and so does a spawned task that
    /// has the [`IdemTx`](crate::IdemTx).
    #[must_use]
    pub fn handler_timeout(self, timeout: Duration) -> Self {
        self.with(|endpoint| endpoint.handler_timeout = bounded(timeout))
    }

    /// Sets the size of a body, in bytes, above which a webhook gets `413`. The default is 1 MiB.
    #[must_use]
    pub fn request_bytes_max(self, bytes: usize) -> Self {
        self.with(|endpoint| endpoint.body_reader.bytes_max = bytes)
    }

    /// Sets how long a body may take to arrive, after which a webhook gets `408`. The default is 30 s. A
    /// webhook whose headers can never be verified gets `401` before its body is read.
    #[must_use]
    pub fn body_timeout(self, timeout: Duration) -> Self {
        self.with(|endpoint| endpoint.body_reader.timeout = bounded(timeout))
    }

    /// Sets how many bytes of bodies that have not arrived whole the layer holds at a time, in all requests
    /// together. A webhook for which there is no room gets `503`, and its sender retries. The default is 64
    /// MiB.
    #[must_use]
    pub fn arriving_bytes_max(self, bytes: usize) -> Self {
        self.with(|endpoint| endpoint.body_reader.set_memory(bytes))
    }
}

/// The service that [`Inbound`] puts around a handler.
pub struct InboundService<S, DB: Dialect> {
    inner: S,
    endpoint: Arc<Endpoint<DB>>,
}

impl<S, DB: Dialect> Layer<S> for Inbound<DB> {
    type Service = InboundService<S, DB>;

    fn layer(&self, inner: S) -> Self::Service {
        InboundService { inner, endpoint: self.0.clone() }
    }
}

impl<S: Handler, DB: Dialect> Service<Request<Body>> for InboundService<S, DB> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Only `self.inner` was polled ready. It runs the request, and its clone stays here.
        let clone = self.inner.clone();
        let handler = std::mem::replace(&mut self.inner, clone);
        let endpoint = self.endpoint.clone();
        Box::pin(async move { Ok(endpoint.respond(handler, request).await) })
    }
}

impl<S: Clone, DB: Dialect> Clone for InboundService<S, DB> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), endpoint: self.endpoint.clone() }
    }
}

impl<DB: Dialect> Clone for Inbound<DB> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<DB: Dialect> fmt::Debug for Inbound<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { provider, name, verifier, id_in_body, retention, .. } = &*self.0;
        f.debug_struct("Inbound")
            .field("provider", provider)
            .field("endpoint", name)
            .field("verifier", verifier)
            .field("id_in_body", id_in_body)
            .field("retention", retention)
            .finish_non_exhaustive()
    }
}

impl<S, DB: Dialect> fmt::Debug for InboundService<S, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboundService").field("provider", &self.endpoint.provider).finish_non_exhaustive()
    }
}
