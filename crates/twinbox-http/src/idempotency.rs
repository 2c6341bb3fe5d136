//! The layer that applications set up.
use crate::{
    body,
    caller::Caller,
    headers::may_be_added,
    key::KeySyntax,
    metrics,
    problem::{CodeStyle, MismatchStatus},
    render::ResultRef,
    settings::Settings,
};
use axum::{
    body::Body,
    http::{HeaderName, Response, request::Parts},
};
use std::{fmt, sync::Arc, time::Duration};
use twinbox_core::{FingerprintAlgorithm, limits::bounded};
use twinbox_sql::{Dialect, Store};

const RETENTION_MIN: Duration = Duration::from_secs(3600);
const RETENTION_MAX: Duration = Duration::from_secs(90 * 24 * 3600);
const MONEY_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
const LEASE_MIN: Duration = Duration::from_secs(1);
/// The largest response that a route may store.
const RESPONSE_BYTES_LIMIT: usize = body::BYTES_MAX;

/// Runs each request once for its `Idempotency-Key` and replays the response to repeated requests.
///
/// It is a [`tower::Layer`] for one route, or for the `route_layer` of a router. It handles `POST`, `PUT`,
/// `PATCH` and `DELETE`; other methods pass through.
///
/// ```
/// use axum::{Router, body::Body, http::{Request, StatusCode}, routing::post};
/// use sqlx::Sqlite;
/// use tower::ServiceExt as _;
/// use twinbox_http::{Caller, IdemTx, Idempotency, ServerError};
/// use twinbox_sql::{Store, sqlite};
///
/// async fn create_payment(mut idem: IdemTx<Sqlite>) -> Result<StatusCode, ServerError> {
///     sqlx::query("INSERT INTO payments (cents) VALUES (4200)").execute(&mut *idem.tx()).await?;
///     Ok(StatusCode::CREATED)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.db");
/// let store = Store::new(sqlite::open(path).await?, "shop")?;
/// # store.migrate().await?;
/// # sqlx::query("CREATE TABLE payments (cents INTEGER NOT NULL)").execute(store.pool()).await?;
/// let idempotency = Idempotency::new(store, Caller::single).money();
/// let app = Router::new().route("/payments", post(create_payment).route_layer(idempotency));
///
/// for status in ["stored", "replayed"] {
///     let request = Request::post("/payments").header("idempotency-key", "order-7").body(Body::empty())?;
///     let response = app.clone().oneshot(request).await?;
///     assert_eq!(response.status(), StatusCode::CREATED);
///     assert_eq!(response.headers()["idempotency-status"], status);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// The handler writes through [`IdemTx`](crate::IdemTx). Its writes, the key and the response commit in one
/// transaction, and the response is sent after the commit. A repeated request gets the same status and body
/// with `Idempotency-Status: replayed`, and its handler does not run. Some responses are not stored:
/// [`Decision`](crate::Decision) lists them.
///
/// A caller that disconnects does not stop its request. A process that crashes leaves either the whole
/// request or nothing of it, and a retry completes it. While the database is away, no handler runs and
/// callers get `503` with `Retry-After`.
pub struct Idempotency<DB: Dialect>(pub(crate) Arc<Settings<DB>>);

impl<DB: Dialect> Idempotency<DB> {
    /// Creates the layer with defaults: keys are required, remembered for 24 hours, and scoped to method and
    /// route.
    ///
    /// The scope is the route as it is declared, such as `POST_/payments/{id}`. `caller` identifies the
    /// caller of a request, usually from an extension that an outer authentication layer has inserted. A
    /// caller never gets the responses of another. Use [`Caller::single`] in a service with one client
    /// program.
    pub fn new(store: Store<DB>, caller: impl Fn(&Parts) -> Caller + Send + Sync + 'static) -> Self {
        metrics::describe_requests();
        Self(Arc::new(Settings::new(store, Arc::new(caller))))
    }

    /// Waits until all running requests of this layer and its clones have finished.
    ///
    /// Await it after the server has stopped and before the process ends: the requests of disconnected
    /// callers still run. A request that the end of the process cuts off may have called a vendor, and a
    /// retry calls again.
    pub async fn drain(&self) {
        self.0.running.close();
        self.0.running.wait().await;
    }

