use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use twinbox::{BatchTx, Delivery, Event, HandlerResult, Tx, event_handler};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

#[event_handler(consumer = "a", batch = 200)]
async fn one(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn many(_: &mut BatchTx<'_, Postgres>, _: Vec<Delivery<Placed>>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a", batch = 200)]
async fn many_in_tx(_: &mut Tx<'_, Postgres>, _: Vec<Delivery<Placed>>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a", batch = 200)]
async fn one_in_batch_tx(_: &mut BatchTx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

// Allowed: keys in order, a batch of them at a time.
#[event_handler(consumer = "a", batch = 200, order = "key")]
async fn causeless(tx: &mut BatchTx<'_, Postgres>, _: Vec<Delivery<Placed>>) -> HandlerResult {
    tx.publish(&Placed).await?;
    Ok(())
}

fn main() {}
