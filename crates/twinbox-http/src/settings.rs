//! How a route treats its keys.
use crate::{
    flights::Flights,
    key::KeyRule,
    problem::{CodeStyle, MismatchStatus, Wording},
    rate::ReplayRate,
    stored::may_be_kept,
};
use axum::{
    body::Body,
    http::{HeaderName, Response, request::Parts},
};
use futures::future::BoxFuture;
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use twinbox_core::FingerprintAlgorithm;
use twinbox_sql::{Dialect, Store, operation::OperationPolicy};

/// For how long answers may be kept.
const KEEP_RANGE: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(90 * 24 * 3600));
const LEASE_MIN: Duration = Duration::from_secs(1);
const BODY_MAX: usize = 1024 * 1024;
const ANSWER_MAX: usize = 64 * 1024;
/// For how long handlers run, unless somebody says otherwise.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What a browser has to be allowed to read: for `Access-Control-Expose-Headers`.
pub const EXPOSED_HEADERS: [HeaderName; 4] = [
    HeaderName::from_static("idempotency-status"),
    HeaderName::from_static("idempotency-body"),
    HeaderName::from_static("idempotent-replayed"),
    HeaderName::from_static("retry-after"),
];

/// Who asks, for keys of others are other keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// Whose data it is about.
    pub tenant: String,
    /// A name that stays when credentials change: no token, no API key.
    pub principal: String,
}

impl Caller {
    /// For a service that only one program calls. Not with money of several people: whoever sends the key of another
    /// gets its answer, and a key that two choose alike is a mismatch for the second.
    pub fn only_one(_: &Parts) -> Self {
        Self::default()
    }
}

/// Where a large answer can be made again from. A handler puts it into the extensions of its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRef(pub String);

/// Makes the requests of a route happen once for each `Idempotency-Key`. A [`tower::Layer`], for a route or for the
/// `route_layer` of a router; `GET` and other safe methods pass it.
///
/// The handler takes an [`IdemTx`](crate::IdemTx): what it writes with that commits together with the key and its
/// answer, and what it answers is sent after the commit. A request that comes again gets the same status and body with
/// `Idempotency-Status: replayed`, and nothing runs. See [`Disposition`](crate::Disposition) for what is not kept.
///
/// A caller that leaves half-way does not stop its request. A process that dies has done all of it or nothing; asked again
/// it does what is missing. When the database is away, nothing runs: `503` with `Retry-After`.
pub struct Idempotency<DB: Dialect>(pub(crate) Arc<Settings<DB>>);

pub(crate) struct Settings<DB: Dialect> {
    pub(crate) store: Store<DB>,
    pub(crate) scope: Option<String>,
    pub(crate) policy: OperationPolicy,
    /// The key is held without a transaction, for so long.
    pub(crate) lease: Option<Duration>,
    pub(crate) time_limit: Duration,
    pub(crate) keys: KeyRule,
    pub(crate) required: bool,
    pub(crate) errors_kept: bool,
    pub(crate) unused_refused: bool,
    pub(crate) excluded: Vec<String>,
    pub(crate) body_max: usize,
    pub(crate) answer_max: usize,
    pub(crate) bodies_kept: bool,
    pub(crate) also_kept: Vec<HeaderName>,
    pub(crate) attempts_max: Option<u32>,
    pub(crate) wording: Wording,
    pub(crate) keys_logged: bool,
    pub(crate) alias_names: bool,
    pub(crate) also_replayed: bool,
    pub(crate) shared: bool,
    pub(crate) caller: Arc<dyn Fn(&Parts) -> Caller + Send + Sync>,
    pub(crate) render: Option<Arc<Render>>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) rate: Arc<ReplayRate>,
    /// Requests that are being handled, whether or not their callers have left.
    pub(crate) running: TaskTracker,
    /// Requests that wait for another process, each with a connection.
    pub(crate) waiters: Arc<Semaphore>,
}

