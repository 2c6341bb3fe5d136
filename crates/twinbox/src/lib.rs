//! A transactional outbox and inbox: an event is not lost, and a retry charges nobody twice.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use sqlx::Sqlite;
//! use twinbox::{CancellationToken, Consumer, Delivery, Event, HandlerResult, Store, Tx, event_handler};
//!
//! #[derive(Serialize, Deserialize, Event)]
//! #[event(type = "orders.placed", version = 1, key = order_id)]
//! struct OrderPlaced { order_id: i64, cents: i64 }
//!
//! // The claim of the message and the invoice commit together, or neither does.
//! #[event_handler(consumer = "billing.invoice", max_attempts = 12)]
//! async fn invoice(tx: &mut Tx<'_, Sqlite>, order: Delivery<OrderPlaced>) -> HandlerResult {
//!     sqlx::query("INSERT INTO invoices VALUES (?, ?)")
//!         .bind(order.order_id)
//!         .bind(order.cents)
//!         .execute(&mut **tx)
//!         .await?; // an error rolls everything back, and the message comes again
//!     Ok(())
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("shop.db");
//! let store = Store::new(twinbox::sqlite::open(file).await?, "shop")?;
//! store.migrate().await?;
//! # sqlx::query("CREATE TABLE orders (id INTEGER, cents INTEGER)").execute(store.pool()).await?;
//! # sqlx::query("CREATE TABLE invoices (id INTEGER, cents INTEGER)").execute(store.pool()).await?;
//!
//! // The order and its event commit together, or neither does.
//! let mut tx = store.begin().await?;
//! sqlx::query("INSERT INTO orders VALUES (7, 4200)").execute(&mut *tx).await?;
//! store.outbox().publish(&mut tx, &OrderPlaced { order_id: 7, cents: 4200 }).await?;
//! tx.commit().await?;
//!
//! // Without a broker, a consumer reads the log of its own database.
//! let consumer = Consumer::new(store.clone(), ()).handler::<invoice>();
//! # let status = consumer.status();
//! let stop = CancellationToken::new();
//! let running = tokio::spawn(consumer.run(stop.clone()));
//! # while status.consumers().iter().map(|one| one.handled).sum::<u64>() < 1 {
//! #     tokio::time::sleep(std::time::Duration::from_millis(5)).await;
//! # }
//! # let invoices: i64 =
//! #     sqlx::query_scalar("SELECT count(*) FROM invoices").fetch_one(store.pool()).await?;
//! # assert_eq!(invoices, 1);
//!
//! stop.cancel(); // for example at Ctrl-C
//! running.await??;
//! # Ok(())
//! # }
//! ```
//!
//! The promise: **durable at-least-once publication; each effect once inside the consumer's database
//! transaction; per-key order; never "exactly-once delivery".** Twinbox covers the whole path of a business
//! operation: HTTP request → database transaction → outbox → relay → NATS JetStream or Amazon EventBridge →
//! consumer → inbox.
//!
//! # Where to find what
//!
//! | to do | use |
//! |---|---|
//! | define an event | [`Event`] with `#[derive(Event)]`; [`event`] for older versions |
//! | publish in a transaction | [`Store::begin`], [`Outbox::publish`]; [`Draft`] for your own id or headers |
//! | handle a message once | [`event_handler`], [`Consumer`] |
//! | apply messages that come late, twice or out of order | [`transition`] |
//! | run an operation once for each key | [`Store::operation`]; for HTTP the layer [`http::Idempotency`] |
//! | send a mail, charge a card or call a service once | [`effects`] |
//! | receive webhooks once | [`http::webhook`], or [`webhook`] without HTTP |
//! | move the outbox to a broker | [`relay::Relay`], or the program `twinbox-relay` |
//! | consume from a broker | [`nats::Nats`], [`aws::Sqs`] in [`Consumer::transport`] |
//! | encrypt or compress payloads | [`codec`], [`StoreOptions::codec`], [`StoreOptions::require_codec`] |
//! | describe the events for other teams | `event::AsyncApi` |
//! | delete what retention allows | [`log::Log::purge`] |
//! | see what is wrong, replay, redrive, redact | [`ops::Ops`], or the program `twinbox` |
//! | write a destination or a source for another broker | [`seam`] |
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `postgres` | Postgres 14 or newer |
//! | `sqlite` | SQLite, compiled in |
//! | `consumer` | handlers of messages and their runtime: the only default |
//! | `relay` | the relay inside an application; the program `twinbox-relay` is a crate of its own |
//! | `nats` | NATS JetStream as destination and source |
//! | `aws` | Amazon EventBridge as destination, SQS as source |
//! | `effects` | side effects outside the database, sent once by a dispatcher |
//! | `reqwest` | sends side effects with a `reqwest::Client` |
//! | `http` | `Idempotency-Key` for axum and tower, and webhooks that come in |
//! | `ops` | what the operator's tool does, as a library |
//! | `opentelemetry` | spans of publishes, sends and deliveries, linked by the messages |
//! | `encryption` | `codec::AesGcm` encrypts payloads |
//! | `schemars` | `event::AsyncApi` describes events for other teams |
//! | `anyhow` | finds the database's error code inside an `anyhow::Error` |
//!
//! A service that only publishes turns the default off and needs `postgres` or `sqlite` alone.
//!
//! Twinbox turns on no runtime and no TLS of sqlx: add `sqlx` with `runtime-tokio`, and with the TLS you
//! want, to your own dependencies. For `opentelemetry` set up `tracing-opentelemetry` in your application.

