use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use twinbox::{Consumer, Delivery, Event, HandlerResult, Policy, Store, Tx, handler_fn};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

async fn not_send(_: &(), tx: &mut Tx<'_, Postgres>, event: Delivery<Placed>) -> HandlerResult {
    let shared = std::rc::Rc::new(1);
    tx.publish(&event.into_event()).await?;
    drop(shared);
    Ok(())
}

async fn swapped(_: &(), _: Delivery<Placed>, _: &mut Tx<'_, Postgres>) -> HandlerResult {
    Ok(())
}

fn consumer(store: Store<Postgres>) -> Consumer<Postgres, ()> {
    Consumer::new(store, ())
        .register(handler_fn(Policy::new("a"), not_send))
        .register(handler_fn(Policy::new("b"), swapped))
}

fn main() {}
