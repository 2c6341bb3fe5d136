//! A transaction that its holder commits, and beginning one without losing it.
use crate::{
    Dialect, Error,
    dialect::exactly_one,
    lent::Lent,
    statement::{STATEMENT_MAX, in_time, raw, silent},
};
use futures::StreamExt as _;
use sqlx::{AssertSqlSafe, Either, Pool, SqlSafeStr as _, SqlStr, Transaction};
use sqlx_core::transaction::TransactionManager as _;
use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, watch};
use twinbox_core::task_name::TaskName;

/// How long a rollback may take. The connection is closed then, and the server rolls back by itself.
pub(crate) const ROLLBACK_MAX: Duration = Duration::from_secs(5);

/// Begins a transaction in a task of its own, at READ COMMITTED in Postgres and IMMEDIATE in SQLite.
///
/// Dropping this future drops the result of the task and with it the finished transaction, which rolls back.
/// Dropping `pool.begin()` instead (a time-out, a `select!`, an HTTP client that leaves) can leave `BEGIN` on
/// the wire of a connection that sqlx 0.9 takes for idle, and the next borrower's plain writes are lost.
///
/// # Errors
/// No connection within the pool's time-out, or the database refused.
pub async fn begin<DB: Dialect>(pool: &Pool<DB>) -> Result<Transaction<'static, DB>, Error> {
    let limit = pool.options().get_acquire_timeout().saturating_add(STATEMENT_MAX);
    let pool = pool.clone();
    // The limit is on the wait for the task: the task has the connection until BEGIN is answered.
    let begin = in_own_task(async move {
        Transaction::begin(idle_connection(&pool).await?.into_inner(), Some(safe(DB::BEGIN_PLAIN))).await
    });
    tokio::time::timeout(limit, begin).await.unwrap_or_else(|_| Err(silent(limit).into()))
}

fn safe(statement: &'static str) -> SqlStr {
    AssertSqlSafe(statement).into_sql_str()
}

async fn in_own_task<T: Send + 'static>(
    begin: impl Future<Output = sqlx::Result<T>> + Send + 'static,
) -> Result<T, Error> {
    match tokio::spawn(TaskName::OwnedBegin.of(begin)).await {
        Ok(result) => Ok(result?),
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
    }
}

/// A connection in which sqlx counts no transaction. After SQLite has ended one by itself (a full disk,
/// `RAISE(ROLLBACK)`) sqlx goes on counting it, and every `begin_with` on that connection would fail for
/// good.
async fn idle_connection<DB: Dialect>(pool: &Pool<DB>) -> sqlx::Result<Lent<DB>> {
    loop {
        let mut conn = Lent::from(pool.acquire().await?);
        if DB::TransactionManager::get_transaction_depth(&conn) == 0 {
            return Ok(conn);
        }
        conn.close_on_drop();
    }
}

/// A transaction on a connection of the pool. Dropped, it rolls back.
#[derive(Debug)]
pub struct PooledTx<DB: Dialect> {
    conn: Lent<DB>,
    is_open: bool,
}

impl<DB: Dialect> PooledTx<DB> {
    /// Begins one in a task of its own, see [`begin`].
    pub(crate) async fn begin(pool: Pool<DB>, statement: &'static str) -> Result<Self, Error> {
        in_own_task(async move {
            let mut tx = Self { conn: idle_connection(&pool).await?, is_open: true };
            let begin = DB::TransactionManager::begin(&mut tx.conn, Some(safe(statement)));
            match in_time(STATEMENT_MAX, begin).await {
                Ok(()) => Ok(tx),
                // A database in memory would be gone with its connection.
                Err(error) => {
                    if !DB::ONE_WRITER {
                        tx.conn.close_on_drop();
                    }
                    Err(error)
                }
            }
        })
        .await
    }

    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        in_time(STATEMENT_MAX, DB::TransactionManager::commit(&mut self.conn)).await?;
        self.is_open = false;
        Ok(())
    }

    async fn rollback(&mut self) -> sqlx::Result<()> {
        in_time(STATEMENT_MAX, DB::TransactionManager::rollback(&mut self.conn)).await?;
        self.is_open = false;
        Ok(())
    }
}

impl<DB: Dialect> Drop for PooledTx<DB> {
    fn drop(&mut self) {
        match DB::ROLLBACK {
            // The pool would lend the session with what BEGIN has changed in it.
            Some(_) if self.is_open => self.conn.close_on_drop(),
            None if self.is_open => {
                // A savepoint that was leaked counts as one more.
                for _ in 0..DB::TransactionManager::get_transaction_depth(&self.conn) {
                    DB::TransactionManager::start_rollback(&mut self.conn);
                }
            }
            _ => {}
        }
    }
}

impl<DB: Dialect> Deref for PooledTx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.conn
    }
}

impl<DB: Dialect> DerefMut for PooledTx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.conn
    }
}

/// A transaction that its holder commits. It dereferences to the connection: `sqlx::query(…).execute(&mut
/// *tx)`. Dropped without [`commit`](Self::commit), it rolls back.
pub struct OwnedTx<DB: Dialect> {
    pub(crate) tx: PooledTx<DB>,
    /// The permit to write, dropped after the transaction.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// Wakes the readers of the log in this process.
    pub(crate) committed: Arc<watch::Sender<()>>,
    /// When the connection was taken from its pool.
    pub(crate) taken_at: Instant,
    /// The guard of the transaction before, where the next one can use it again.
    pub(crate) last_guard: Option<DB::Guard>,
}

