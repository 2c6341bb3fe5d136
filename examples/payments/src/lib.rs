//! A service that takes payments and gives them back.
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

/// What callers are promised.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// The service, on tables that it makes where they are missing.
pub async fn app<DB: Dialect>(store: Store<DB>) -> Result<Router, Error> {
    store.migrate().await?;
    for table in [payments::TABLE, refunds::TABLE] {
        let mut tx = store.begin().await?;
        sqlx::raw_sql(table).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    // What can be made can be undone, under the same rules.
    let once = Idempotency::new(store, callers::of).money();
    Ok(Router::new()
        .route("/payments", post(payments::create::<DB>).route_layer(once.clone()))
        .route("/refunds", post(refunds::create::<DB>).route_layer(once))
        // Outside of the keys: who may not ask gets no stored answer.
        .layer(from_fn(callers::authenticate))
        .route("/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI))))
}
