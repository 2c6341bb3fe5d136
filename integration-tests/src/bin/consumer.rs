//! A consumer of orders with crash points: Postgres and NATS as the environment names them.
use integration_tests::OrderPlaced;
use sqlx::{PgPool, Postgres};
use std::{env, error::Error, time::Duration};
use twinbox::{
    CancellationToken, Consumer, Delivery, HandlerResult, Store, Tx, event_handler,
    nats::{Nats, NatsOptions},
};

#[event_handler(consumer = "billing.invoice", max_attempts = 50, concurrency = 16)]
async fn invoice(tx: &mut Tx<'_, Postgres>, order: Delivery<OrderPlaced>) -> HandlerResult {
    sqlx::query("INSERT INTO invoices (order_id, attempt) VALUES ($1, $2)")
        .bind(order.order_id)
        .bind(i64::from(order.attempt()))
        .execute(&mut **tx)
        .await?;
    if order.order_id < 0 {
        std::process::abort();
    }
    if order.order_id % 50 == 0 && order.attempt() == 1 {
        return Err("the printer is jammed".into());
    }
    Ok(())
}

/// Says in which order the orders of a customer came.
#[event_handler(consumer = "billing.ledger", max_attempts = 50, concurrency = 16, order = "key")]
async fn ledger(tx: &mut Tx<'_, Postgres>, order: Delivery<OrderPlaced>) -> HandlerResult {
    sqlx::query("INSERT INTO ledger (customer, order_id) VALUES ($1, $2)")
        .bind(order.customer)
        .bind(order.order_id)
        .execute(&mut **tx)
        .await?;
    if order.order_id % 50 == 7 && order.attempt() == 1 {
        return Err("the ink is dry".into());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    let store = Store::new(PgPool::connect(&env::var("DATABASE_URL")?).await?, "test")?;
    let stream = env::var("STREAM")?;
    let options = NatsOptions::new(env::var("NATS_URL")?)
        .stream(&stream)
        .prefix(stream.to_lowercase())
        .ack_wait(Duration::from_secs(2));
    let consumer = Consumer::new(store, ()).transport(Nats::with_options(options)?);
    let consumer = match env::var("ORDER").as_deref() {
        Ok("key") => consumer.handler::<ledger>(),
        _ => consumer.handler::<invoice>(),
    };
    Ok(consumer.run(CancellationToken::new()).await?)
}