pub(crate) type Render = dyn Fn(ResultRef, Parts) -> BoxFuture<'static, Response<Body>> + Send + Sync;

impl<DB: Dialect> Idempotency<DB> {
    /// What was done stays known for 24 hours. Keys are of a method and a route as it is declared: `POST_/payments/{id}`.
    ///
    /// `caller` says who asks, by what an outer layer has found out: a name that stays when credentials change. What
    /// one has done, no other is told. [`Caller::only_one`] where there is one.
    pub fn new(store: Store<DB>, caller: impl Fn(&Parts) -> Caller + Send + Sync + 'static) -> Self {
        let connections = usize::try_from(store.pool().options().get_max_connections()).unwrap_or(usize::MAX);
        let waiters = (connections / 4).clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(Settings {
            store,
            scope: None,
            policy: OperationPolicy::default(),
            lease: None,
            time_limit: TIME_LIMIT,
            keys: KeyRule::default(),
            required: true,
            errors_kept: false,
            unused_refused: cfg!(debug_assertions),
            excluded: Vec::new(),
            body_max: BODY_MAX,
            answer_max: ANSWER_MAX,
            bodies_kept: true,
            also_kept: Vec::new(),
            attempts_max: None,
            wording: Wording::default(),
            keys_logged: false,
            alias_names: false,
            also_replayed: false,
            shared: false,
            caller: Arc::new(caller),
            render: None,
            flights: Arc::default(),
            rate: Arc::default(),
            running: TaskTracker::new(),
            waiters: Arc::new(Semaphore::new(waiters)),
        }))
    }

    /// Waits until what this and its clones have begun has ended, which a caller that leaves does not. Await it when the
    /// server has stopped, before the process ends: else a vendor may be called for nothing, and is called again.
    pub async fn drain(&self) {
        self.0.running.close();
        self.0.running.wait().await;
    }

    fn with(self, change: impl FnOnce(&mut Settings<DB>)) -> Self {
        let mut settings = Arc::unwrap_or_clone(self.0);
        change(&mut settings);
        Self(Arc::new(settings))
    }

    /// What the keys are for, in place of method and route. It stays when the route is renamed.
    #[must_use]
    pub fn scope(self, scope: impl Into<String>) -> Self {
        self.with(|settings| settings.scope = Some(scope.into()))
    }

    /// For how long it stays known what was done: 1 hour to 90 days, the nearest of them if it is neither.
    #[must_use]
    pub fn keep(self, keep: Duration) -> Self {
        self.with(|settings| settings.policy.keep = keep.clamp(KEEP_RANGE.0, KEEP_RANGE.1))
    }

    /// For money: what was done stays known for 7 days.
    #[must_use]
    pub fn money(self) -> Self {
        self.keep(Duration::from_secs(7 * 24 * 3600))
    }

    /// How long a request waits for one with the same key, before it is told that that one is in progress. Default 2 s;
    /// at most half of what the caller says in `X-Request-Timeout` (milliseconds, or `2s`).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|settings| settings.policy.wait = wait)
    }

    /// For how long a handler may run until its answer is whole, as far as that is kept. Default: 60 s. What takes
    /// longer is given up, as after any other fault: the caller gets `504`, nothing that was written stays, the key is
    /// free for the same request, and on SQLite others may write. The same limit holds for [`render`](Self::render).
    ///
    /// A handler is given up where it awaits. One that blocks its thread goes on, and so does a task to which it has
    /// given its [`IdemTx`](crate::IdemTx): that holds the key until it ends. So does a statement that waits in
    /// Postgres: bound it there, by `statement_timeout` or `lock_timeout`.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Self {
        self.with(|settings| settings.time_limit = limit)
    }

    /// The handler takes an [`IdemLease`](crate::IdemLease) and calls others half-way: its key is held for `lease` without
    /// a transaction, and for longer while its process lives, up to 15 minutes. After a crash that long passes before
    /// somebody else may go on. Such a route needs keys, [`optional`](Self::optional) or not.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|settings| settings.lease = Some(lease.max(LEASE_MIN)))
    }

    /// Which keys are taken.
    #[must_use]
    pub fn keys(self, keys: KeyRule) -> Self {
        self.with(|settings| settings.keys = keys)
    }

    /// A request without a key is handled as well, as often as it comes, with `Idempotency-Status: ignored`.
    #[must_use]
    pub fn optional(self) -> Self {
        self.with(|settings| settings.required = false)
    }

    /// Errors of the caller (4xx) are final: what the handler wrote is undone, and the same error is given again. By
    /// default they leave the key free, because what was missing may be there at the next try.
    ///
    /// Final is what the handler has decided with its [`IdemTx`](crate::IdemTx) or [`IdemLease`](crate::IdemLease), or
    /// calls so with [`Disposition::RejectKeep`](crate::Disposition::RejectKeep). A refusal that looked at nothing but
    /// the request, of an extractor, an inner layer, or of a handler before it has used those, is not kept: the next
    /// release may read the same request.
    #[must_use]
    pub fn keep_errors(self) -> Self {
        self.with(|settings| settings.errors_kept = true)
    }

    /// What a success is worth whose handler took no [`IdemTx`](crate::IdemTx), and so wrote, if anything, outside of the
    /// key's transaction. True: it is refused with `500` and the route is named in the log, the default with
    /// `debug_assertions`. False: the same is logged and counted, and the answer is kept.
    #[must_use]
    pub fn refuse_unused(self, refuse: bool) -> Self {
        self.with(|settings| settings.unused_refused = refuse)
    }

    /// All of a tenant share their keys. Whoever uses the key of another is told that it was used for another request.
    #[must_use]
    pub fn shared_by_tenant(self) -> Self {
        self.with(|settings| settings.shared = true)
    }

    /// How requests with a key are compared. What was stored before is compared as it was then.
    #[must_use]
    pub fn algorithm(self, algorithm: FingerprintAlgorithm) -> Self {
        self.with(|settings| settings.policy.algorithm = algorithm)
    }

    /// A member of JSON bodies that does not count, as a JSON pointer: `/sent_at`. What was stored before is compared
    /// as it was then, so members can be added and taken away while keys are in use.
    #[must_use]
    pub fn exclude(self, pointer: impl Into<String>) -> Self {
        self.with(|settings| settings.excluded.push(pointer.into()))
    }

    /// Bytes of a request. Default 1 MiB. More are refused with `413`.
    #[must_use]
    pub fn body_max(self, bytes: usize) -> Self {
        self.with(|settings| settings.body_max = bytes)
    }

    /// Bytes of an answer that is kept whole. Default 64 KiB, at most 1 MiB. Of a larger one, and of one whose length
    /// is not known beforehand, the status, the headers and its [`ResultRef`] are.
    #[must_use]
    pub fn answer_max(self, bytes: usize) -> Self {
        self.with(|settings| settings.answer_max = bytes.min(BODY_MAX))
    }

    /// No body of an answer is kept, because of what is in it: as if it were too large.
    #[must_use]
    pub fn keep_no_bodies(self) -> Self {
        self.with(|settings| settings.bodies_kept = false)
    }

    /// The text of no key is kept, because of what is in it: their digests are.
    #[must_use]
    pub fn keep_no_keys(self) -> Self {
        self.with(|settings| settings.policy.keeps_text = false)
    }

    /// Makes a body again that was not kept, from its [`ResultRef`] and the request that asks for it now. Without it
    /// such a replay has no body, and `Idempotency-Body: omitted`. The status is the one that was kept, whatever it
    /// renders, and so are the headers that it leaves out, such as `Location`.
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

    /// A header of the application's that is kept with an answer. Of cookies, credentials, dates, rates and connections
    /// none ever is.
    #[must_use]
    pub fn keep_header(self, name: HeaderName) -> Self {
        self.with(|settings| settings.also_kept.extend(Some(name).filter(may_be_kept)))
    }

    /// How `error_code` is spelled.
    #[must_use]
    pub fn codes(self, codes: CodeStyle) -> Self {
        self.with(|settings| settings.wording.codes = codes)
    }

    /// A page of yours that explains the problems that callers are told: `https://developer.example.com/idempotency`. Each
    /// problem is then named by its `type`, `URL#missing_idempotency_key` and so on, and by the header `Link` with
    /// `rel="describedby"`. Without it a `type` is `urn:twinbox:problem:missing_idempotency_key`, which leads nowhere.
    ///
    /// # Panics
    /// It has a character that no URL has, such as a space or `>`.
    #[must_use]
    pub fn docs_url(self, url: impl Into<String>) -> Self {
        let url = url.into();
        let is_fit = url.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"#".contains(&byte));
        assert!(is_fit && !url.is_empty(), "{url:?} is not a URL, or has a fragment of its own");
        self.with(|settings| settings.wording.docs_url = Some(url.into()))
    }

    /// The status of a request whose key was used for another one.
    #[must_use]
    pub fn mismatch_status(self, status: MismatchStatus) -> Self {
        self.with(|settings| settings.wording.mismatch = status)
    }

    /// How many keys of one caller may be remembered at a time. A request with one more is refused with `429`; what is
    /// known is answered as ever. By default there may be any number. Keys of other routes count too, and each new key
    /// has all of them counted, so choose no more than a caller ever needs in the time that answers are
    /// [kept](Self::keep).
    #[must_use]
    pub fn live_keys_max(self, keys: u32) -> Self {
        self.with(|settings| settings.policy.live_max = Some(keys))
    }

    /// With a [`lease`](Self::lease), how often a request is tried that fails or whose process dies. After the last
    /// time it is answered with `500` and nothing runs any more: it may have done something at a vendor's that somebody
    /// has to look at, so this is logged as an error, and `twinbox keys list --unfinished` shows it. A `503` counts as
    /// no failure. By default it is tried for as long as it comes.
    #[must_use]
    pub fn attempts_max(self, attempts: u32) -> Self {
        self.with(|settings| settings.attempts_max = Some(attempts.max(1)))
    }

    /// Replays carry `Idempotent-Replayed: true` too, as those of Stripe do.
    #[must_use]
    pub fn say_replayed(self) -> Self {
        self.with(|settings| settings.also_replayed = true)
    }

    /// Logs and spans have the keys themselves, and not the first 8 digits of their digest. Keys may tell who paid for
    /// what.
    #[must_use]
    pub fn log_raw_keys(self) -> Self {
        self.with(|settings| settings.keys_logged = true)
    }

    /// Counts `idempotent.replays` and `idempotent.conflicts` too, beside `idempotent.replayed` and `idempotent.conflict`.
    #[must_use]
    pub fn alias_names(self) -> Self {
        self.with(|settings| settings.alias_names = true)
    }
}

impl<DB: Dialect> Clone for Idempotency<DB> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<DB: Dialect> Clone for Settings<DB> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            scope: self.scope.clone(),
            keys: self.keys.clone(),
            excluded: self.excluded.clone(),
            also_kept: self.also_kept.clone(),
            caller: self.caller.clone(),
            render: self.render.clone(),
            wording: self.wording.clone(),
            flights: self.flights.clone(),
            rate: self.rate.clone(),
            running: self.running.clone(),
            waiters: self.waiters.clone(),
            ..*self
        }
    }
}

impl<DB: Dialect> fmt::Debug for Idempotency<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { scope, policy, lease, required, errors_kept, .. } = &*self.0;
        f.debug_struct("Idempotency")
            .field("scope", scope)
            .field("policy", policy)
            .field("lease", lease)
            .field("required", required)
            .field("errors_kept", errors_kept)
            .finish_non_exhaustive()
    }
}
