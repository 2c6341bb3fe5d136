//! Every test against real databases and brokers, in one binary. `cargo xtask test AREA` runs one module.
#![allow(missing_docs, clippy::unwrap_used)]

mod asyncapi;
mod begin;
mod consumer;
mod deploy;
mod effects;
mod eventbridge;
mod events;
mod examples;
mod faults;
mod first_page;
mod forgetful;
mod http;
mod kill;
mod log;
mod nats;
mod ops;
mod publish;
mod relay;
mod round_trips;
mod schema;
mod statements;
mod support;
mod ui;
mod workspace;
