//! The differences between databases.
//!
//! A database is one folder here: its texts by area, its [fragments](Fragments), and the few acts that need
//! code. Everything else in the crate knows only [`Dialect`].
pub(crate) mod bounds;
mod capabilities;
mod claim;
mod fence;
mod fragments;
mod migrations;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
mod page_binds;
mod portable;
#[cfg(feature = "postgres")]
mod postgres;
mod purged;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod server;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(test)]
mod tests;
mod transaction;

use bounds::{Column, Implied, ImpliedBound};
pub use capabilities::Capabilities;
pub use claim::{Claim, Claims, OperationClaim, OperationClaimed, OperationRow};
pub use fence::{ClaimFence, ClaimTerms, Fence, check_server_run, hold_fence};
pub use fragments::Fragments;
#[doc(hidden)]
pub(crate) use migrations::Migration;
pub use page_binds::PageBinds;
pub use portable::selection;
pub(crate) use portable::{SOURCE_IDS, SOURCE_ORPHANS, SOURCE_PAGE};
pub use purged::{PURGE_BATCH, Purged};
pub(crate) use transaction::exactly_one;

use crate::{
    Error,
    catalog::Catalog,
    micros::Micros,
    statement::{Query, Runs, query, scalar},
    text_column::Text,
    texts::Texts,
};
use sqlx::{ColumnIndex, Pool};
use std::{path::PathBuf, time::Duration};
use twinbox_core::{
    Message,
    draft::Fields,
    endpoint::{PlainRefused, Protection},
};
use uuid::Uuid;

/// The ranges of open holes at most, on MySQL. With more the log is not read further until some are closed.
pub const HOLES_MAX: usize = 5_000;

