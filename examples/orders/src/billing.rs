//! Invoices orders until Ctrl-C. Kill it, start it twice, restart NATS below it: each order keeps one
//! invoice.
use crate::{OrderPlaced, log, nats, stop_at_ctrl_c, store};
use sqlx::Postgres;
use std::error::Error;
use twinbox::{Consumer, Delivery, HandlerError, HandlerResult, Tx, event_handler, nats::Nats};

#[event_handler(consumer = "billing.invoice", max_attempts = 12)]
async fn invoice(tx: &mut Tx<'_, Postgres>, order: Delivery<OrderPlaced>) -> HandlerResult {
    if order.cents < 0 {
        return Err(HandlerError::reject("an order cannot have a negative total"));
    }
    sqlx::query("INSERT INTO invoices (order_id, cents) VALUES ($1, $2)")
        .bind(order.order_id)
        .bind(order.cents)
        .execute(&mut **tx)
        .await?;
    println!("invoiced order {} (attempt {})", order.order_id, order.attempt());
    Ok(())
}

/// Invoices orders until Ctrl-C.
///
/// # Errors
/// The database or NATS failed.
pub async fn run() -> Result<(), Box<dyn Error>> {
    log();
    // The same database as the shop's here; in life a consumer has one of its own.
    let store = store("shop").await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS invoices (order_id bigint NOT NULL, cents bigint NOT NULL)")
        .execute(store.pool())
        .await?;
    let consumer = Consumer::new(store, ()).transport(Nats::with_options(nats())?).handler::<invoice>();
    Ok(consumer.run(stop_at_ctrl_c()).await?)
}
