//! `POST /payments` and `POST /refunds`, each once for an `Idempotency-Key`: `cargo run -p payments`. On SQLite, or on the
//! Postgres that `DATABASE_URL` names.
mod callers;
mod payments;
mod refunds;

use axum::{
    Router,
    http::header,
    middleware::from_fn,
    routing::{get, post},
};
use std::{env, error::Error};
use tokio::net::TcpListener;
use twinbox::{Dialect, Store, http::Idempotency, sqlite};

/// What callers are promised.
const OPENAPI: &str = include_str!("../openapi.json");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("info,sqlx=warn").init();
    match env::var("DATABASE_URL") {
        Ok(url) => serve(Store::new(sqlx::PgPool::connect(&url).await?, "payments")?).await,
        Err(_) => serve(Store::new(sqlite::open("payments.db").await?, "payments")?).await,
    }
}

async fn serve<DB: Dialect>(store: Store<DB>) -> Result<(), Box<dyn Error>> {
    store.migrate().await?;
    for table in [payments::TABLE, refunds::TABLE] {
        let mut tx = store.begin().await?;
        sqlx::raw_sql(table).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    let listener = TcpListener::bind(env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app(store)).await?)
}

fn app<DB: Dialect>(store: Store<DB>) -> Router {
    // What can be made can be undone, under the same rules.
    let once = Idempotency::new(store, callers::of).money();
    Router::new()
        .route("/payments", post(payments::create::<DB>).route_layer(once.clone()))
        .route("/refunds", post(refunds::create::<DB>).route_layer(once))
        // Outside of the keys: who may not ask gets no stored answer.
        .layer(from_fn(callers::authenticate))
        .route("/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI)))
}
