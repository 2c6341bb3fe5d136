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
use std::env;
use tokio::net::TcpListener;
use twinbox::{Dialect, Error, Store, http::Idempotency, sqlite};

/// The description of the API for callers.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// Serves `POST /payments` and `POST /refunds`, each once for an `Idempotency-Key`, until the process ends.
/// It uses SQLite, or the Postgres that `DATABASE_URL` names.
///
/// # Errors
/// The database failed, or the address is taken.
pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_env_filter("info,sqlx=warn").init();
    let app = match env::var("DATABASE_URL") {
        Ok(url) => app(Store::new(sqlx::PgPool::connect(&url).await?, "payments")?).await?,
        Err(_) => app(Store::new(sqlite::open("payments.db").await?, "payments")?).await?,
    };
    let listener = TcpListener::bind(env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

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
