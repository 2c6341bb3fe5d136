//! What a handler gets of its key.
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};
use twinbox_sql::{
    Dialect, Error, ErrorKind, Tx,
    operation::{Lease, Operation},
};

/// The transaction that commits with the key when the handler has answered. An argument of a handler behind
/// [`Idempotency`](crate::Idempotency):
///
/// ```
/// # use axum::{Json, http::StatusCode};
/// # use twinbox_http::{Fault, IdemTx};
/// # use sqlx::Postgres;
/// async fn create_payment(mut idem: IdemTx<Postgres>, Json(cents): Json<i64>) -> Result<StatusCode, Fault> {
///     let mut tx = idem.tx();
///     sqlx::query("INSERT INTO payments (cents) VALUES ($1)").bind(cents).execute(&mut *tx).await?;
///     Ok(StatusCode::CREATED)
/// }
/// ```
///
/// Return it by letting it go out of scope: what is still held when the handler has answered is not committed, and the
/// caller gets `500`.
pub struct IdemTx<DB: Dialect> {
    operation: Option<Operation<DB>>,
    held: Held<DB>,
}

/// The key of a request, held without a transaction, on routes with [`lease`](crate::Idempotency::lease). For handlers that
/// call a vendor half-way: save how far it has come, and end in [`begin`](Self::begin).
///
/// ```
/// # use axum::http::StatusCode;
/// # use twinbox_http::{Fault, IdemLease};
/// # use {sqlx::Postgres, std::time::Duration};
/// # async fn charge(idempotency_key: &str) -> Result<String, std::io::Error> { Ok(idempotency_key.to_owned()) }
/// # async fn charge_of(payment: &str) -> Result<Option<String>, std::io::Error> { Ok(None) }
/// # const PAYMENT: &str = "";
/// /// Stripe forgets keys after 24 hours. One hour is for the call, and for clocks that differ.
/// const REMEMBERED: Duration = Duration::from_secs(23 * 3600);
///
/// async fn create_payment(mut lease: IdemLease<Postgres>) -> Result<StatusCode, Fault> {
///     let charge = match lease.recovery_point() {
///         Some(charge) => charge.to_owned(),
///         None => match lease.token_within("charge", 0, REMEMBERED).await? {
///             Some(token) => charge(&token).await?,
///             // Called or not, a day ago: ask the vendor, by what it was given beside the key.
///             None => charge_of(PAYMENT).await?.ok_or("whether it was charged is not known: look")?,
///         },
///     };
///     lease.save(&charge).await?;
///     let mut idem = lease.begin().await?;
///     sqlx::query("INSERT INTO payments (charge) VALUES ($1)").bind(charge).execute(&mut *idem.tx()).await?;
///     Ok(StatusCode::CREATED)
/// }
/// ```
pub struct IdemLease<DB: Dialect> {
    lease: Option<Lease<DB>>,
    held: Held<DB>,
}

/// Between the layer and the handler.
pub(crate) struct Held<DB: Dialect>(Arc<Shared<DB>>);

struct Shared<DB: Dialect> {
    work: Mutex<Work<DB>>,
    used: AtomicBool,
    /// The handler itself has run, and not only its extractors.
    touched: AtomicBool,
    /// Transactions that the handler has and has not given back.
    lent: AtomicUsize,
    /// Another has the key.
    fenced: AtomicBool,
    /// What is published belongs to this trace.
    traceparent: Option<String>,
}

/// What the handler has given back, or not taken.
pub(crate) struct Work<DB: Dialect> {
    pub(crate) operation: Option<Operation<DB>>,
    pub(crate) lease: Option<Lease<DB>>,
}

impl<DB: Dialect> Work<DB> {
    pub(crate) fn of(operation: Operation<DB>) -> Self {
        Self { operation: Some(operation), lease: None }
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.lease.as_ref().map_or(1, Lease::attempt)
    }

    /// How many more failures there may be, if they are counted: without a lease nobody keeps them.
    pub(crate) fn failures_left(&self, max: Option<u32>) -> Option<u32> {
        Some(max?.saturating_sub(self.lease.as_ref()?.failures()))
    }
}

impl<DB: Dialect> Held<DB> {
    pub(crate) fn new(work: Work<DB>, traceparent: Option<String>) -> Self {
        Self(Arc::new(Shared {
            work: Mutex::new(work),
            used: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            lent: AtomicUsize::new(0),
            fenced: AtomicBool::new(false),
            traceparent,
        }))
    }

    fn tx(self, mut operation: Operation<DB>) -> IdemTx<DB> {
        self.0.lent.fetch_add(1, Relaxed);
        operation.correlate(None, self.0.traceparent.clone());
        IdemTx { operation: Some(operation), held: self }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Work<DB>) -> T) -> T {
        change(&mut self.0.work.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn take(&self) -> Work<DB> {
        self.with(|work| Work { operation: work.operation.take(), lease: work.lease.take() })
    }

    pub(crate) fn is_used(&self) -> bool {
        self.0.used.load(Relaxed)
    }

    fn touch(&self) {
        self.0.touched.store(true, Relaxed);
    }

    /// Whether the handler has done something with what it was given.
    pub(crate) fn is_touched(&self) -> bool {
        self.0.touched.load(Relaxed)
    }

    /// Whether the handler goes on with a transaction although it has answered.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.lent.load(Acquire) > 0
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.0.fenced.load(Relaxed)
    }

    /// The layer answers with what the other did, whatever the handler makes of the error.
    fn told<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::LeaseLost) {
            self.0.fenced.store(true, Relaxed);
        }
        result
    }

    fn of(parts: &Parts) -> Result<Self, Refused> {
        let held = parts.extensions.get::<Self>().cloned();
        held.ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "the route needs the layer `Idempotency` of this database",
        ))
    }
}

