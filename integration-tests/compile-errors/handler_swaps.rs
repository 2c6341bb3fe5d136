use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres};
use twinbox::{Delivery, Event, HandlerResult, Tx, event_handler};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

#[event_handler(consumer = "a")]
async fn swaps(pool: &PgPool, tx: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    let mut mine = pool.begin().await?;
    std::mem::swap(tx, &mut mine);
    Ok(())
}

fn main() {}
