use serde::{Deserialize, Serialize};
use sqlx::{Postgres, Sqlite};
use twinbox::{Consumer, Delivery, Event, HandlerResult, Store, Tx, event_handler};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

#[event_handler(consumer = "a")]
async fn invoice(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

fn consumer(store: Store<Sqlite>) -> Consumer<Sqlite, ()> {
    Consumer::new(store, ()).handler::<invoice>()
}

fn main() {}
