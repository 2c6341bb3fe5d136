//! Tools for tests with Twinbox: real databases, real servers, real faults.
//!
//! | module | contents | feature |
//! |---|---|---|
//! | [`database`] | a new, migrated database for each test | `harness`; `postgres`, `mysql` |
//! | [`Harness`] | delivers events to a handler and returns the outcomes | `harness` |
//! | [`proxy`] | a TCP proxy that delays, cuts and freezes connections | `harness` |
//! | [`aws`] | fakes of EventBridge and SQS, whose responses a test chooses | `aws` |
//! | [`cluster`] | three NATS servers, which a test kills and cuts off from each other | `harness` |
//! | [`conformance`] | tests for a source of deliveries that you write | `harness` |
//! | [`servers`] | Postgres, MariaDB and NATS that a test can kill and restart, and moto | `servers` |
//! | [`vendor`] | a vendor on loopback, whose faults a test chooses | `vendor` |
//! | [`skipped`] | reports that a test cannot run on this machine | |

#[cfg(feature = "aws")]
pub mod aws;
#[cfg(feature = "harness")]
pub mod cluster;
#[cfg(feature = "harness")]
pub mod conformance;
#[cfg(feature = "harness")]
pub mod database;
#[cfg(feature = "harness")]
mod harness;
#[cfg(any(feature = "aws", feature = "vendor"))]
mod http;
#[cfg(feature = "harness")]
mod parked;
#[cfg(feature = "harness")]
pub mod proxy;
#[cfg(feature = "servers")]
pub mod servers;
mod skip;
#[cfg(feature = "vendor")]
pub mod vendor;

#[cfg(feature = "harness")]
pub use harness::{AnyOrder, Harness};
#[cfg(feature = "harness")]
#[doc(hidden)]
pub use parked::park_deliveries;
pub use skip::skipped;