impl<DB: Dialect> Clone for Held<DB> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

type Refused = (StatusCode, &'static str);

impl<DB: Dialect, S: Sync> FromRequestParts<S> for IdemTx<DB> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let held = Held::of(parts)?;
        let operation = held.with(|work| work.operation.take()).ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "a handler has one `IdemTx`, and on a route with a lease gets it from `IdemLease::begin`",
        ))?;
        held.0.used.store(true, Relaxed);
        Ok(held.tx(operation))
    }
}

impl<DB: Dialect, S: Sync> FromRequestParts<S> for IdemLease<DB> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let held = Held::of(parts)?;
        let lease = held.with(|work| work.lease.take()).ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "a handler has one `IdemLease`, on a route with `Idempotency::lease`",
        ))?;
        held.0.used.store(true, Relaxed);
        Ok(Self { lease: Some(lease), held })
    }
}

impl<DB: Dialect> IdemTx<DB> {
    /// The transaction, as event handlers have it: it dereferences to the connection and publishes.
    pub fn tx(&mut self) -> Tx<'_, DB> {
        self.held.touch();
        self.operation.as_mut().expect("it is there until it is dropped").tx()
    }

    /// Undoes what was written, instead of committing it with the answer. On a route with a lease the handler may
    /// [begin](IdemLease::begin) another one; on others it has none any more, and what it answers then is `500`.
    pub async fn roll_back(mut self) {
        if let Some(operation) = self.operation.take() {
            operation.abandon().await;
        }
    }
}

impl<DB: Dialect> IdemLease<DB> {
    fn lease(&self) -> &Lease<DB> {
        self.held.touch();
        self.lease.as_ref().expect("it is there until it is dropped")
    }

    /// Which try this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.lease().attempt()
    }

    /// What the last try that came to [`save`](Self::save) has saved.
    pub fn recovery_point(&self) -> Option<&str> {
        self.lease().recovery_point()
    }

    /// The idempotency key for a vendor that remembers its keys for `window`: the same for each try of this request,
    /// another for each `kind` of call and each `generation`, of which the first is 0. A request that uses the
    /// `Idempotency-Key` again after that has expired gets another one.
    ///
    /// None: it was given out `window` ago or earlier, by the clock of the database, and the vendor may have forgotten it.
    /// **What became of the call is unknown**: with this token or a fresh one it might be done twice. Ask the vendor, by
    /// what you gave it beside the key. Only if it says that nothing was done, go on with the next generation, which has a
    /// window of its own. Count up as well after the vendor has refused: many keep such an answer under the key, and would
    /// give it again.
    ///
    /// Stripe forgets keys when they are at least 24 hours old: a window of 23 hours leaves an hour for the call itself and
    /// for clocks that differ. For a vendor that never forgets: [`Duration::MAX`].
    ///
    /// That it was given out is committed first. From then on the key belongs to this request, even if it fails, and does
    /// not expire before the request has ended: `twinbox keys list --unfinished` shows those that never do.
    ///
    /// # Errors
    /// Another has the key, because this one stood still for longer than the lease: call nobody. An `IdemTx` was begun, and
    /// not [rolled back](IdemTx::roll_back). The kind has more than 255 bytes, or there are too many. Or the database
    /// refused or is away.
    pub async fn token_within(
        &self,
        kind: &str,
        generation: u32,
        window: Duration,
    ) -> Result<Option<String>, Error> {
        self.held.told(self.lease().token_within(kind, generation, window).await)
    }

    /// Commits how far the request has come, for whoever goes on after this one. From then on the key belongs to this
    /// request, even if it fails, and does not expire before the request has ended. Save before [`begin`](Self::begin):
    /// what was written in an `IdemTx` commits with the answer, and not before it.
    ///
    /// # Errors
    /// Another has the key, because this one stood still for longer than the lease. [`ErrorKind::Conflict`]: an `IdemTx`
    /// was begun, and not [rolled back](IdemTx::roll_back), whether or not it was dropped; nothing is saved, and what it
    /// wrote commits with the answer all the same. Or the database refused or is away.
    pub async fn save(&mut self, point: &str) -> Result<(), Error> {
        self.held.touch();
        let saved = self.lease.as_mut().expect("it is there until it is dropped").save(point).await;
        self.held.told(saved)
    }

    /// Begins the transaction that commits with the key when the handler has answered: one, unless the one before was
    /// [rolled back](IdemTx::roll_back).
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub async fn begin(&self) -> Result<IdemTx<DB>, Error> {
        let operation = self.held.told(self.lease().begin().await)?;
        Ok(self.held.clone().tx(operation))
    }
}

impl<DB: Dialect> Drop for IdemTx<DB> {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.held.with(|work| work.operation = Some(operation));
        }
        self.held.0.lent.fetch_sub(1, Release);
    }
}

impl<DB: Dialect> Drop for IdemLease<DB> {
    fn drop(&mut self) {
        let lease = self.lease.take();
        self.held.with(|work| work.lease = lease);
    }
}

impl<DB: Dialect> fmt::Debug for IdemTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdemTx").field("database", &DB::NAME).finish_non_exhaustive()
    }
}

impl<DB: Dialect> fmt::Debug for IdemLease<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdemLease").field("key", &self.lease.as_ref().map(Lease::key)).finish_non_exhaustive()
    }
}
