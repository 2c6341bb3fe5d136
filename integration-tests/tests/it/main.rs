//! Every test of publishing, the log, consumers, requests and side effects, against real databases and
//! brokers. `cargo xtask test AREA` runs one module. The other half is in `programs.rs`.
#![allow(missing_docs, clippy::unwrap_used)]

mod begin;
mod consumer;
mod effects;
mod events;
mod forgetful;
mod http;
mod log;
mod publish;
mod round_trips;
mod statements;
// Each half uses a part of it.
#[allow(dead_code, unused_imports, unused_macros)]
mod support;