/// A database that Twinbox runs on: [`sqlx::Postgres`], [`sqlx::MySql`] and [`sqlx::Sqlite`]. Not to be
/// implemented outside Twinbox; its items may change in any release.
pub trait Dialect:
    Runs
    + Column<bool>
    + Column<i64>
    + Column<f64>
    + Column<String>
    + Column<Text>
    + Column<Vec<u8>>
    + Column<Uuid>
    + Column<Micros>
    + for<'n> ImpliedBound<&'n str, Is: ColumnIndex<Self::Row>>
    + for<'n> Implied<&'n str>
{
    /// The differences between databases that users notice.
    const CAPABILITIES: Capabilities;
    /// The texts of all statements.
    #[doc(hidden)]
    const SQL: Texts;
    /// What `{name}` stands for in a text.
    #[doc(hidden)]
    const FRAGMENTS: Fragments;
    /// Whether binds are `$1`, `$2` and not `?`.
    #[doc(hidden)]
    const NUMBERED_BINDS: bool;
    /// Lower-case words of texts that are names, and stand in backticks because the database reserves them.
    #[doc(hidden)]
    const RESERVED_WORDS: &'static [&'static str] = &[];
    /// Whether an INSERT or UPDATE returns rows. Without, they are read by a statement after it.
    #[doc(hidden)]
    const HAS_RETURNING: bool = true;
    /// Whether a pooler may stand between here and the server.
    #[doc(hidden)]
    const TAKES_POOLER: bool = false;
    /// Whether [`guard`](Self::guard) comes before a claim, so that the session is bounded before it holds
    /// one. Elsewhere it ends the bound of the claim itself.
    #[doc(hidden)]
    const GUARDS_FIRST: bool = false;
    /// Whether the database has one writer at a time, so that transactions of a process take turns.
    #[doc(hidden)]
    const ONE_WRITER: bool;

    /// Applied in order. The version of a migration is its place, from 1.
    #[doc(hidden)]
    const MIGRATIONS: &'static [Migration];
    /// Makes the version table. Runs before the migrations, each time.
    #[doc(hidden)]
    const BOOTSTRAP: &'static str;
    /// Begins a migration: its transaction, where it has one, and the bounds of its waits for locks.
    #[doc(hidden)]
    const MIGRATION_BEGIN: &'static str = Self::BEGIN;
    /// Makes several starters wait for the one that migrates, for ten minutes. A migration waits less for
    /// other locks: who needs the table waits behind it.
    #[doc(hidden)]
    const MIGRATION_LOCK: Option<&'static str>;
    /// Ends what the two began, where the end of the transaction does not. Each statement of such a migration
    /// commits by itself, so a migration can be run again.
    #[doc(hidden)]
    const MIGRATION_UNLOCK: Option<&'static str> = None;

    /// Begins a transaction of an [`OwnedTx`](crate::OwnedTx) for the application, which bounds it.
    #[doc(hidden)]
    const BEGIN: &'static str;
    /// Begins a transaction of Twinbox itself. It may hold rows that others wait for, so the database ends it
    /// when it has heard nothing of its process for 30 s. On SQLite a file waits for as long as its process
    /// lives.
    #[doc(hidden)]
    const BEGIN_BOUNDED: &'static str = Self::BEGIN;
    /// Begins a transaction that claims something first, where a claim cannot bound its own wait for locks:
    /// to 2 s, up to the end of the claim. Until then the transaction is bounded as one of Twinbox itself.
    #[doc(hidden)]
    const BEGIN_TO_CLAIM: &'static str = Self::BEGIN;
    /// The same right after the COMMIT of a transaction that was begun so.
    #[doc(hidden)]
    const BEGIN_NEXT_CLAIM: &'static str = Self::BEGIN_TO_CLAIM;
    /// Begins a transaction that sqlx ends.
    #[doc(hidden)]
    const BEGIN_PLAIN: &'static str = Self::BEGIN;
    /// Gives the session its own values back, after the transaction. Empty: it has them.
    #[doc(hidden)]
    const END: &'static str = "";
    /// Commits what `BEGIN` or `BEGIN_SHORT` has begun, if it is whole, and gives the session its own values
    /// back. None: sqlx's COMMIT does.
    #[doc(hidden)]
    const COMMIT: Option<&'static str> = None;
    /// Rolls it back, likewise. A session that has not got its values back is closed.
    #[doc(hidden)]
    const ROLLBACK: Option<&'static str> = None;
    /// Begins a short transaction of the runtime's own. Others wait for it, because it holds a cursor, a
    /// partition or a claim. So the database ends it when its process is frozen, or when it waits for an open
    /// transaction of another. Its commit is flushed, because it is acknowledged or built upon.
    #[doc(hidden)]
    const BEGIN_SHORT: &'static str;
    /// Begins a transaction with one statement that may take ten minutes. The database ends the statement
    /// then, even if its process is gone. None: no statement takes long.
    #[doc(hidden)]
    const BEGIN_LONG: Option<&'static str>;
    /// Begins a transaction that plans a statement once, whatever is bound to it. None: the database never
    /// plans anew what is prepared, or always does.
    #[doc(hidden)]
    const BEGIN_PLANNED_ONCE: Option<&'static str> = None;
    /// Checks constraints now that are otherwise checked at the commit.
    #[doc(hidden)]
    const CHECK_DEFERRED: Option<&'static str>;
    /// At the end of a `SELECT` by key on a table of the application: locks the row.
    #[doc(hidden)]
    const LOCK_ROW: &'static str = Self::FRAGMENTS.lock_row;

    /// The qualified name of a table, index or function.
    #[doc(hidden)]
    fn table(namespace: &str, name: &str) -> String;

    /// The file that the pool opens, where a database is one file.
    #[doc(hidden)]
    fn file_of(pool: &Pool<Self>) -> Option<PathBuf>;

    /// How connections with these options are protected. Refuses those that leave this machine without
    /// verified TLS, unless `allow_plain`.
    #[doc(hidden)]
    fn protection(
        options: &<Self::Connection as sqlx::Connection>::Options,
        allow_plain: bool,
    ) -> Result<Protection, PlainRefused>;

    /// Refuses another product with the protocol of this database, and versions that are too old.
    #[doc(hidden)]
    fn check_server(conn: &mut Self::Connection) -> impl Future<Output = Result<(), Error>> + Send;

    /// Refuses a setup in which messages would be lost.
    #[doc(hidden)]
    fn check(conn: &mut Self::Connection, namespace: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Whether a pooler between here and the server shares server connections between transactions.
    #[doc(hidden)]
    fn is_pooled(pool: &Pool<Self>) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Gives a log that was restored from a dump transaction ids of this server. Returns the number of
    /// messages.
    #[doc(hidden)]
    fn rebase(
        conn: &mut Self::Connection,
        namespace: &str,
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Returns the newest tick. Makes one if the newest is `p`, up to which the caller has read, and there is
    /// a message beyond it. What the returned tick covers is durable.
    #[doc(hidden)]
    fn newest_tick(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        p: i64,
    ) -> impl Future<Output = Result<i64, Error>> + Send {
        async move { Ok(scalar::<Self, i64>(&catalog.sql.log.newest_tick).bind(p).fetch_one(conn).await?) }
    }

    /// Makes a tick after every message that is committed. None: another process made one meanwhile.
    #[doc(hidden)]
    fn tick_now(
        conn: &mut Self::Connection,
        catalog: &Catalog,
    ) -> impl Future<Output = Result<Option<i64>, Error>> + Send {
        async move { Ok(scalar::<Self, i64>(&catalog.sql.log.tick_now).fetch_optional(conn).await?) }
    }

    /// Where the purge is more than a statement: one step of it, in a transaction. Deletes messages beyond a
    /// position that all readers have settled, that are older than an age in microseconds, and not parked.
    #[doc(hidden)]
    fn purge(
        _: &mut Self::Connection,
        _: &Catalog,
        _age: i64,
        _after: i64,
    ) -> impl Future<Output = Result<Purged, Error>> + Send {
        async { Ok(Purged::NOTHING) }
    }

    /// The same for ticks that lie before deleted messages only. Returns whether there may be more.
    #[doc(hidden)]
    fn purge_ticks(
        _: &mut Self::Connection,
        _: &Catalog,
        _age: i64,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        async { Ok(false) }
    }

    /// The positions of a page, if they are to be found before the messages are read: fewer than the limit
    /// only if there are no more.
    #[doc(hidden)]
    fn positions(
        _: &mut Self::Connection,
        _: &Catalog,
        _: PageBinds,
    ) -> impl Future<Output = Result<Option<Vec<i64>>, Error>> + Send {
        async { Ok(None) }
    }

    /// Writes delayed messages to the log, whose rows are locked. `numbers`: a list of theirs.
    #[doc(hidden)]
    fn move_due(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        numbers: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let move_due = query::<Self>(&catalog.sql.delayed.move_due).bind(numbers.to_owned());
        async move { Ok(move_due.execute(conn).await.map(drop)?) }
    }

    /// Binds the values of a page in the order of its text. `positions`: those that were found.
    #[doc(hidden)]
    fn bind_page<'q>(query: Query<'q, Self>, page: PageBinds, _positions: &[i64]) -> Query<'q, Self> {
        let PageBinds { after, p, w, floor, ceiling, limit, server_run } = page;
        query.bind(after).bind(p).bind(w).bind(floor).bind(ceiling).bind(limit).bind(server_run)
    }

    /// Writes messages in one statement.
    #[doc(hidden)]
    fn publish_all(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        messages: Vec<Fields>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Locks a key until the transaction ends, where writers can overlap.
    #[doc(hidden)]
    fn lock_key(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        key: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Parks deliveries of a partition in the given order, each with the delay of its next attempt. One that
    /// is parked already stays as it is.
    #[doc(hidden)]
    fn park_deliveries(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        consumer: &str,
        partition: u32,
        deliveries: &[(&Message, Duration)],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Fails where COMMIT would roll back without an error, or has nothing to commit.
    #[doc(hidden)]
    fn ensure_whole(conn: &mut Self::Connection) -> impl Future<Output = Result<(), Error>> + Send;

    /// Proof that the transaction at the end is the one from the beginning.
    #[doc(hidden)]
    type Guard: Send + Sync;

    /// Claims messages in the given order, and marks the transaction as one that only Twinbox may commit.
    /// Messages that are not among the new ones were claimed before. Without its fence nothing is claimed,
    /// and [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) returned.
    #[doc(hidden)]
    fn claim(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        consumer: &str,
        terms: ClaimTerms,
        claims: &[Claim<'_>],
        guard: &mut Option<Self::Guard>,
    ) -> impl Future<Output = Result<Claims<Uuid>, Error>> + Send;

    /// Takes an idempotency key if it is free, in a transaction that only Twinbox may commit. Waits for a
    /// copy of the same request; too long a wait may be an error of contention. Does not wait for another
    /// request.
    #[doc(hidden)]
    fn claim_operation(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        claim: &OperationClaim<'_>,
    ) -> impl Future<Output = Result<OperationClaimed<Self::Guard>, Error>> + Send;

    /// Makes the commit of a redriven message delete its dead letter, where a handler could commit that
    /// alone.
    #[doc(hidden)]
    fn end_redrive(_: &mut Self::Guard, _: &Catalog, _dead_letter: i64) {}

    /// Marks a transaction as one that only Twinbox may commit, and that the database ends when it is idle
    /// for too long. Ends the bound of
    /// [`BEGIN_TO_CLAIM`](Self::BEGIN_TO_CLAIM).
    #[doc(hidden)]
    fn guard(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        idle_max: Duration,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send;

    /// Returns the value with which the statement that stores a response checks that the handler has not
    /// ended the transaction. The statement also does what [`allow_commit`](Self::allow_commit) does, and
    /// writes nothing if the check fails.
    #[doc(hidden)]
    fn response_guard(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        guard: &Self::Guard,
    ) -> impl Future<Output = Result<String, Error>> + Send;

    /// Allows the commit that follows, unless the handler ended the transaction.
    #[doc(hidden)]
    fn allow_commit(
        conn: &mut Self::Connection,
        catalog: &Catalog,
        guard: &Self::Guard,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Makes sqlx's count of transactions agree with the database, so that the rollback that follows leaves a
    /// connection that is fit for the pool.
    #[doc(hidden)]
    fn prepare_rollback(
        conn: &mut Self::Connection,
        guard: Option<&Self::Guard>,
    ) -> impl Future<Output = ()> + Send;

    /// Whether the commit that returned was the guarded one.
    #[doc(hidden)]
    fn has_committed(guard: &Self::Guard) -> bool;

    /// The number of rows that a statement changed.
    #[doc(hidden)]
    fn rows_affected(result: &Self::QueryResult) -> u64;

    /// The number that an INSERT gave its row, where the INSERT returns no row.
    #[doc(hidden)]
    fn inserted_id(_: &Self::QueryResult) -> Option<i64> {
        None
    }
}
