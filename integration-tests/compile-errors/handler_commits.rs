use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use twinbox::{Delivery, Event, HandlerResult, Tx, event_handler};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

#[event_handler(consumer = "a")]
async fn commits(tx: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    tx.commit().await?;
    Ok(())
}

#[event_handler(consumer = "a")]
async fn rolls_back(tx: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    tx.rollback().await?;
    Ok(())
}

fn main() {}
