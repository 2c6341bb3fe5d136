use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use twinbox::{Consumer, Delivery, Event, HandlerResult, Provide, Store, Tx, event_handler};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

struct App;

#[event_handler(consumer = "a")]
async fn invoice(_: &App, _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[derive(Provide)]
struct State {
    name: String,
    #[provide(skip)]
    app: App,
}

fn consumer(store: Store<Postgres>, state: State) -> Consumer<Postgres, State> {
    Consumer::new(store, state).handler::<invoice>()
}

fn main() {}
