//! The request path: operations with a key, idempotency keys, webhooks.
mod closures;
mod dispositions;
mod example;
mod faults;
mod fuzz;
mod keeping;
mod leases;
mod model;
mod operations;
mod processes;
mod requests;
mod settings;
mod shop;
mod signals;
mod support;
mod tables;
mod webhooks;
