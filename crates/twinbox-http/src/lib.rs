//! The request path of Twinbox: a request that is sent again does nothing again.
//!
//! | | |
//! |---|---|
//! | [`Idempotency`] | the layer of a route: looks the `Idempotency-Key` up, waits for who is at it, gives stored answers again |
//! | [`IdemTx`] | the handler's transaction, which commits with the key and the answer |
//! | [`IdemLease`] | for handlers that call others half-way: the key is held without a transaction |
//! | [`Disposition`] | what becomes of what the handler wrote, where its status does not say it |
//! | [`KeyRule`] | which keys a route takes |
//! | [`webhook`] | who has sent a webhook, and which one it is |
//!
//! Through the `metrics` crate it tells, with a label `scope`:
//!
//! | | |
//! |---|---|
//! | `idempotent.created`, `idempotent.replayed` | answers that were stored, and given again |
//! | `idempotent.replay_rate` | replayed, of both, since the process began |
//! | `idempotent.conflict` | keys that were used for another request |
//! | `idempotent.in_progress` | requests that were told to come again, because one with their key is running |
//! | `idempotent.fenced` | requests that stood still for longer than their lease |
//! | `idempotent.exhausted` | requests that have failed as often as they may |
//! | `idempotent.too_many_keys` | requests of callers that have as many keys as they may have |
//! | `idempotent.timeout` | requests whose handler took longer than its time limit |
//! | `idempotent.store_error` | requests that the database could not handle |
//! | `idempotent.unused` | answers of handlers that wrote outside of their key |
//! | `idempotent.wait_ms` | how long requests wait until they may run |
//!
//! and of webhooks, with a label `provider`, `webhook.received`, `webhook.duplicate`, `webhook.altered`,
//! `webhook.refused`, and `webhook.without_id`: those that have no id where their scheme has it.
//!
//! Layers around a route: limits, traces, authentication and authorization, rates, then [`Idempotency`]. What an outer
//! layer refuses never comes here, and a stored answer is given only to who may have it today.

mod answer;
mod disposition;
mod fault;
mod flights;
mod key;
mod layer;
mod outcome;
mod problem;
mod rate;
mod request;
mod route;
mod settings;
mod signals;
mod stored;
mod tx;
pub mod webhook;

pub use disposition::Disposition;
pub use fault::Fault;
pub use key::{InvalidKey, KeyRule};
pub use layer::IdempotencyService;
pub use problem::{CodeStyle, MismatchStatus};
pub use settings::{Caller, EXPOSED_HEADERS, Idempotency, ResultRef};
pub use tx::{IdemLease, IdemTx};
