use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use twinbox::{Delivery, Dialect, Event, HandlerResult, Tx, event_handler};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

struct App;

#[event_handler(consumer = "a")]
struct NoFunction;

#[event_handler(consumer = "a")]
fn not_async(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn without_arguments() -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn two_states(_: &App, _: &App, _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn state_by_value(_: App, _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn state_mutable(_: &mut App, _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn tx_by_value(_: Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn tx_shared(_: &Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn swapped(_: Delivery<Placed>, _: &mut Tx<'_, Postgres>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn silent(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) {}

#[event_handler(consumer = "a")]
async fn too_generic<DB: Dialect, E: Event>(_: &mut Tx<'_, DB>, _: Delivery<E>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "a")]
async fn bare_event(_: &mut Tx<'_, Postgres>, _: Placed) -> HandlerResult {
    Ok(())
}

impl App {
    #[event_handler(consumer = "a")]
    async fn method(&self, _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
        Ok(())
    }
}

fn main() {}
