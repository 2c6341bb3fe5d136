//! The request path: operations with a key, idempotency keys, webhooks.
mod closures;
mod dispositions;
mod faults;
mod leases;
mod operations;

mod requests;
mod shop;

mod support;
