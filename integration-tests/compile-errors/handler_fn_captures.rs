use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use twinbox::{Consumer, Delivery, Event, Policy, Store, Tx, handler_fn};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

fn consumer(store: Store<Postgres>, offset: i64) -> Consumer<Postgres, ()> {
    let handler = async move |_: &(), _: &mut Tx<'_, Postgres>, _: Delivery<Placed>| {
        println!("{offset}");
        Ok(())
    };
    Consumer::new(store, ()).register(handler_fn(Policy::new("a"), handler))
}

fn main() {}
