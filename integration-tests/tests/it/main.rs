//! Every test of publishing, the log, consumers, requests and side effects, against real databases and
//! brokers. `cargo xtask test AREA` runs one module. The other half is in `programs.rs`.
#![allow(missing_docs, clippy::unwrap_used)]
// A build for one database uses a part of the rest.
#![cfg_attr(not(feature = "programs"), allow(dead_code, unused_imports, unused_macros))]

#[cfg(feature = "programs")]
mod answers;
mod begin;
#[cfg(feature = "consumer")]
mod consumer;
#[cfg(feature = "effects")]
mod effects;
mod events;
#[cfg(feature = "programs")]
mod forgetful;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "log")]
mod log;
mod publish;
// In the other half otherwise.
#[cfg(all(feature = "relay", not(feature = "programs")))]
mod relay;
#[cfg(feature = "programs")]
mod round_trips;
mod statements;
// Each half uses a part of it.
#[allow(dead_code, unused_imports, unused_macros)]
mod support;
#[cfg(feature = "programs")]
mod wal;
