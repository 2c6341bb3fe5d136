use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use twinbox::{Delivery, Event, Tx, event_handler};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

#[event_handler(consumer = "a")]
async fn typed(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