impl<DB: Dialect> OwnedTx<DB> {
    /// Commits, and wakes the readers of the log in this process.
    ///
    /// Dropped half-way, it may or may not have committed.
    ///
    /// # Errors
    /// [`ErrorKind::SavepointAbandoned`]: a nested transaction was never ended.
    /// [`ErrorKind::CommitUnknown`] when the connection broke before the answer: read the rows of the
    /// transaction before doing it again. Every other error means that nothing was written, except on MySQL
    /// by a COMMIT of the caller's own, or by a statement that commits, such as CREATE TABLE.
    ///
    /// On Postgres, COMMIT rolls a transaction back in which a statement failed, without an error of its own;
    /// this returns [`ErrorKind::TransactionAborted`] then, where sqlx's `commit` returns `Ok`. It does so on
    /// SQLite too after SQLite ended the transaction by itself, on `RAISE(ROLLBACK)` or a full disk. MySQL
    /// ends one on a deadlock, and this returns [`ErrorKind::TransactionEnded`].
    ///
    /// [`ErrorKind::SavepointAbandoned`]: crate::ErrorKind::SavepointAbandoned
    /// [`ErrorKind::CommitUnknown`]: crate::ErrorKind::CommitUnknown
    /// [`ErrorKind::TransactionEnded`]: crate::ErrorKind::TransactionEnded
    /// [`ErrorKind::TransactionAborted`]: crate::ErrorKind::TransactionAborted
    pub async fn commit(mut self) -> Result<(), Error> {
        if let Err(error) = exactly_one::<DB>(self.connection()) {
            DB::prepare_rollback(self.connection(), None).await;
            let _ = self.rollback().await;
            return Err(error);
        }
        if DB::COMMIT.is_none() {
            DB::ensure_whole(self.connection()).await?;
        }
        self.commit_guarded(true).await
    }

    /// Rolls back and waits until it is done, at most 5 s: then the connection is closed.
    ///
    /// # Errors
    /// The connection broke, or is silent; the database rolls back by itself.
    pub async fn rollback(mut self) -> Result<(), Error> {
        self.roll_back().await
    }

    pub(crate) async fn roll_back(&mut self) -> Result<(), Error> {
        // The rollback of a file ends.
        if DB::ONE_WRITER {
            return self.roll_back_whole().await;
        }
        let rolled_back = tokio::time::timeout(ROLLBACK_MAX, self.roll_back_whole()).await;
        rolled_back.unwrap_or_else(|_| {
            self.tx.conn.close_on_drop();
            Err(silent(ROLLBACK_MAX).into())
        })
    }

    /// The same without a limit.
    pub(crate) async fn roll_back_whole(&mut self) -> Result<(), Error> {
        if DB::ONE_WRITER && DB::TransactionManager::get_transaction_depth(&self.tx.conn) > 0 {
            // SQLite may have ended it by itself: this begins one to roll back. Not if sqlx counts none:
            // nobody would end it.
            let _ = DB::ensure_whole(self.connection()).await;
        }
        if let Some(rollback) = DB::ROLLBACK {
            raw::<DB>(rollback).execute(self.connection()).await?;
        }
        Ok(self.tx.rollback().await?)
    }

    pub(crate) fn connection(&mut self) -> &mut DB::Connection {
        &mut self.tx.conn
    }

    /// Closes the connection and does not wait for its last statement. That of a file ends by itself.
    pub(crate) fn close(mut self) {
        if !DB::ONE_WRITER {
            self.tx.conn.close_on_drop();
        }
    }

    /// Commits without telling the readers of this process to look for messages.
    #[doc(hidden)]
    pub async fn commit_silently(self) -> Result<(), Error> {
        self.commit_guarded(false).await
    }

    /// Commits without a round trip to ask whether the transaction is whole.
    pub(crate) async fn commit_guarded(mut self, wakes_readers: bool) -> Result<(), Error> {
        match DB::COMMIT {
            Some(commit) => {
                if run_commit::<DB>(self.connection(), commit).await?.is_fit() {
                    // sqlx counts one still. Its COMMIT does nothing, and if it fails the connection is
                    // closed.
                    let _ = self.tx.commit().await;
                }
            }
            None => self.tx.commit().await.map_err(Error::of_commit)?,
        }
        drop(self.permit);
        if wakes_readers {
            self.committed.send_replace(());
        }
        Ok(())
    }
}

/// Whether a connection is of use after its transaction was committed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum AfterCommit {
    /// Everything after the COMMIT was done too.
    Fit,
    /// Something was not: close the connection.
    Unfit,
}

impl AfterCommit {
    pub(crate) fn is_fit(self) -> bool {
        self == Self::Fit
    }
}

/// Runs statements of which one is a COMMIT. An error of a later one does not undo the commit.
pub(crate) async fn run_commit<DB: Dialect>(
    conn: &mut DB::Connection,
    sql: &str,
) -> Result<AfterCommit, Error> {
    let commit_at = 1 + sql.split("COMMIT").next().unwrap_or_default().matches(';').count();
    let mut results = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_many(conn);
    let mut done = 0;
    loop {
        let result = tokio::time::timeout(STATEMENT_MAX, results.next()).await;
        match result.unwrap_or_else(|_| Some(Err(silent(STATEMENT_MAX)))) {
            None => return Ok(AfterCommit::Fit),
            Some(Ok(Either::Left(_))) => done += 1,
            Some(Ok(Either::Right(_))) => {}
            Some(Err(error)) if done >= commit_at => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a connection is closed after its commit"
                );
                return Ok(AfterCommit::Unfit);
            }
            Some(Err(error)) => return Err(Error::of_commit(error)),
        }
    }
}

impl<DB: Dialect> Deref for OwnedTx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.tx.conn
    }
}

impl<DB: Dialect> DerefMut for OwnedTx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.tx.conn
    }
}

impl<DB: Dialect> fmt::Debug for OwnedTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedTx").field("database", &DB::NAME).finish_non_exhaustive()
    }
}
