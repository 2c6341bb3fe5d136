//! The request path of Twinbox: a repeated HTTP request has one effect and one response.
//!
//! | Item | Purpose |
//! |---|---|
//! | [`Idempotency`] | The layer of a route: runs a request once for its key, and replays its response. |
//! | [`IdemTx`] | The handler's transaction. It commits together with the key and the response. |
//! | [`IdemLease`] | For a handler that calls a vendor: it keeps the key without an open transaction. |
//! | [`Decision`] | Whether the handler's writes commit and its response is stored. |
//! | [`KeySyntax`] | Which keys a route accepts. |
//! | [`ServerError`] | The error type of a handler: any error becomes a `500` or `503`. |
//! | [`webhook`] | Verifies webhooks and receives each one once. |
//!
//! # Order of layers
//!
//! From the outside in: size limits, traces, authentication and authorization, rate limits, [`Idempotency`],
//! the handler. A request that an outer layer refuses never reaches the keys. Authorization runs again for a
//! replay, so a caller that lost its permission does not get the stored response.
//!
//! # Metrics
//!
//! The crate counts through the `metrics` crate. Requests with a key have the label `scope`:
//!
//! | Metric | Counts |
//! |---|---|
//! | `twinbox_http_responses_stored_total` | Responses stored with their key. |
//! | `twinbox_http_responses_replayed_total` | Stored responses sent again. |
//! | `twinbox_http_key_mismatches_total` | Requests whose key was used for another request. |
//! | `twinbox_http_in_progress_refusals_total` | Requests refused because one with their key was running. |
//! | `twinbox_http_leases_lost_total` | Requests that ran longer than their lease. |
//! | `twinbox_http_attempts_exhausted_total` | Requests that used all their attempts. |
//! | `twinbox_http_key_limit_refusals_total` | Requests of callers that have too many keys. |
//! | `twinbox_http_handler_timeouts_total` | Handlers that did not finish in time. |
//! | `twinbox_http_store_errors_total` | Requests that the database could not handle. |
//! | `twinbox_http_unused_transactions_total` | Successes of handlers that did not use their transaction. |
//! | `twinbox_http_key_wait_seconds` | Histogram: how long a request waits before its handler may run. |
//!
//! Webhooks have the label `provider`:
//!
//! | Metric | Counts |
//! |---|---|
//! | `twinbox_http_webhooks_received_total` | Webhooks received for the first time. |
//! | `twinbox_http_webhook_duplicates_total` | Webhooks received before. |
//! | `twinbox_http_webhook_mismatches_total` | Webhooks received before with another payload. |
//! | `twinbox_http_webhooks_unverified_total` | Webhooks refused because of their signature. |
//! | `twinbox_http_webhooks_without_id_total` | Webhooks without an id where the body should have one. |
//!
//! The replay rate is `replayed / (stored + replayed)`.

mod begin;
mod body;
mod call;
mod caller;
mod claim;
mod decision;
mod handler;
mod handover;
mod headers;
mod idem_lease;
mod idem_tx;
mod idempotency;
mod key;
mod layer;
mod metrics;
mod problem;
mod render;
mod replay;
mod request;
mod server_error;
mod settings;
mod settle;
#[cfg(test)]
mod tests;
mod turns;
pub mod webhook;

pub use caller::Caller;
pub use decision::Decision;
pub use headers::EXPOSED_HEADERS;
pub use idem_lease::IdemLease;
pub use idem_tx::IdemTx;
pub use idempotency::Idempotency;
pub use key::{InvalidKey, KeySyntax};
pub use layer::IdempotencyService;
pub use problem::{CodeStyle, MismatchStatus};
pub use render::ResultRef;
pub use server_error::ServerError;
