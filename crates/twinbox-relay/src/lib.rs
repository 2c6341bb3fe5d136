//! Twinbox's relay: moves the outbox of a store to a destination.
//!
//! It owns the destination's cursor by lease, keeps a bounded number of messages on their way, one at a time
//! for each key, and records how far everything is settled. Killed at any point it goes on from there: at
//! most what settled since the last record (100 ms) is sent again, under the same ids.
//!
//! What a destination answers is one of three things:
//!
//! - It is down: the cursor stays, no message is counted as failed, and the relay tries the connection until it
//!   is back. A destination that asks for less is left alone for as long as it says.
//! - It refuses a message for now: the message is tried again, in place at first, then put aside in a row of its
//!   own, and later messages of its key are put aside behind it. All other keys go on. A type without a place
//!   waits like that until it gets one.
//! - It refuses a message for good, or too often: the message becomes a dead letter, see [`OnExhausted`]. Many
//!   in a minute are taken for a fault of the destination, which is then left alone.
//!
//! The promise about order: first deliveries of a key are in order; a duplicate may come late, at any age; compare
//! the sequence that every message carries. A message that is put aside is committed as such before a later one
//! of its key is sent.
//!
//! The program `twinbox-relay` (feature `bin`) is this library with a configuration file.
#[cfg(feature = "bin")]
mod admin;
mod breaker;
#[cfg(feature = "bin")]
mod check;
#[cfg(feature = "bin")]
pub mod config;
mod counters;
mod error;
mod flight;
mod gate;
#[cfg(feature = "bin")]
mod maintenance;
mod mover;
mod options;
mod outcome;
#[cfg(feature = "bin")]
pub mod program;
mod relay;
mod replays;
#[cfg(feature = "bin")]
mod schemas;
#[cfg(feature = "bin")]
mod setup;
mod window;

pub use breaker::{Breaker, BreakerState};
pub use counters::Counters;
pub use error::Error;
pub use mover::Mover;
pub use options::{OnExhausted, RelayOptions};
pub use relay::Relay;
