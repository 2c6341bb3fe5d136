use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use twinbox::{Delivery, Event, HandlerResult, Tx, event_handler};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

#[event_handler(max_attempts = 3)]
async fn nameless(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "Billing Invoice")]
async fn not_a_name(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(
    consumer = "billing.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)]
async fn too_long(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a", max_attempt = 3, retries = 3)]
async fn misspelt(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a", max_attempts = 3, max_attempts = 4)]
async fn twice(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a", max_attempts = 0, concurrency = 0, batch = 0)]
async fn never(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a", max_attempts = "three", order = "keys", timeout = "30 seconds")]
async fn unreadable(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a", timeout = 30)]
async fn without_a_unit(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a", order)]
async fn valueless(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler("a")]
async fn optionless(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

fn main() {}