    fn with(self, change: impl FnOnce(&mut Settings<DB>)) -> Self {
        let mut settings = Arc::unwrap_or_clone(self.0);
        change(&mut settings);
        Self(Arc::new(settings))
    }

    /// Sets the scope of keys, instead of method and route. Keys stay valid when the route is renamed.
    #[must_use]
    pub fn scope(self, scope: impl Into<String>) -> Self {
        self.with(|settings| settings.scope = Some(scope.into()))
    }

    /// Sets how long keys and responses are remembered: 1 hour to 90 days. The default is 24 hours.
    ///
    /// A shorter or longer time is replaced by the nearest allowed one.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|settings| settings.policy.keep = retention.clamp(RETENTION_MIN, RETENTION_MAX))
    }

    /// Sets the [retention](Self::retention) to 7 days, for routes that move money.
    #[must_use]
    pub fn money(self) -> Self {
        self.retention(MONEY_RETENTION)
    }

    /// Sets how long a request waits while another request with its key runs. The default is 2 s.
    ///
    /// After that the request gets `409` with `Retry-After`. It waits at most half of the caller's own
    /// time-out from `X-Request-Timeout` (milliseconds, or with a unit: `2s`).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|settings| settings.policy.wait = bounded(wait))
    }

    /// Sets how long a handler may run until the stored part of its response is complete. The default is 60
    /// s.
    ///
    /// A handler that takes longer is dropped. The caller gets `504`, the writes are rolled back, and the
    /// same request may be repeated. On SQLite other transactions may write again. The same limit holds for
    /// [`render`](Self::render).
    ///
    /// A handler can only be dropped where it awaits. A handler that blocks its thread continues. A spawned
    /// task that has the [`IdemTx`](crate::IdemTx) also continues, and holds the key until it ends. Postgres
    /// and MariaDB end a statement that runs for 500 ms longer, and a transaction that is idle for so long,
    /// also if the process is gone or stands still. MySQL ends only the idle one.
    #[must_use]
    pub fn handler_timeout(self, timeout: Duration) -> Self {
        self.with(|settings| {
            settings.handler_timeout = bounded(timeout);
            settings.policy.idle_max = bounded(timeout);
        })
    }

    /// Holds keys by a lease instead of a transaction, for handlers that call a vendor.
    ///
    /// The handler takes an [`IdemLease`](crate::IdemLease). The lease is renewed while the process lives,
    /// for up to 15 minutes. After a crash, another attempt can continue when `lease` is over. The shortest
    /// lease is 1 s. A route with leases needs keys, even if it is [`optional`](Self::optional).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|settings| settings.lease = Some(bounded(lease.max(LEASE_MIN))))
    }

    /// Sets which keys the route accepts. The default is 1 to 128 visible ASCII characters.
    #[must_use]
    pub fn key_syntax(self, syntax: KeySyntax) -> Self {
        self.with(|settings| settings.key_syntax = syntax)
    }

    /// Accepts requests without a key. They run each time, and get `Idempotency-Status: ignored`.
    #[must_use]
    pub fn optional(self) -> Self {
        self.with(|settings| settings.requires_key = false)
    }

    /// Stores `4xx` responses as final: a repeated request gets the same error again, and its handler does
    /// not run.
    ///
    /// By default a `4xx` response frees the key, because the next attempt may succeed. The handler's writes
    /// are rolled back in both cases.
    ///
    /// Only the handler's own refusals are stored: it has used its [`IdemTx`](crate::IdemTx) or
    /// [`IdemLease`](crate::IdemLease), or responds with
    /// [`Decision::RejectAndStore`](crate::Decision::RejectAndStore). A refusal by an extractor, by an inner
    /// layer, or by a handler that has used neither depends on the request alone. It is not stored, because
    /// the next release may accept the same request.
    #[must_use]
    pub fn store_errors(self) -> Self {
        self.with(|settings| settings.stores_errors = true)
    }

    /// Sets whether to answer `500` when a handler succeeds without using [`IdemTx`](crate::IdemTx).
    ///
    /// Such a handler writes outside of the key's transaction, if it writes: with a connection of the pool,
    /// be there an `IdemTx` among its arguments or not. After a crash a retry writes again. `true` is the
    /// default with `debug_assertions`. With `false` the response is stored. In both cases an error is logged
    /// with the scope, and `twinbox_http_unused_transactions_total` counts.
    #[must_use]
    pub fn refuse_unused(self, refuse: bool) -> Self {
        self.with(|settings| settings.refuses_unused = refuse)
    }

    /// Scopes keys to a tenant instead of a caller. A caller that uses the key of another gets a mismatch.
    #[must_use]
    pub fn shared_by_tenant(self) -> Self {
        self.with(|settings| settings.is_shared_by_tenant = true)
    }

    /// Sets how the content of requests is compared. A stored request is still compared by its own algorithm.
    #[must_use]
    pub fn algorithm(self, algorithm: FingerprintAlgorithm) -> Self {
        self.with(|settings| settings.policy.algorithm = algorithm)
    }

    /// Ignores a member of JSON bodies when requests are compared. `pointer` is a JSON pointer such as
    /// `/sent_at`.
    ///
    /// A stored request is still compared without the members that were excluded at that time. So members can
    /// be added and removed while keys are in use.
    #[must_use]
    pub fn exclude(self, pointer: impl Into<String>) -> Self {
        self.with(|settings| settings.excluded.push(pointer.into()))
    }

    /// Sets the size of a request body, in bytes, above which a request gets `413`. The default is 1 MiB.
    ///
    /// A thread for blocking work reads a body above 64 KiB to compare it, so that other requests go on.
    #[must_use]
    pub fn request_bytes_max(self, bytes: usize) -> Self {
        self.with(|settings| settings.body_reader.bytes_max = bytes)
    }

    /// Sets how long a request body may take to arrive, after which the request gets `408`. The default is 30
    /// s.
    #[must_use]
    pub fn body_timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.body_reader.timeout = bounded(timeout))
    }

    /// Sets how many bytes of bodies that have not arrived whole the layer holds at a time, in all requests
    /// together. A request for which there is no room gets `503` with `Retry-After`. The default is 64 MiB.
    #[must_use]
    pub fn arriving_bytes_max(self, bytes: usize) -> Self {
        self.with(|settings| settings.body_reader.set_memory(bytes))
    }

    /// Sets the size of a response body, in bytes, up to which the body is stored. The default is 64 KiB.
    ///
    /// The limit is 1 MiB. For a larger body, one of unknown length, or one with trailers, only the status,
    /// the headers and the [`ResultRef`] are stored.
    #[must_use]
    pub fn response_bytes_max(self, bytes: usize) -> Self {
        self.with(|settings| settings.response_bytes_max = bytes.min(RESPONSE_BYTES_LIMIT))
    }

    /// Stores no response bodies, for responses with secrets. A replay is then as for a body that is too
    /// large.
    #[must_use]
    pub fn omit_bodies(self) -> Self {
        self.with(|settings| settings.stores_bodies = false)
    }

    /// Stores the digests of keys and not their text, for keys with personal data.
    #[must_use]
    pub fn omit_key_text(self) -> Self {
        self.with(|settings| settings.policy.keeps_text = false)
    }

    /// Sets whether a request on Postgres leaves its connection to the next one: for about 10 ms without
    /// work and 100 ms in all, so that other routes get it too. Default: yes, which saves two round trips.
    ///
    /// The pool's hooks `before_acquire` and `after_release` do not run between two requests then. If one of
    /// them clears what a handler may leave in its session, such as a role, say no.
    #[must_use]
    pub fn keep_connections(self, keep_connections: bool) -> Self {
        self.with(|settings| settings.policy.keeps_connection = keep_connections)
    }

    /// Renders a body that was not stored again, from its [`ResultRef`] and the repeated request.
    ///
    /// The status of the replay is the stored one, even if `render` returns another. Stored headers that
    /// `render` does not set, such as `Location`, are added. Without this setting such a replay has no body,
    /// and `Idempotency-Body: omitted`.
    #[must_use]
    pub fn render<F, R>(self, render: F) -> Self
    where
        F: Fn(ResultRef, Parts) -> R + Send + Sync + 'static,
        R: Future<Output = Response<Body>> + Send + 'static,
    {
        self.with(|settings| {
            settings.render = Some(Arc::new(move |name, parts| Box::pin(render(name, parts))))
        })
    }

    /// Stores one more header of responses. Headers of cookies, credentials, dates, rates, proxies and
    /// connections are never stored.
    ///
    /// A replayed response has only headers that its route stores now, whatever its row holds.
    #[must_use]
    pub fn store_header(self, name: HeaderName) -> Self {
        self.with(|settings| {
            if may_be_added(&name) && !settings.added_headers.contains(&name) {
                settings.added_headers.push(name);
            }
        })
    }

    /// Sets how the `error_code` of problem responses is spelled.
    #[must_use]
    pub fn code_style(self, style: CodeStyle) -> Self {
        self.with(|settings| settings.problem_style.codes = style)
    }

    /// Sets the page that explains problem responses to callers, such as
    /// `https://developer.example.com/idempotency`.
    ///
    /// The `type` of each problem is then `URL#missing_idempotency_key` and so on, and a header `Link` with
    /// `rel="describedby"` names it too. Without a page the `type` is
    /// `urn:twinbox:problem:missing_idempotency_key`.
    ///
    /// # Panics
    /// The URL is empty, has a fragment, or has a character that no URL has, such as a space or `>`.
    #[must_use]
    pub fn docs_url(self, url: impl Into<String>) -> Self {
        let url = url.into();
        let is_fit = url.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"#".contains(&byte));
        assert!(is_fit && !url.is_empty(), "{url:?} is not a URL, or has a fragment of its own");
        self.with(|settings| settings.problem_style.docs_url = Some(url.into()))
    }

    /// Sets the status of a request whose key was used for another request. The default is `409`.
    #[must_use]
    pub fn mismatch_status(self, status: MismatchStatus) -> Self {
        self.with(|settings| settings.problem_style.mismatch = status)
    }

    /// Limits how many unexpired keys one caller may have. A request with a further key gets `429`.
    ///
    /// Repeated requests with known keys are not limited. By default there is no limit. The keys of all
    /// routes count together, and each new key counts them all. So choose a number that is no larger than a
    /// caller needs within the [retention](Self::retention).
    #[must_use]
    pub fn live_keys_max(self, keys: u32) -> Self {
        self.with(|settings| settings.policy.live_max = Some(keys))
    }

    /// Limits how often a request may fail or crash on a route with a [`lease`](Self::lease). By default
    /// there is no limit.
    ///
    /// After the last attempt the request gets `500`, now and when it is repeated, and its handler does not
    /// run again. The request may have called a vendor, so an operator has to look at it: an error is logged,
    /// and `twinbox operations list` lists it. A `503` is not counted.
    #[must_use]
    pub fn attempts_max(self, attempts: u32) -> Self {
        self.with(|settings| settings.attempts_max = Some(attempts.max(1)))
    }

    /// Also counts under the metric names `idempotent.created`, `.replayed`, `.replays`, `.conflict` and
    /// `.conflicts`.
    ///
    /// They are aliases of `twinbox_http_responses_stored_total`, `twinbox_http_responses_replayed_total` and
    /// `twinbox_http_key_mismatches_total`, for dashboards that already use these names.
    #[must_use]
    pub fn alias_names(self) -> Self {
        metrics::describe_aliases();
        self.with(|settings| settings.counts_aliases = true)
    }
}

impl<DB: Dialect> Clone for Idempotency<DB> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<DB: Dialect> fmt::Debug for Idempotency<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { scope, policy, lease, requires_key, stores_errors, .. } = &*self.0;
        f.debug_struct("Idempotency")
            .field("scope", scope)
            .field("policy", policy)
            .field("lease", lease)
            .field("requires_key", requires_key)
            .field("stores_errors", stores_errors)
            .finish_non_exhaustive()
    }
}
