//! A key that a handler holds without a transaction.
use crate::{
    handover::{Borrowed, Handover, Rejection},
    idem_tx::IdemTx,
};
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use std::{fmt, time::Duration};
use twinbox_sql::{Dialect, Error, operation::OperationLease};

/// Holds the key of a request without an open transaction, while the handler calls a vendor.
///
/// A handler on a route with [`Idempotency::lease`](crate::Idempotency::lease) takes it as an argument. It
/// saves its progress after each call, and ends in [`begin`](Self::begin). If the process crashes, the next
/// attempt of the request finds the saved progress.
///
/// ```
/// # use axum::{Router, body::Body, http::Request, routing::post};
/// # use tower::ServiceExt as _;
/// # use twinbox_http::{Caller, Idempotency};
/// # use twinbox_sql::{Store, sqlite};
/// # async fn charge(idempotency_key: &str) -> Result<String, std::io::Error> {
/// #     Ok(format!("charge of {idempotency_key}"))
/// # }
/// # async fn find_charge(order: i64) -> Result<Option<String>, std::io::Error> { Ok(None) }
/// use axum::{Json, http::StatusCode};
/// use sqlx::Sqlite;
/// use std::time::Duration;
/// use twinbox_http::{IdemLease, ServerError};
///
/// /// The vendor forgets keys after 24 hours. One hour is a margin for the call and for clocks that differ.
/// const WINDOW: Duration = Duration::from_secs(23 * 3600);
///
/// async fn pay(mut lease: IdemLease<Sqlite>, Json(order): Json<i64>) -> Result<StatusCode, ServerError> {
///     let charge_id = match lease.recovery_point() {
///         Some(charge_id) => charge_id.to_owned(),
///         None => match lease.token_within("charge", 0, WINDOW).await? {
///             Some(token) => charge(&token).await?,
///             // An earlier attempt may have called the vendor, more than 23 hours ago: look the charge up.
///             None => find_charge(order).await?.ok_or("the charge may exist: ask the vendor")?,
///         },
///     };
///     lease.save(&charge_id).await?;
///     let mut idem = lease.begin().await?;
///     let insert = sqlx::query("INSERT INTO payments (charge_id) VALUES (?)").bind(charge_id);
///     insert.execute(&mut *idem.tx()).await?;
///     Ok(StatusCode::CREATED)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let store = Store::new(sqlite::open(folder.path().join("shop.db")).await?, "shop")?;
/// # store.migrate().await?;
/// # sqlx::query("CREATE TABLE payments (charge_id TEXT NOT NULL)").execute(store.pool()).await?;
/// # let layer = Idempotency::new(store.clone(), Caller::single).lease(Duration::from_secs(60));
/// # let app = Router::new().route("/payments", post(pay).route_layer(layer));
/// # for _ in 0..2 {
/// #     let request = Request::post("/payments").header("idempotency-key", "order-7");
/// #     let request = request.header("content-type", "application/json").body(Body::from("7"))?;
/// #     assert_eq!(app.clone().oneshot(request).await?.status(), StatusCode::CREATED);
/// # }
/// # let made: i64 = sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(store.pool()).await?;
/// # assert_eq!(made, 1);
/// # Ok(())
/// # }
/// ```
pub struct IdemLease<DB: Dialect> {
    lease: Borrowed<OperationLease<DB>>,
    handover: Handover<DB>,
}

impl<DB: Dialect> IdemLease<DB> {
    fn lease(&self) -> &OperationLease<DB> {
        self.handover.note_use();
        &self.lease
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.lease().attempt()
    }

    /// The progress that an earlier attempt, or this one, has [saved](Self::save).
    pub fn recovery_point(&self) -> Option<&str> {
        self.lease().recovery_point()
    }

    /// Returns the idempotency key for a call of a vendor that remembers its keys for `window`.
    ///
    /// The key is the same for each attempt of this request. It differs for each `kind` of call and each
    /// `generation`, which begins at 0. A request that reuses its `Idempotency-Key` after the key has expired
    /// gets other tokens.
    ///
    /// `None` means that the token was first returned `window` ago or earlier, by the clock of the database.
    /// The vendor may have forgotten it. **Whether the call succeeded is unknown**: this token or a new one
    /// could repeat the call. Ask the vendor by other data of the call. Use the next generation only if the
    /// vendor has no such call. The next generation has its own window. Also use the next generation after
    /// the vendor has refused a call: many vendors store a refusal under the key and return it again.
    ///
    /// Stripe forgets keys after 24 hours at the earliest. A window of 23 hours leaves one hour for the call
    /// and for clocks that differ. Use [`Duration::MAX`] for a vendor that never forgets.
    ///
    /// The first use of a token is committed before this returns. From then on the key belongs to this
    /// request, even if the request fails, and the key does not expire before the request has finished. A
    /// request that never finishes is listed by `twinbox operations list`.
    ///
    /// # Errors
    /// - The lease ran out and another attempt has the key: do not call the vendor.
    /// - An `IdemTx` was begun and not [rolled back](IdemTx::roll_back).
    /// - The kind has more than 255 bytes, or there are too many tokens.
    /// - The database refused or is away.
    pub async fn token_within(
        &self,
        kind: &str,
        generation: u32,
        window: Duration,
    ) -> Result<Option<String>, Error> {
        self.handover.noting_lost_lease(self.lease().token_within(kind, generation, window).await)
    }

    /// Commits the progress of the request for a later attempt.
    ///
    /// From then on the key belongs to this request, even if the request fails, and the key does not expire
    /// before the request has finished. Save before [`begin`](Self::begin): the writes of an `IdemTx` commit
    /// with the response and not earlier.
    ///
    /// # Errors
    /// - The lease ran out and another attempt has the key.
    /// - [`ErrorKind::Conflict`](twinbox_sql::ErrorKind::Conflict): an `IdemTx` was begun and not [rolled
    ///   back](IdemTx::roll_back), dropped or not. Nothing is saved, and the writes of that `IdemTx` still
    ///   commit with the response.
    /// - The database refused or is away.
    pub async fn save(&mut self, point: &str) -> Result<(), Error> {
        self.handover.note_use();
        let saved = self.lease.save(point).await;
        self.handover.noting_lost_lease(saved)
    }

    /// Begins the transaction that commits together with the key and the response.
    ///
    /// A request has one such transaction, unless the handler [rolls it back](IdemTx::roll_back).
    ///
    /// # Errors
    /// The same as for [`save`](Self::save).
    pub async fn begin(&self) -> Result<IdemTx<DB>, Error> {
        let permit = self.lease().request_permit().await?;
        let operation = self.handover.noting_lost_lease(self.lease().begin().await)?;
        Ok(IdemTx::new(self.handover.borrow_begun(operation, permit).await, self.handover.clone()))
    }
}

impl<DB: Dialect, S: Sync> FromRequestParts<S> for IdemLease<DB> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        let handover = Handover::of(parts)?;
        let lease = handover.borrow_lease().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "a handler has one `IdemLease`, on a route with `Idempotency::lease`",
        ))?;
        Ok(Self { lease, handover })
    }
}

impl<DB: Dialect> fmt::Debug for IdemLease<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdemLease").field("key", self.lease.key()).finish_non_exhaustive()
    }
}
