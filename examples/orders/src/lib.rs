//! What the shop and the billing department have in common: one event and where things are.
pub mod billing;
pub mod place;

use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use std::{env, error::Error, io::IsTerminal as _};
use twinbox::{CancellationToken, Event, Store, nats::NatsOptions};

/// An order was placed.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = order_id)]
pub struct OrderPlaced {
    /// Which order.
    pub order_id: i64,
    /// What it comes to.
    pub cents: i64,
}

/// The database of the service `service`: `DATABASE_URL`, or Postgres on this machine.
///
/// # Errors
/// The database cannot be reached, or its tables belong to another service.
pub async fn store(service: &str) -> Result<Store<sqlx::Postgres>, Box<dyn Error>> {
    let url = env::var("DATABASE_URL").unwrap_or("postgres://localhost/orders".to_owned());
    let store = Store::new(PgPool::connect(&url).await?, service)?;
    store.migrate().await?;
    Ok(store)
}

/// The stream that the relay publishes to: `NATS_URL`, or NATS on this machine.
pub fn nats() -> NatsOptions {
    NatsOptions::new(env::var("NATS_URL").unwrap_or("nats://localhost:4222".to_owned()))
        .stream("ORDERS")
        .prefix("orders")
}

/// Cancelled by Ctrl-C.
pub fn stop_at_ctrl_c() -> CancellationToken {
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            asked.cancel();
        }
    });
    stop
}

/// Logs to stderr: `RUST_LOG`, warnings by default.
pub fn log() {
    let filter = env::var("RUST_LOG").unwrap_or("warn".to_owned());
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
}
