//! Every test of relay, programs, operators and the tree itself, against real databases and brokers. Half of
//! the tests are here and half in `main.rs`, because one program of all takes twice as long to compile.
#![allow(missing_docs, clippy::unwrap_used)]

mod asyncapi;
mod compile_errors;
mod deploy;
mod durations;
mod eventbridge;
mod examples;
mod faults;
mod first_page;
mod kill;
mod nats;
mod neighbours;
mod ops;
mod relay;
mod schema;
// Each half uses a part of it.
#[allow(dead_code, unused_imports, unused_macros)]
mod support;
mod workspace;
