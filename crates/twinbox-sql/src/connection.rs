//! A connection for statements that need no transaction, except behind a pooler.
use crate::{Dialect, Error, lent::Lent, owned_tx::PooledTx};
use std::ops::{Deref, DerefMut};

/// A connection of the pool, in the form that the store's options ask for. Behind a pooler in transaction
/// mode it is a transaction: only there do a statement and its binds reach the same server for sure.
#[derive(Debug)]
pub enum Connection<DB: Dialect> {
    /// A connection outside a transaction.
    Direct(Direct<DB>),
    /// A connection inside a transaction: behind a pooler, or with settings that end with it.
    InTransaction(PooledTx<DB>),
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
