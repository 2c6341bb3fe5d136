//! The relay of Twinbox moves messages from the outbox of a store to a destination.
//!
//! A [`Relay`] owns the cursor of its destination by lease. It keeps a bounded number of messages in flight
//! and records how far all messages are settled. One message of a key is in flight at a time, unless the
//! destination stores messages in the order of sending.
//!
//! After a crash the relay continues from its record. It sends at most the messages of the last 100 ms again,
//! under the same ids.
//!
//! # Failures of a destination
//!
//! - The destination is down. The cursor stays, no failure counts as an attempt, and the relay connects again
//!   until the destination is back. If the destination throttles, the relay sends nothing for as long as the
//!   destination asks.
//! - The destination refuses a message for now. The relay retries a short delay in place. For a longer delay
//!   it parks the message and the later messages of its key. Other keys continue. If the destination has no
//!   home for a type, the messages of that type stay parked until there is one.
//! - The destination refuses a message for good, or too often. The message becomes a dead letter, see
//!   [`OnExhausted`]. Many dead letters in a minute count as a fault of the destination, and the relay stops
//!   sending to it for a while.
//!
//! # Order
//!
//! First deliveries of a key are in order. A duplicate may come late, at any age: compare the sequence that
//! every message carries. The relay commits a parked message before it sends a later message of the same key.
//!
//! # Several relays
//!
//! One relay of a destination works, the others stand by. Processes with several destinations share them
//! evenly, see [`Shares`].
//!
//! # Delayed messages
//!
//! A message that was published for later waits outside the outbox. [`DelayedMessageMover`] writes it to the
//! outbox when it is due.
//!
//! # The program
//!
//! The program `twinbox-relay` (feature `bin`) is this library with a configuration file.
#[cfg(feature = "bin")]
mod admin;
#[cfg(feature = "bin")]
mod check;
mod circuit_breaker;
#[cfg(feature = "bin")]
pub mod config;
mod counters;
#[cfg(feature = "bin")]
mod database_metrics;
mod decision;
mod delayed_messages;
mod destination_state;
mod error;
#[cfg(feature = "bin")]
mod failure;
#[cfg(feature = "bin")]
mod https;
mod in_flight;
mod in_flight_limit;
mod link;
mod metrics;
mod options;
#[cfg(feature = "bin")]
mod otlp;
#[cfg(feature = "bin")]
mod pools;
#[cfg(feature = "bin")]
pub mod program;
#[cfg(feature = "bin")]
mod purge;
#[cfg(feature = "bin")]
mod readiness;
#[cfg(feature = "bin")]
mod recorder;
mod relay;
mod replays;
#[cfg(feature = "bin")]
mod restarts;
#[cfg(feature = "bin")]
mod schemas;
mod session;
#[cfg(feature = "bin")]
mod setup;
mod storm_guard;
#[cfg(feature = "bin")]
mod supervisor;
#[cfg(feature = "bin")]
mod systemd;
mod throttle;
mod trace;
mod type_faults;
#[cfg(feature = "bin")]
mod vendors;

pub use circuit_breaker::{CircuitBreakerState, CircuitBreakerStatus};
pub use counters::Counters;
pub use delayed_messages::DelayedMessageMover;
pub use error::Error;
pub use options::{OnExhausted, RelayOptions};
pub use relay::Relay;
pub use twinbox_log::Shares;
