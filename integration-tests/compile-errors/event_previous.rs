use serde::{Deserialize, Serialize};
use twinbox::Event;

#[derive(Deserialize, Event)]
#[event(type = "orders.paid", version = 2, retired)]
struct Paid;

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 3, previous = Paid)]
struct OfAnotherType;

impl From<Paid> for OfAnotherType {
    fn from(_: Paid) -> Self {
        Self
    }
}

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.paid", version = 2, previous = Paid)]
struct NotOlder;

impl From<Paid> for NotOlder {
    fn from(_: Paid) -> Self {
        Self
    }
}

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.paid", version = 3, previous = Paid)]
struct NoConversion;

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.paid", version = 3, previous = String)]
struct NoVersion;

impl From<String> for NoVersion {
    fn from(_: String) -> Self {
        Self
    }
}

fn main() {}
