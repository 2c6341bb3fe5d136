//! A service that makes payments and refunds.
mod callers;
mod payments;
mod refunds;

use axum::{
    Router,
    http::header,
    middleware::from_fn,
    routing::{get, post},
};
use twinbox::{Dialect, Error, Store, http::Idempotency};

/// The description of the API for callers.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// Creates the service, and its tables where they are missing.
pub async fn app<DB: Dialect>(store: Store<DB>) -> Result<Router, Error> {
    store.migrate().await?;
    for table in [payments::TABLE, refunds::TABLE] {
        let mut tx = store.begin().await?;
        sqlx::raw_sql(table).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    // A refund moves money too, so it has the same settings.
    let once = Idempotency::new(store, callers::of).money();
    Ok(Router::new()
        .route("/payments", post(payments::create::<DB>).route_layer(once.clone()))
        .route("/refunds", post(refunds::create::<DB>).route_layer(once))
        // Outside of the idempotency layer: an unauthenticated caller gets no stored response.
        .layer(from_fn(callers::authenticate))
        .route("/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI))))
}
