use serde::{Deserialize, Serialize};
use sqlx::{Postgres, Transaction};
use twinbox::{Delivery, Event, HandlerResult, event_handler};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

#[event_handler(consumer = "a")]
async fn old(tx: &mut Transaction<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(())
}

fn main() {}
