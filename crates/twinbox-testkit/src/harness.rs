//! Delivers events to handlers, with the faults that a handler must survive.
mod delivery;
mod idempotence;
mod order;
mod restart;
mod snapshot;

pub use delivery::Harness;
pub use order::AnyOrder;