pub use tokio_util::sync::CancellationToken;
#[cfg(feature = "consumer")]
pub use twinbox_consumer::{Consumer, Delivery, DeliveryOutcome, Policy, Provide, handler_fn};
pub use twinbox_core::{
    DecodeError, Draft, Event, Manifest, Message, MessageId, RetryPolicy, Schema, Timestamp, codec, event, id,
};
pub use twinbox_macros::Event;
#[cfg(feature = "consumer")]
pub use twinbox_macros::{Provide, event_handler};
#[cfg(feature = "sqlite")]
pub use twinbox_sql::sqlite;
pub use twinbox_sql::{
    BatchTx, Dialect, Disposition, Error, ErrorKind, HandlerError, HandlerResult, InTransaction, Outbox,
    OwnedTx, Store, StoreOptions, Tx, begin, inbox, transition, webhook,
};

/// Runs event handlers: their policies, their state, and what they did.
#[cfg(feature = "consumer")]
pub use twinbox_consumer as consumer;

/// Reads the log of a store, purges it, and runs replays.
#[cfg(any(feature = "consumer", feature = "ops", feature = "relay"))]
pub use twinbox_log as log;

/// For operators: status, trails, dead letters, replays, grants and the audit.
#[cfg(feature = "ops")]
pub use twinbox_ops as ops;

/// Moves the outbox to its destinations.
#[cfg(feature = "relay")]
pub use twinbox_relay as relay;

/// Amazon EventBridge as destination, SQS as source.
#[cfg(feature = "aws")]
pub use twinbox_aws as aws;

/// Side effects outside the database: planned in a transaction, sent by a dispatcher.
#[cfg(feature = "effects")]
pub use twinbox_effects as effects;

/// `Idempotency-Key` for axum and tower, and webhooks that come in.
#[cfg(feature = "http")]
pub use twinbox_http as http;

/// NATS JetStream as destination and source.
#[cfg(feature = "nats")]
pub use twinbox_nats as nats;

/// The bounds of messages, in bytes and in counts.
pub mod limits {
    pub use twinbox_core::limits::*;
    pub use twinbox_sql::{PUBLISH_ALL_BYTES_MAX, PUBLISH_ALL_MAX};
}

/// Messages, their headers, and drafts of messages.
pub mod message {
    pub use twinbox_core::{
        draft::{self, InvalidDraft},
        message::*,
    };
}

/// Operations that run once for each key: their keys, claims, leases and stored responses.
pub mod operation {
    pub use twinbox_core::fingerprint::*;
    pub use twinbox_sql::operation::*;
}

/// The traits of destinations and sources, for a broker that Twinbox does not know.
pub mod seam {
    pub use twinbox_core::{
        BoxError, BoxFuture, Transport, TypePattern,
        destination::{self, Destination, Publisher},
        source::{self, Source},
    };
}

/// Items that generated code names. Not part of the API.
#[doc(hidden)]
pub mod private {
    pub use serde_json;
    #[cfg(feature = "consumer")]
    pub use twinbox_consumer::private::TxFor;
    pub use twinbox_core::event::{Oldest, same};
}
