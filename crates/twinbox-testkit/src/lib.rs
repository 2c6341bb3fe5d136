//! For tests with Twinbox: real databases, real servers, real faults.
//!
//! | module | holds | feature |
//! |---|---|---|
//! | [`database`] | a fresh, migrated database for each test | `harness` |
//! | [`Harness`] | delivers events to a handler and says what became of them | `harness` |
//! | [`proxy`] | a TCP proxy that loses answers, or everything | `harness` |
//! | [`eventbridge`] | EventBridge on loopback that answers as a test says | `eventbridge` |
//! | [`servers`] | Postgres and NATS that can be killed and restarted, and moto | `servers` |

#[cfg(feature = "harness")]
pub mod database;
#[cfg(feature = "eventbridge")]
pub mod eventbridge;
#[cfg(feature = "harness")]
mod harness;
#[cfg(feature = "harness")]
pub mod proxy;
#[cfg(feature = "servers")]
pub mod servers;

#[cfg(feature = "harness")]
pub use harness::Harness;
