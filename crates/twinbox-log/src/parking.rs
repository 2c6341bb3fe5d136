//! The order of keys between a log and its readers, and the parked messages, so that other keys go on.
//!
//! One engine for the relay and for consumers that keep the order of a broker's log. [`Queue`] holds the
//! [lanes](twinbox_core::lanes) and writes to one of two tables: the parked rows of a destination name
//! messages of the log, those of a consumer hold them. A parked message is committed, behind the fence of its
//! owner, before any later message of its key is handed out. So an owner that has lost its lease can repeat
//! first deliveries and never reverse them.
mod book;
mod bounds;
#[cfg(test)]
mod model;
mod owner;
mod progress;
mod queue;
mod row;
mod state;
mod store;

pub use bounds::{PARKED_BYTES_MAX, PARKED_MAX};
pub(crate) use owner::CursorOwner;
pub use owner::Owner;
pub use queue::Queue;
pub use state::{Parkable, ParkedState};
