use twinbox::Event;

#[derive(Event)]
struct Nameless;

#[derive(Event)]
#[event(type = "orders.*", version = 0)]
struct Wild;

#[derive(Event)]
#[event(
    type = "orders.placed.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    version = 1
)]
struct Long;

#[derive(Event)]
#[event(type = "orders.placed", verison = 1, name = "placed")]
struct Misspelt;

#[derive(Event)]
#[event(type = "orders.placed", version = 1, version = 2)]
struct Twice;

#[derive(Event)]
#[event(type = "orders.placed", version = 1, key = "order_id", subject = self.order_id, previous = 1)]
struct Unreadable {
    order_id: i64,
}

#[derive(Event)]
#[event(type = "orders.placed", version = 1, key)]
struct Valueless {
    order_id: i64,
}

#[derive(Event)]
#[event(type = "orders.placed", version = 1)]
struct Misplaced {
    #[event(key)]
    order_id: i64,
}

#[derive(Event)]
#[event(type = "orders.placed", version = 1)]
struct Generic<T> {
    order: T,
}

#[derive(Event)]
#[event(type = "orders.placed", version = 1, retired, key = order_id, subject = order_id)]
struct Retired {
    order_id: i64,
}

#[derive(Event)]
#[event(type = "orders.placed", version = 1, key = order_id, subject = order_id)]
struct Absent {
    order_id: Option<i64>,
}

fn main() {}
