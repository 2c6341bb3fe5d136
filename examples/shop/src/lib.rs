//! From an order to its invoice, with axum, Postgres, and the pool that the application already has:
//! `DATABASE_URL=postgres://… cargo run -p shop`.
use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres};
use std::{env, error::Error};
use tokio::net::TcpListener;
use twinbox::{
    CancellationToken, Consumer, Delivery, Event, HandlerResult, Outbox, Store, Tx, event_handler,
};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS orders (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        cents bigint NOT NULL CHECK (cents > 0)
    );
    CREATE TABLE IF NOT EXISTS invoices (order_id bigint NOT NULL, cents bigint NOT NULL)";

/// The event that an order was placed. Events of one key are handled in their order.
#[derive(Debug, PartialEq, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = order_id)]
struct OrderPlaced {
    order_id: i64,
    cents: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct NewOrder {
    cents: i64,
}

#[derive(Clone)]
struct App {
    pool: PgPool,
    outbox: Outbox<Postgres>,
}

/// The order and its event commit together, or neither does.
async fn place(State(app): State<App>, Json(order): Json<NewOrder>) -> Result<Response, Failure> {
    // `app.pool.begin()` works too. This one also survives a caller that hangs up at this moment.
    let mut tx = twinbox::begin(&app.pool).await?;
    let order_id = sqlx::query_scalar("INSERT INTO orders (cents) VALUES ($1) RETURNING id")
        .bind(order.cents)
        .fetch_one(&mut *tx)
        .await?;
    let placed = OrderPlaced { order_id, cents: order.cents };
    app.outbox.publish(&mut tx, &placed).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(placed)).into_response())
}

/// The invoice and the claim of the message commit together. An error rolls both back, and the message comes
/// again. A message that comes twice runs this once.
#[event_handler(consumer = "billing.invoice")]
async fn invoice(tx: &mut Tx<'_, Postgres>, order: Delivery<OrderPlaced>) -> HandlerResult {
    sqlx::query("INSERT INTO invoices (order_id, cents) VALUES ($1, $2)")
        .bind(order.order_id)
        .bind(order.cents)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Why an order was not placed.
struct Failure(Box<dyn Error + Send + Sync>);

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let refused = self.0.downcast_ref().and_then(sqlx::Error::as_database_error);
        match refused {
            Some(refused) if refused.is_check_violation() => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
            _ => (StatusCode::SERVICE_UNAVAILABLE, self.0.to_string()).into_response(),
        }
    }
}

/// Creates the tables where they are missing. Returns the store of Twinbox on the pool, and the service.
async fn app(pool: PgPool) -> Result<(Store<Postgres>, Router), Box<dyn Error>> {
    let store = Store::new(pool.clone(), "shop")?;
    store.migrate().await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;
    let app = App { pool, outbox: store.outbox() };
    Ok((store, Router::new().route("/orders", post(place)).with_state(app)))
}

/// Serves `POST /orders` and invoices what is placed, until Ctrl-C.
///
/// # Errors
/// `DATABASE_URL` is missing, the database failed, or the address is taken.
pub async fn run() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("info,sqlx=warn").init();
    let (store, app) = app(PgPool::connect(&env::var("DATABASE_URL")?).await?).await?;
    let stop = CancellationToken::new();
    // Billing may as well be another process, or another service behind a broker.
    let billing = tokio::spawn(Consumer::new(store, ()).handler::<invoice>().run(stop.clone()));
    let listener = TcpListener::bind(env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await }).await?;
    stop.cancel();
    Ok(billing.await??)
}

#[cfg(test)]
mod tests;
