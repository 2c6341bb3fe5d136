//! For tests with Twinbox: real databases, real servers, real faults.
//!
//! | module | holds | feature |
//! |---|---|---|
//! | [`database`] | a fresh, migrated database for each test | `harness` |
//! | [`Harness`] | delivers events to a handler and says what became of them | `harness` |
//! | [`proxy`] | a TCP proxy that loses answers and goes silent | `harness` |
//! | [`aws`] | EventBridge and SQS on loopback that answer as a test says | `aws` |
//! | [`conformance`] | what every source of deliveries promises, as tests for one of your own | `harness` |
//! | [`servers`] | Postgres and NATS that can be killed and restarted, and moto | `servers` |
//! | [`skipped`] | says why a test cannot run here | |

#[cfg(feature = "aws")]
pub mod aws;
#[cfg(feature = "harness")]
pub mod conformance;
#[cfg(feature = "harness")]
pub mod database;
#[cfg(feature = "harness")]
mod harness;
#[cfg(feature = "harness")]
pub mod proxy;
#[cfg(feature = "servers")]
pub mod servers;
mod skip;

#[cfg(feature = "harness")]
pub use harness::{AnyOrder, Harness};
pub use skip::skipped;
