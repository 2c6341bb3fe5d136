//! Beginning a transaction without losing it.
use crate::{Dialect, Error, ErrorKind, Store, error::sqlstate};
use sqlx::{AssertSqlSafe, Pool, SqlSafeStr as _, Transaction, pool::PoolConnection};
use sqlx_core::transaction::TransactionManager as _;
use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// Begins a transaction in a task of its own, at READ COMMITTED in Postgres and IMMEDIATE in SQLite.
///
/// Dropping this future drops the task's result and with it the finished transaction, which rolls back.
/// Dropping `pool.begin()` instead (a time-out, a `select!`, an HTTP client that leaves) can leave `BEGIN`
/// on the wire of a connection that sqlx 0.9 takes for idle, and the next borrower's plain writes are lost.
///
/// # Errors
/// No connection within the pool's time-out, or the database refused.
pub async fn begin<DB: Dialect>(pool: &Pool<DB>) -> Result<Transaction<'static, DB>, Error> {
    spawn_begin(pool.clone(), DB::BEGIN).await
}

async fn spawn_begin<DB: Dialect>(
    pool: Pool<DB>,
    statement: &'static str,
) -> Result<Transaction<'static, DB>, Error> {
    let begin = async move {
        let conn = idle_connection(&pool).await?;
        Transaction::begin(conn, Some(AssertSqlSafe(statement).into_sql_str())).await
    };
    match tokio::spawn(begin).await {
        Ok(result) => Ok(result?),
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
    }
}

/// A connection in which sqlx counts no transaction. After SQLite has ended one by itself (a full disk,
/// `RAISE(ROLLBACK)`) sqlx goes on counting it, and every `begin_with` on that connection would fail for good.
async fn idle_connection<DB: Dialect>(pool: &Pool<DB>) -> sqlx::Result<PoolConnection<DB>> {
    loop {
        let conn = pool.acquire().await?;
        if DB::TransactionManager::get_transaction_depth(&conn) == 0 {
            return Ok(conn);
        }
        conn.close().await?;
    }
}

impl<DB: Dialect> Store<DB> {
    /// Begins a transaction. On SQLite it holds the one write permit of this store until it ends, so that
    /// writers take turns instead of finding the database busy.
    ///
    /// Cancel safe: dropped at any point, it leaves no transaction behind.
    ///
    /// # Errors
    /// No connection within the pool's time-out, or the database refused.
    pub async fn begin(&self) -> Result<OwnedTx<DB>, Error> {
        self.begin_with(DB::BEGIN).await
    }

    pub(crate) async fn begin_with(&self, statement: &'static str) -> Result<OwnedTx<DB>, Error> {
        let permit = self.write_permit().await?;
        let tx = spawn_begin(self.pool().clone(), statement).await?;
        Ok(OwnedTx { tx, permit, committed: self.committed() })
    }
}

/// A transaction that its holder commits. It dereferences to the connection:
/// `sqlx::query(…).execute(&mut *tx)`. Dropped without [`commit`](Self::commit), it rolls back.
pub struct OwnedTx<DB: Dialect> {
    tx: Transaction<'static, DB>,
    /// Dropped after the transaction.
    permit: Option<OwnedSemaphorePermit>,
    committed: Arc<watch::Sender<()>>,
}

impl<DB: Dialect> OwnedTx<DB> {
    /// Commits, and wakes the readers of the log in this process.
    ///
    /// Dropped half-way, it may or may not have committed.
    ///
    /// # Errors
    /// [`ErrorKind::CommitUnknown`] when the connection broke before the answer: read what the transaction
    /// wrote before doing it again. Every other error means that nothing was written.
    ///
    /// On Postgres a transaction in which a statement failed is rolled back by COMMIT without an error of
    /// its own; this returns [`ErrorKind::TransactionAborted`] then, where sqlx's `commit` says `Ok`. So it does on SQLite
    /// after SQLite ended the transaction by itself, on `RAISE(ROLLBACK)` or a full disk.
    pub async fn commit(mut self) -> Result<(), Error> {
        DB::ensure_whole(&mut self.tx).await?;
        self.tx.commit().await.map_err(in_doubt)?;
        drop(self.permit);
        self.committed.send_replace(());
        Ok(())
    }

    /// Rolls back and waits until it is done.
    ///
    /// # Errors
    /// The connection broke; the database rolls back by itself.
    pub async fn rollback(mut self) -> Result<(), Error> {
        if DB::ONE_WRITER && DB::TransactionManager::get_transaction_depth(&self.tx) > 0 {
            // If SQLite did it by itself, there has to be something to roll back. Not if sqlx counts none: nobody would end
            // what this begins.
            let _ = DB::ensure_whole(&mut self.tx).await;
        }
        Ok(self.tx.rollback().await?)
    }

    pub(crate) fn connection(&mut self) -> &mut DB::Connection {
        &mut self.tx
    }

    /// Commits without a round trip to ask whether the transaction is whole.
    pub(crate) async fn commit_guarded(self) -> Result<(), Error> {
        self.tx.commit().await.map_err(in_doubt)?;
        drop(self.permit);
        self.committed.send_replace(());
        Ok(())
    }
}

/// An answer from the database is a refusal; silence is not, nor is a pooler's word that the server is gone.
fn in_doubt(error: sqlx::Error) -> Error {
    let gone = |code: String| code.starts_with("08") || code.starts_with("57P") || code == "40003";
    match error {
        sqlx::Error::Database(_) if !sqlstate(&error).is_some_and(gone) => error.into(),
        _ => Error::new(ErrorKind::CommitUnknown, "no answer to COMMIT: it may or may not have happened")
            .with_source(error),
    }
}

impl<DB: Dialect> Deref for OwnedTx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.tx
    }
}

impl<DB: Dialect> DerefMut for OwnedTx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.tx
    }
}

impl<DB: Dialect> fmt::Debug for OwnedTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedTx").field("database", &DB::NAME).finish_non_exhaustive()
    }
}
