//! A connection for statements that need no transaction, except behind a pooler.
use crate::{Dialect, Error, owned_tx::PooledTx};
use sqlx::pool::PoolConnection;
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};
use tokio::runtime::Handle;

/// How long a connection may take until it is fit for the pool. A silent one is closed then.
pub(crate) const RETURN_MAX: Duration = Duration::from_secs(5);

/// A connection of the pool, in the form that the store's options ask for. Behind a pooler in transaction
/// mode it is a transaction: only there do a statement and its binds reach the same server for sure.
#[derive(Debug)]
pub enum Connection<DB: Dialect> {
    /// A connection outside a transaction.
    Direct(Direct<DB>),
    /// A connection inside a transaction: behind a pooler, or with settings that end with it.
    InTransaction(PooledTx<DB>),
}

/// A connection of the pool, which the pool gets back within 5 s or loses. The pool would ping a silent one
/// without an end, and count it among its own until TCP gives the server up.
#[derive(Debug)]
pub(crate) struct Lent<DB: Dialect> {
    /// None: it was taken out.
    conn: Option<PoolConnection<DB>>,
    is_closed: bool,
}

const THERE: &str = "the connection is there until it is taken out";

impl<DB: Dialect> Lent<DB> {
    pub(crate) fn close_on_drop(&mut self) {
        self.is_closed = true;
    }

    pub(crate) fn into_inner(mut self) -> PoolConnection<DB> {
        self.conn.take().expect(THERE)
    }
}

impl<DB: Dialect> From<PoolConnection<DB>> for Lent<DB> {
    fn from(conn: PoolConnection<DB>) -> Self {
        Self { conn: Some(conn), is_closed: false }
    }
}

impl<DB: Dialect> Drop for Lent<DB> {
    fn drop(&mut self) {
        let Some(mut conn) = self.conn.take() else { return };
        if self.is_closed {
            return conn.close_on_drop();
        }
        // A file is never silent, and a database in memory would be gone with its connection.
        if let (false, Ok(runtime)) = (DB::ONE_WRITER, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(RETURN_MAX, conn.return_to_pool()));
        }
    }
}

impl<DB: Dialect> Deref for Lent<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.conn.as_ref().expect(THERE)
    }
}

impl<DB: Dialect> DerefMut for Lent<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.conn.as_mut().expect(THERE)
    }
}

/// A connection outside a transaction. Dropped before its last statement ended, it is closed instead of given
/// back.
#[derive(Debug)]
pub struct Direct<DB: Dialect> {
    pub(crate) conn: Lent<DB>,
    pub(crate) is_done: bool,
}

impl<DB: Dialect> Drop for Direct<DB> {
    fn drop(&mut self) {
        // A database in memory would be gone with its connection.
        if !self.is_done && !DB::ONE_WRITER {
            self.conn.close_on_drop();
        }
    }
}

impl<DB: Dialect> Connection<DB> {
    /// Returns the connection to the pool. Behind a pooler this commits: before it, nothing that was written
    /// is there.
    ///
    /// # Errors
    /// The commit failed.
    pub async fn done(self) -> Result<(), Error> {
        match self {
            Self::Direct(mut direct) => {
                direct.is_done = true;
                Ok(())
            }
            Self::InTransaction(tx) => Ok(tx.commit().await?),
        }
    }

    /// Commits the writes of the connection, and returns the connection if it can still be used. Call
    /// [`done`](Self::done) on that one too.
    ///
    /// # Errors
    /// The commit failed.
    pub async fn commit(self) -> Result<Option<Self>, Error> {
        match self {
            Self::Direct(_) => Ok(Some(self)),
            Self::InTransaction(_) => self.done().await.map(|()| None),
        }
    }
}

/// Returns a connection to the pool, if there is one.
///
/// # Errors
/// The commit failed.
pub async fn done_with<DB: Dialect>(conn: Option<Connection<DB>>) -> Result<(), Error> {
    match conn {
        Some(conn) => conn.done().await,
        None => Ok(()),
    }
}

impl<DB: Dialect> Deref for Connection<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match self {
            Self::Direct(direct) => &direct.conn,
            Self::InTransaction(tx) => tx,
        }
    }
}

impl<DB: Dialect> DerefMut for Connection<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match self {
            Self::Direct(direct) => &mut direct.conn,
            Self::InTransaction(tx) => tx,
        }
    }
}
