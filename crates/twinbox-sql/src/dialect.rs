//! What differs between databases, and nothing else.
mod claim;
mod migrations;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod window;

use migrations::migrations;

pub(crate) use claim::{Claim, Claims, OperationBegun, OperationClaim, OperationClaimed};
pub(crate) use window::window;

use crate::{Error, micros::Micros, migrate::Migration, sql::Statements};
use sqlx::{
    ColumnIndex, Database, Decode, Encode, Executor, IntoArguments, Pool, Type, database::HasStatementCache,
};
use sqlx_core::transaction::TransactionManager as _;
use std::{path::PathBuf, time::Duration};
use twinbox_core::{Message, draft::Fields};
use uuid::Uuid;

/// `Self: Implied<T>` carries the bounds on `T` to every user of the trait that asks for it, so callers
/// write `DB: Dialect` and not twenty lines of `where`: Rust implies bounds on the associated types of
/// supertraits, and on nothing else.
#[doc(hidden)]
pub trait ImpliedBound<T: ?Sized> {
    type Is: ?Sized;
}
impl<S: ?Sized, T: ?Sized> ImpliedBound<T> for S {
    type Is = T;
}
#[doc(hidden)]
pub trait Implied<T: ?Sized>: ImpliedBound<T, Is = T> {}
impl<S: ?Sized, T: ?Sized> Implied<T> for S {}

/// A column type that every dialect binds and reads.
#[doc(hidden)]
pub trait Column<T>:
    ImpliedBound<T, Is: Type<Self> + for<'q> Encode<'q, Self> + for<'r> Decode<'r, Self>>
    + Implied<T>
    + ImpliedBound<Option<T>, Is: Type<Self> + for<'q> Encode<'q, Self> + for<'r> Decode<'r, Self>>
    + Implied<Option<T>>
    + Database
{
}
impl<DB: Database, T> Column<T> for DB
where
    T: Type<DB> + for<'q> Encode<'q, DB> + for<'r> Decode<'r, DB>,
    Option<T>: Type<DB> + for<'q> Encode<'q, DB> + for<'r> Decode<'r, DB>,
{
}

