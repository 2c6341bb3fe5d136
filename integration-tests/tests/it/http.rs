//! The request path: operations with a key, idempotency keys, webhooks.
mod both;
mod closures;
mod digests;
mod dispositions;
#[cfg(feature = "programs")]
mod example;
mod faults;
mod fuzz;
mod keeping;
#[cfg(feature = "postgres")]
mod kept;
mod leases;
mod limits;
mod model;
mod operations;
#[cfg(feature = "programs")]
mod processes;
mod requests;
mod settings;
mod signals;
mod tables;
mod tokens;
#[cfg(feature = "programs")]
mod unfinished;
mod webhooks;
