//! The request path: operations with a key, idempotency keys, webhooks.
mod closures;
mod leases;
mod operations;
mod support;