/// A database that Twinbox runs on: [`sqlx::Postgres`] and [`sqlx::Sqlite`]. Not to be implemented outside
/// Twinbox; its items may change in any release.
pub trait Dialect:
    Database<Arguments: IntoArguments<Self>>
    + HasStatementCache
    + Column<bool>
    + Column<i64>
    + Column<f64>
    + Column<String>
    + Column<Vec<u8>>
    + Column<Uuid>
    + Column<Micros>
    + ImpliedBound<usize, Is: ColumnIndex<Self::Row>>
    + Implied<usize>
    + for<'n> ImpliedBound<&'n str, Is: ColumnIndex<Self::Row>>
    + for<'n> Implied<&'n str>
    + for<'c> ImpliedBound<&'c mut <Self as Database>::Connection, Is: Executor<'c, Database = Self>>
    + for<'c> Implied<&'c mut <Self as Database>::Connection>
{
    /// Applied in order; the version of a migration is its place, counted from 1.
    #[doc(hidden)]
    const MIGRATIONS: &'static [Migration];
    /// Run before the migrations, every time: the version table and where it lives.
    #[doc(hidden)]
    const BOOTSTRAP: &'static str;
    /// Held while migrating, so that of several starters one migrates.
    #[doc(hidden)]
    const MIGRATION_LOCK: Option<&'static str>;

    #[doc(hidden)]
    const BEGIN: &'static str;
    /// Begins a short transaction that others wait for: it holds a cursor, a partition, a claim. A process that is frozen
    /// in it must not keep its successor out, so the database ends it; nor must one that waits for somebody's open
    /// transaction. What it writes is acknowledged or built upon, so its commit is flushed.
    #[doc(hidden)]
    const BEGIN_PARK: &'static str;
    /// Begins a transaction with one statement that may take ten minutes, and is not to go on for longer when nobody
    /// waits for it. None: there is no such.
    #[doc(hidden)]
    const BEGIN_FAR: Option<&'static str>;
    #[doc(hidden)]
    const NUMBERED_BINDS: bool;
    /// One transaction of ours at a time in this process.
    #[doc(hidden)]
    const ONE_WRITER: bool;
    /// True; where locks are waited for, the wait is bounded from here to the end of the transaction.
    #[doc(hidden)]
    const BOUNDED: &'static str;
    /// True, and the commit is not waited for until it is flushed.
    #[doc(hidden)]
    const UNFLUSHED: &'static str;
    /// After a `SELECT` by key: nobody else changes the row until the transaction ends.
    #[doc(hidden)]
    const LOCK_ROW: &'static str;
    /// At the end of a `SELECT`: what somebody else is changing is passed by.
    #[doc(hidden)]
    const PASS_BY_LOCKED: &'static str;
    /// Waits for its turn to lock many messages of the log, and keeps it until the transaction ends. True.
    #[doc(hidden)]
    const TURN: &'static str;
    /// The type of a message id.
    #[doc(hidden)]
    const UUID: &'static str;
    /// The type of text as JSON.
    #[doc(hidden)]
    const JSON: &'static str;
    /// Whether a partition is still its owner's, and stays so until the transaction ends. Binds: consumer, partition,
    /// epoch, run, for how many milliseconds the transaction may stand still.
    #[doc(hidden)]
    const FENCE: &'static str;
    /// Waits until no transaction of the owner before is open. Binds: consumer, partition.
    #[doc(hidden)]
    const FENCE_OUT: Option<&'static str>;
    /// Which run of the server this is, a number; null when nobody has made it known yet. A crash or a promotion, after
    /// which commits may be forgotten, begins another.
    #[doc(hidden)]
    const RUN: &'static str;
    /// Makes the run known.
    #[doc(hidden)]
    const BEGIN_RUN: Option<&'static str>;
    /// Whether it is still that run. Bind: its number.
    #[doc(hidden)]
    const IS_RUN: &'static str;
    /// Behind a number: it is one of those in a JSON array. Bind: the array.
    #[doc(hidden)]
    const AMONG: &'static str;
    /// Rows to park as `r`, out of a JSON array. Bind: the array.
    #[doc(hidden)]
    const PARKED_ROWS: &'static str;
    /// Evaluated anywhere in a transaction: its commit is flushed before it is answered, whatever the server is set to.
    #[doc(hidden)]
    const FLUSHED: &'static str;
    #[doc(hidden)]
    const NOW: &'static str;
    /// The time that `?` microseconds from now will be.
    #[doc(hidden)]
    const AFTER: &'static str;
    #[doc(hidden)]
    const PUBLISH_ALL: &'static str;
    #[doc(hidden)]
    const PARK_DELIVERY: &'static str;
    /// What a claim of an operation begins with, inserts from, and returns: waits for who has the key.
    #[doc(hidden)]
    const CLAIM_OPERATION: [&'static str; 3];
    /// Claims messages. Where locks are waited for, the wait is bounded.
    #[doc(hidden)]
    const CLAIM: &'static str;
    /// The same for a single message, where that is cheaper.
    #[doc(hidden)]
    const CLAIM_ONE: Option<&'static str>;
    /// What the receipt of a webhook begins with, inserts from, and returns: waits 2 s for who receives the same.
    #[doc(hidden)]
    const RECEIVE: [&'static str; 3];
    /// Deletes webhooks that have expired, the oldest first. Bind: how many at most.
    #[doc(hidden)]
    const PURGE_RECEIPTS: &'static str;
    /// Deletes keys that have expired, the oldest first, but none that is held or unfinished. Bind: how many at most.
    #[doc(hidden)]
    const PURGE_OPERATIONS: &'static str;
    /// Deletes claims, the oldest first. Binds: consumer, claimed up to when, of messages up to which
    /// time, how many at most.
    #[doc(hidden)]
    const PURGE_CLAIMS: &'static str;

    /// Copies due messages to the log in the order of their times, and deletes them unless
    /// [`FORGET_MOVED`](Self::FORGET_MOVED) does. Bind: how many at most.
    #[doc(hidden)]
    const MOVE_DUE: &'static str;
    /// Deletes the messages that were just copied. Bind: how many.
    #[doc(hidden)]
    const FORGET_MOVED: Option<&'static str>;

    /// The newest tick, after making one if it is the asker's and there is something beyond it. The transaction is flushed,
    /// and with it all that a window up to the tick holds: what is published is not forgotten. Bind: the asker's.
    #[doc(hidden)]
    const NEWEST: &'static str;
    /// Between which positions the newcomers of a window lie, the snapshots of its ticks, and if there are no newcomers
    /// whether nothing in it was begun before the first, and whether it is this run of the server. Binds: p, w, the run.
    #[doc(hidden)]
    const BOUNDS: &'static str;
    /// The next messages of a window, perhaps not in order. Binds: after, p, w, floor, ceiling, limit, run. Every
    /// row starts with whether the window can be read here at all; a row without a position says only that.
    #[doc(hidden)]
    const PAGE: &'static str;
    /// A tick that everything committed so far lies before; no row if another made it at the same time, which
    /// may have been before the last commit. No binds.
    #[doc(hidden)]
    const START_NOW: &'static str;
    /// The newest tick that everything committed after a time lies behind. Bind: the time.
    #[doc(hidden)]
    const START_AT: &'static str;

    /// Deletes ticks that nobody will ask for: of those older than 10 s one a second is kept, of those older than an
    /// hour one a minute, for finding a time in the log, and those that cursors name. No binds.
    #[doc(hidden)]
    const THIN: Option<&'static str>;

    /// Deletes messages that every reader but the detached ones has settled, that are older than `?` microseconds and
    /// not put aside, `?` at a time.
    #[doc(hidden)]
    const PURGE: &'static str;
    /// Deletes the ticks that only deleted messages lie before. Bind: the age.
    #[doc(hidden)]
    const PURGE_TICKS: Option<&'static str>;
    /// Whether the cursor `c` has yet to settle a message that is older than `?` microseconds.
    #[doc(hidden)]
    const BEHIND: &'static str;
    /// Checks now what is otherwise checked when the transaction commits.
    #[doc(hidden)]
    const CHECK_DEFERRED: Option<&'static str>;
    /// The time that never comes: the end of the lease of a cursor that is detached.
    #[doc(hidden)]
    const NEVER: &'static str;
    /// How many messages a reader has not settled, at most so many, and the age of the oldest in microseconds.
    #[doc(hidden)]
    const BACKLOG: &'static str;
    /// What a look at the messages `o` that a cursor has settled begins with (binds: p, w), the condition that it has
    /// (bind: its position), what a replay of them begins behind, and the condition that it has not.
    #[doc(hidden)]
    const SETTLED: [&'static str; 4];
    /// Keeps ticks from being thinned until the transaction ends.
    #[doc(hidden)]
    const KEEP_TICKS: Option<&'static str>;
    /// The newest tick that none of the messages lies before, no newer than p. None: a tick of the cursor is gone.
    /// Binds: what they begin behind, p, w.
    #[doc(hidden)]
    const START_BEHIND: &'static str;
    /// Settings on which durability rests, as names and values. No binds.
    #[doc(hidden)]
    const FACTS: &'static str;
    /// Whether a role, or who is connected, has a right on a table, a schema or a column; without an object, whether it is
    /// there. Binds: role, object, privilege, column. None: there are no roles.
    #[doc(hidden)]
    const HAS_RIGHT: Option<&'static str>;
    /// Microseconds until a lease ends.
    #[doc(hidden)]
    const LEASE_LEFT: &'static str;

    /// Where a table, index or function of that name is.
    #[doc(hidden)]
    fn table(namespace: &str, name: &str) -> String;

    /// Looks for setups in which messages would be lost.
    #[doc(hidden)]
    fn check(conn: &mut Self::Connection, namespace: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Whether a pooler stands in between that shares server connections between transactions.
    #[doc(hidden)]
    fn is_pooled(pool: &Pool<Self>) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Gives what was restored from a dump transaction ids of this server. Answers with how many messages.
    #[doc(hidden)]
    fn rebase(
        conn: &mut Self::Connection,
        namespace: &str,
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Writes messages in one statement.
    #[doc(hidden)]
    fn publish_all(
        conn: &mut Self::Connection,
        statements: &Statements,
        messages: Vec<Fields>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Parks deliveries of a partition in the order given, each to be tried not before its delay is over. One that is there
    /// already stays as it is.
    #[doc(hidden)]
    fn park_deliveries(
        conn: &mut Self::Connection,
        statements: &Statements,
        consumer: &str,
        partition: u32,
        deliveries: &[(&Message, Duration)],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Holds a lock on a key until the transaction ends, where writers can overlap.
    #[doc(hidden)]
    fn lock_key(
        conn: &mut Self::Connection,
        statements: &Statements,
        key: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The file that a pool opens, if one is all there is to the database.
    #[doc(hidden)]
    fn file_of(pool: &sqlx::Pool<Self>) -> Option<PathBuf>;

    /// Fails where COMMIT would roll back and say nothing, or has nothing to commit.
    #[doc(hidden)]
    fn ensure_whole(conn: &mut Self::Connection) -> impl Future<Output = Result<(), Error>> + Send;

    /// Proof that the transaction at the end is the one from the beginning.
    #[doc(hidden)]
    type Guard: Send + Sync;
    /// Claims messages in the order given and marks the transaction as one that only Twinbox may commit.
    /// The others were claimed before.
    #[doc(hidden)]
    fn claim(
        conn: &mut Self::Connection,
        statements: &Statements,
        consumer: &str,
        claims: &[Claim<'_>],
        guard: &mut Option<Self::Guard>,
    ) -> impl Future<Output = Result<Claims<Uuid>, Error>> + Send;
    /// Takes the key of an operation, if it is free, in a transaction that only Twinbox may commit. Who asks the
    /// same is waited for, and that may be contention when it takes too long; who asks something else is not.
    #[doc(hidden)]
    fn claim_operation(
        conn: &mut Self::Connection,
        statements: &Statements,
        claim: &OperationClaim<'_>,
    ) -> impl Future<Output = Result<OperationClaimed<Self::Guard>, Error>> + Send;
    /// Marks a transaction that has written as one that only Twinbox may commit, and that ends when its process says
    /// nothing for so long.
    #[doc(hidden)]
    fn guard(
        conn: &mut Self::Connection,
        statements: &Statements,
        idle_max: Duration,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    /// No bytes, and a condition with one bind under which an answer is stored: the statement is
    /// [`allow_commit`](Self::allow_commit) too, and writes nothing if the handler ended the transaction.
    #[doc(hidden)]
    const ANSWER_GUARDED: [&'static str; 2];
    #[doc(hidden)]
    fn answer_guard(
        conn: &mut Self::Connection,
        statements: &Statements,
        guard: &Self::Guard,
    ) -> impl Future<Output = Result<String, Error>> + Send;
    /// Lets the commit that follows through, unless the handler ended the transaction.
    #[doc(hidden)]
    fn allow_commit(
        conn: &mut Self::Connection,
        statements: &Statements,
        guard: &Self::Guard,
    ) -> impl Future<Output = Result<(), Error>> + Send;
    /// Brings what sqlx counts and what the database has together again, so that the rollback that follows
    /// leaves a connection that is fit for the pool.
    #[doc(hidden)]
    fn prepare_rollback(
        conn: &mut Self::Connection,
        guard: Option<&Self::Guard>,
    ) -> impl Future<Output = ()> + Send;
    /// Says whether the commit that returned was the guarded one.
    #[doc(hidden)]
    fn committed(guard: &Self::Guard) -> bool;

    #[doc(hidden)]
    fn rows_affected(result: &Self::QueryResult) -> u64;
}

/// What sqlx counts. None: a connection was swapped in, or a `begin` was dropped half-way inside the
/// handler. More than one: a savepoint was leaked, and sqlx's commit would only release it.
fn exactly_one<DB: Database>(conn: &DB::Connection) -> Result<(), Error> {
    match DB::TransactionManager::get_transaction_depth(conn) {
        0 => Err(transaction_ended()),
        1 => Ok(()),
        _ => Err(crate::tx::savepoint_abandoned()),
    }
}

/// Leaves what sqlx counts at one, so that its rollback means the transaction.
async fn unwind<DB: Database>(conn: &mut DB::Connection) {
    while DB::TransactionManager::get_transaction_depth(conn) > 1 {
        if DB::TransactionManager::rollback(conn).await.is_err() {
            return;
        }
    }
}

pub(crate) fn transaction_aborted() -> Error {
    Error::new(
        crate::ErrorKind::TransactionAborted,
        "a statement failed and its error was ignored, so nothing can be committed",
    )
}

pub(crate) fn transaction_ended() -> Error {
    Error::new(
        crate::ErrorKind::TransactionEnded,
        "the handler ran COMMIT or ROLLBACK, or put another connection in the place of its own",
    )
}
