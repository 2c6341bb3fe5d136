//! The handler's transaction.
use crate::handover::{Borrowed, Handover, OpenTransaction, Rejection};
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use std::fmt;
use twinbox_sql::{Dialect, Tx};

/// The transaction that commits together with the key and the response.
///
/// A handler behind [`Idempotency`](crate::Idempotency) or [`webhook::Inbound`](crate::webhook::Inbound)
/// takes it as an argument. The layer commits after the handler has responded, and sends the response after
/// the commit.
///
/// ```
/// # use axum::{Router, body::Body, http::Request, routing::post};
/// # use tower::ServiceExt as _;
/// # use twinbox_http::{Caller, Idempotency};
/// # use twinbox_sql::{Store, sqlite};
/// use axum::{Json, http::StatusCode};
/// use sqlx::Sqlite;
/// use twinbox_http::{IdemTx, ServerError};
///
/// async fn create_payment(
///     mut idem: IdemTx<Sqlite>,
///     Json(cents): Json<i64>,
/// ) -> Result<StatusCode, ServerError> {
///     let mut tx = idem.tx(); // It also publishes: `tx.publish(&PaymentMade { … })`.
///     sqlx::query("INSERT INTO payments (cents) VALUES (?)").bind(cents).execute(&mut *tx).await?;
///     Ok(StatusCode::CREATED)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let store = Store::new(sqlite::open(folder.path().join("shop.db")).await?, "shop")?;
/// # store.migrate().await?;
/// # sqlx::query("CREATE TABLE payments (cents INTEGER NOT NULL)").execute(store.pool()).await?;
/// # let layer = Idempotency::new(store.clone(), Caller::single);
/// # let app = Router::new().route("/payments", post(create_payment).route_layer(layer));
/// # for _ in 0..2 {
/// #     let request = Request::post("/payments").header("idempotency-key", "order-7");
/// #     let request = request.header("content-type", "application/json").body(Body::from("4200"))?;
/// #     assert_eq!(app.clone().oneshot(request).await?.status(), StatusCode::CREATED);
/// # }
/// # let made: i64 = sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(store.pool()).await?;
/// # assert_eq!(made, 1);
/// # Ok(())
/// # }
/// ```
///
/// Drop it before the handler returns. A transaction that the handler has moved elsewhere, such as into a
/// spawned task, is not committed, and the caller gets `500`.
pub struct IdemTx<DB: Dialect> {
    transaction: Borrowed<OpenTransaction<DB>>,
    handover: Handover<DB>,
}

impl<DB: Dialect> IdemTx<DB> {
    pub(crate) fn new(transaction: Borrowed<OpenTransaction<DB>>, handover: Handover<DB>) -> Self {
        Self { transaction, handover }
    }

    /// Returns the transaction in the form that event handlers have: it dereferences to the connection and
    /// publishes.
    pub fn tx(&mut self) -> Tx<'_, DB> {
        self.handover.note_use();
        self.transaction.operation.tx()
    }

    /// Rolls the writes back instead of committing them with the response.
    ///
    /// On a route with a lease the handler may [begin](crate::IdemLease::begin) another transaction. On other
    /// routes nothing can commit any more, and the caller gets `500`.
    pub async fn roll_back(self) {
        self.handover.roll_back(self.transaction).await;
    }
}

impl<DB: Dialect, S: Sync> FromRequestParts<S> for IdemTx<DB> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        let handover = Handover::of(parts)?;
        let transaction = handover.borrow_transaction().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "a handler has one `IdemTx`, and on a route with a lease gets it from `IdemLease::begin`",
        ))?;
        Ok(Self { transaction, handover })
    }
}

impl<DB: Dialect> fmt::Debug for IdemTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdemTx").field("database", &DB::NAME).finish_non_exhaustive()
    }
}
