//! The store of Twinbox: outbox, log, inbox and dead letters, in Postgres or SQLite.
//!
//! | module | holds |
//! |---|---|
//! | [`Store`] | the database of one service: migrations, checks, transactions |
//! | [`Outbox`] | publishing inside a transaction |
//! | [`StoreOptions::codec`], [`Store::redact`] | payloads that others cannot read, and payloads that are to go |
//! | [`Tx`], [`BatchTx`], [`InTransaction`] | what counts as a transaction |
//! | [`StateColumn`], [`VersionColumn`] | transitions that happen once, and what is newer than what was seen |
//! | [`parking`] | the order of keys, and what is parked: the one engine of relay and ordered consumers |
//! | [`log`] | reading the outbox as a log: the one engine of relay and embedded consumer |
//! | [`inbox`] | claims, attempts and dead letters of consumers |
//! | [`replay`] | past messages again |
//! | [`trail`] | what became of one message |
//! | [`letters`] | dead letters of relays and consumers alike |
//! | [`operation`] | what is done once for a key: effect and answer in one transaction |
//! | [`Share`], [`Fence`], [`ParkedHead`] | how processes share the partitions of a broker's log in order |
//! | [`Dialect`] | what differs between databases, and nothing else |
//!
//! Statements are text, written once with `?` and `{table}` and rendered once per store. Twinbox turns on
//! no runtime and no TLS feature of sqlx: an application chooses `sqlx/runtime-tokio` and its TLS itself.
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `postgres` | yes | Postgres 13 or newer |
//! | `sqlite` | yes | SQLite, compiled in |
//! | `anyhow` | no | finds the database's error code inside an `anyhow::Error` |

#![cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(dead_code, unused_imports, unused_macros)
)]

mod audit;
mod begin;
mod codec;
mod column;
mod connection;
mod consumers;
mod delayed;
mod dialect;
mod error;
mod grants;
mod guarded;
mod handled;
mod handler_error;
pub mod inbox;
mod insert;
pub mod letters;
pub mod log;
mod micros;
mod migrate;
mod missed;
mod newer;
pub mod operation;
mod outbox;
mod parked_deliveries;
pub mod parking;
mod places;
mod rebase;
mod receipt;
mod redact;
pub mod replay;
mod retention;
mod retire;
mod row;
mod run;
mod scope;
mod sql;
mod starts;
mod statements;
mod status;
mod store;
mod text;
pub mod trail;
mod transition;
mod tx;
mod unread;
mod writer;

pub use audit::{Audited, Intent};
pub use begin::{OwnedTx, begin};
pub use consumers::{ConsumerRecord, HEARTBEAT};
pub use delayed::Moved;
pub use dialect::Dialect;
#[cfg(feature = "sqlite")]
pub use dialect::sqlite;
pub use error::{Error, ErrorKind};
pub use grants::{Role, grants_sql};
#[doc(hidden)]
pub use handled::handled;
pub use handler_error::{Disposition, HandlerError, HandlerResult};
pub use insert::{Insert, insert_or_existing};
pub use newer::{Newer, VersionColumn};
pub use outbox::{Outbox, PUBLISH_ALL_MAX};
pub use parked_deliveries::ParkedHead;
pub use places::{ClaimFence, Fence, Share};
pub use rebase::Rebased;
pub use receipt::{Receipt, ReceiptId, Received};
pub use redact::Redacted;
pub use retention::{OnMaxLag, Purged, Retention};
pub use retire::Retired;
pub use status::{BACKLOG_MAX, ReaderStatus};
pub use store::{Store, StoreOptions};
#[doc(hidden)]
pub use text::text as stored_text;
pub use transition::{StateColumn, Transition};
pub use tx::{BatchTx, InTransaction, Tx};
pub use unread::{Standing, Unread};
