//! Twinbox's relay: moves the outbox of a store to a destination.
//!
//! It owns the destination's cursor by lease, keeps a bounded number of messages on their way, one at a time
//! for each key, and records how far everything is settled. Killed at any point it goes on from there: at
//! most what settled since the last record (100 ms) is sent again, under the same ids.
//!
//! An outage of the destination is waited out: the cursor stays, and no message is counted as failed.
//!
//! The program `twinbox-relay` (feature `bin`) is this library with a configuration file.
#[cfg(feature = "bin")]
pub mod config;
mod counters;
mod flight;
#[cfg(feature = "bin")]
pub mod program;
mod relay;

pub use counters::Counters;
pub use relay::{Error, Relay, RelayOptions};
