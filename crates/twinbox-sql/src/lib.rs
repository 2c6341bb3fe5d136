//! The store of Twinbox: outbox, inbox and idempotency keys, in Postgres, MySQL or SQLite.
//!
//! | item | is |
//! |---|---|
//! | [`Store`] | the database of one service: migrations, checks, transactions |
//! | [`Outbox`] | publishing inside a transaction |
//! | [`Tx`], [`BatchTx`], [`InTransaction`] | transactions |
//! | [`StoreOptions::codec`] | payloads that only their readers can decode |
//! | [`transition`] | rows of the application that change once, in order, or are made once |
//! | [`inbox`] | claims, attempts and dead letters of consumers |
//! | [`dead_letters`] | messages that consumers and destinations gave up, and acts on many of them |
//! | [`PartitionLeases`] | how processes share the partitions of a broker's log in order |
//! | [`operation`] | operations that a caller may repeat: key, effect and response in one transaction |
//! | [`webhook`] | webhooks that come in: receipt and effect in one transaction |
//! | [`replay`] | past messages again |
//! | [`Dialect`] | the differences between databases |
//! | [`follow_url_file`] | a database URL whose password changes while the program runs |
//!
//! Reading the log is `twinbox-log`, the operator's acts are `twinbox-ops`.
//!
//! Statements are text, written once with `?` and `{table}`, and rendered once per store. Twinbox turns on no
//! runtime and no TLS feature of sqlx: an application chooses `sqlx/runtime-tokio` and its TLS itself.
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `postgres` | yes | Postgres 14 or newer |
//! | `sqlite` | yes | SQLite, compiled in |
//! | `anyhow` | no | finds the database's error code inside an `anyhow::Error` |

#![cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(dead_code, unused_imports, unused_macros)
)]

mod catalog;
mod change;
mod codecs;
mod compile_hints;
mod connection;
mod cursor;
pub mod dead_letters;
mod dialect;
#[cfg(feature = "mysql")]
mod durable_tick;
mod effect_id;
#[doc(hidden)]
pub mod engine;
mod error;
mod expectation;
mod guarded;
mod handler_connection;
mod handler_error;
pub mod inbox;
mod job_runs;
mod lent;
#[cfg(feature = "postgres")]
mod lock_secret;
mod micros;
pub mod operation;
#[doc(hidden)]
pub mod outage;
mod outbox;
mod owned_tx;
mod partitions;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod program_options;
mod publish;
mod reader_name;
mod render;
pub mod replay;
mod row;
mod schema;
mod scope;
mod selection;
mod spare_connections;
mod sqlstate;
mod statement;
mod store;
mod text;
mod text_column;
#[doc(hidden)]
pub mod texts;
mod trace;
pub mod transition;
mod tx;
mod url_file;
pub mod webhook;
mod writer;

#[cfg(feature = "sqlite")]
pub use dialect::sqlite;
pub use dialect::{Capabilities, ClaimFence, ClaimTerms, Dialect, Fence};
pub use effect_id::EffectId;
pub use error::{Error, ErrorKind};
#[doc(hidden)]
pub use handler_connection::run_handler;
pub use handler_error::{Disposition, HandlerError, HandlerResult};
pub use inbox::Inbox;
pub use operation::IdempotencyKeys;
pub use outbox::Outbox;
pub use owned_tx::{OwnedTx, begin};
pub use partitions::{PartitionLeases, PartitionShare};
#[cfg(feature = "mysql")]
pub use program_options::bound_lock_waits;
#[cfg(feature = "postgres")]
pub use program_options::program_options;
pub use publish::{PUBLISH_ALL_BYTES_MAX, PUBLISH_ALL_MAX};
pub use reader_name::ReaderName;
pub use selection::{IDS_MAX, Selection, TYPES_MAX};
pub use store::{Store, StoreOptions};
#[doc(hidden)]
pub use text::text as stored_text;
pub use tx::{BatchTx, InTransaction, Tx};
pub use url_file::follow_url_file;
