use serde::{Deserialize, Serialize};
use twinbox::Event;

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = order_id)]
struct Keyless {
    id: i64,
}

#[derive(Serialize, Deserialize)]
struct Order {
    id: Option<i64>,
}

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, subject = order.id)]
struct Absent {
    order: Order,
}

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = order)]
struct Textless {
    order: Order,
}

fn main() {}
