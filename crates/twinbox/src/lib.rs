//! Twinbox makes retries safe along the whole path of a business operation: HTTP request → database transaction → outbox →
//! relay → NATS JetStream or Amazon EventBridge → consumer → inbox.
//!
//! The promise: **durable at-least-once publication; each effect once inside the consumer's database
//! transaction; per-key order; never "exactly-once delivery".**
//!
//! # Tour
//!
//! - Say what happened: [`Event`] with `#[derive(Event)]`.
//! - Write it in the transaction that makes it true: [`Store::begin`], [`Outbox::publish`].
//! - Handle it once: [`event_handler`], [`Consumer`]. What may come late or under two ids moves a row from state to
//!   state with [`StateColumn::transition`]; what may come out of order is applied if it is newer, with
//!   [`VersionColumn::advance`]. Without a broker the consumer reads the log of its own
//!   database.
//! - Do what is asked for twice once: [`Store::operation`], and for HTTP the layer [`http::Idempotency`].
//! - Move it to a broker: [`relay::Relay`], or the program `twinbox-relay`, and [`nats::Nats`] as the
//!   consumer's transport.
//! - The log keeps what it was told for as long as its retention says, and so it is a store of personal data as well:
//!   encrypt payloads with a [`PayloadCodec`] ([`StoreOptions::codec`]), and blank those of a key with
//!   [`Store::redact`].
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `postgres` | yes | Postgres 13 or newer |
//! | `sqlite` | yes | SQLite, compiled in |
//! | `nats` | no | NATS JetStream as destination and source |
//! | `aws` | no | Amazon EventBridge as destination, SQS as source |
//! | `http` | no | `Idempotency-Key` for axum and tower, and webhooks that come in |
//! | `opentelemetry` | no | spans of deliveries link to those that published the messages; set `tracing-opentelemetry` up yourself |
//! | `anyhow` | no | finds the database's error code inside an `anyhow::Error` |
//!
//! Twinbox turns on no runtime and no TLS of sqlx: add `sqlx` with `runtime-tokio`, and with the TLS you
//! want, to your own dependencies.

pub use tokio_util::sync::CancellationToken;
pub use twinbox_consumer::{
    Consumer, ConsumerState, ConsumerStatus, Delivery, DryDelivery, DryOutcome, DryRun,
    Error as ConsumerError, ErrorKind as ConsumerErrorKind, EventHandler, Handler, HandlerFn, InboxRetention,
    Input, Order, Outcome, Policy, Provide, Status, handler_fn,
};
pub use twinbox_core::{
    BoxError, DecodeError, Draft, Encoded, Event, Fingerprint, FingerprintAlgorithm, Fingerprinted,
    InvalidDraft, Manifest, Message, MessageId, PayloadCodec, PayloadContext, RetryPolicy, Schema, Timestamp,
    Transport, event, id, limits, message,
};
pub use twinbox_macros::{Event, Provide, event_handler};
#[cfg(feature = "sqlite")]
pub use twinbox_sql::sqlite;
pub use twinbox_sql::{
    Audited, BACKLOG_MAX, BatchTx, ConsumerRecord, Dialect, Disposition, Error, ErrorKind, HEARTBEAT,
    HandlerError, HandlerResult, InTransaction, Insert, Intent, Moved, Newer, OnMaxLag, Outbox, OwnedTx,
    PUBLISH_ALL_MAX, Purged, ReaderStatus, Rebased, Receipt, ReceiptId, Received, Redacted, Retention,
    Retired, Role, Standing, StateColumn, Store, StoreOptions, Transition, Tx, Unread, VersionColumn, begin,
    inbox, insert_or_existing, letters, log, operation, replay, trail,
};

/// The seams for destinations and sources of one's own.
pub mod seam {
    pub use twinbox_core::{BoxFuture, destination, source};
}

/// Amazon EventBridge and SQS.
#[cfg(feature = "aws")]
pub use twinbox_aws as aws;

/// `Idempotency-Key` for axum and tower, and webhooks that come in.
#[cfg(feature = "http")]
pub use twinbox_http as http;

/// NATS JetStream.
#[cfg(feature = "nats")]
pub use twinbox_nats as nats;

/// Moving the outbox to its destinations.
pub use twinbox_relay as relay;

/// What generated code names. Not part of the API.
#[doc(hidden)]
pub mod private {
    pub use serde_json;
    pub use twinbox_consumer::private::TxFor;
    pub use twinbox_core::event::{Oldest, same};
}
