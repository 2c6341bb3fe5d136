//! A connection of a store for statements that need no transaction, except behind a pooler.
use crate::{Dialect, Error, ErrorKind, Store, begin};
use sqlx::{Transaction, pool::PoolConnection};
use std::{
    ops::{Deref, DerefMut},
    sync::atomic::Ordering,
};

/// Behind a pooler in transaction mode a statement and its arguments reach the same server for sure only
/// inside a transaction.
pub(crate) enum Connection<DB: Dialect> {
    Direct(Direct<DB>),
    Pooled(Transaction<'static, DB>),
}

/// Closed instead of given back if it is dropped before its last statement ended. The pool would ask it first
/// whether it lives, without a limit, and count it among its own until TCP gives a silent server up.
pub(crate) struct Direct<DB: Dialect> {
    conn: PoolConnection<DB>,
    done: bool,
}

impl<DB: Dialect> Drop for Direct<DB> {
    fn drop(&mut self) {
        // A file is never silent, and one in memory would be gone with its connection.
        if !self.done && !DB::ONE_WRITER {
            self.conn.close_on_drop();
        }
    }
}

impl<DB: Dialect> Connection<DB> {
    /// To be called after the last statement: until then nothing that was written behind a pooler is there, and
    /// the connection is not used again.
    pub(crate) async fn done(self) -> Result<(), Error> {
        match self {
            Self::Direct(mut direct) => {
                direct.done = true;
                Ok(())
            }
            Self::Pooled(tx) => Ok(tx.commit().await?),
        }
    }

    /// What was written is there for others from here on. None: behind a pooler that ends the connection. To be
    /// [done](Self::done) with all the same.
    pub(crate) async fn committed(self) -> Result<Option<Self>, Error> {
        match self {
            Self::Direct(_) => Ok(Some(self)),
            Self::Pooled(_) => self.done().await.map(|()| None),
        }
    }
}

/// Gives back the one that is at hand, if one is.
pub(crate) async fn done_with<DB: Dialect>(at_hand: Option<Connection<DB>>) -> Result<(), Error> {
    match at_hand {
        Some(conn) => conn.done().await,
        None => Ok(()),
    }
}

impl<DB: Dialect> Deref for Connection<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match self {
            Self::Direct(direct) => &direct.conn,
            Self::Pooled(tx) => tx,
        }
    }
}

impl<DB: Dialect> DerefMut for Connection<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match self {
            Self::Direct(direct) => &mut direct.conn,
            Self::Pooled(tx) => tx,
        }
    }
}

impl<DB: Dialect> Store<DB> {
    pub(crate) async fn connection(&self) -> Result<Connection<DB>, Error> {
        Ok(match self.statements().named {
            true => Connection::Direct(Direct { conn: self.pool().acquire().await?, done: false }),
            false => Connection::Pooled(begin(self.pool()).await?),
        })
    }

    /// The one that is at hand, or another: to get one costs a way there and back, because the pool asks it whether it lives.
    pub(crate) async fn connection_or(
        &self,
        at_hand: Option<Connection<DB>>,
    ) -> Result<Connection<DB>, Error> {
        match at_hand {
            Some(conn) => Ok(conn),
            None => self.connection().await,
        }
    }

    /// Refuses named statements where connections are shared between transactions. Looks once in a process.
    pub(crate) async fn check_pooler(&self) -> Result<(), Error> {
        if !self.statements().named || self.looked_for_pooler().load(Ordering::Relaxed) {
            return Ok(());
        }
        if DB::is_pooled(self.pool()).await? {
            return Err(Error::new(
                ErrorKind::Configuration,
                "a pooler gives this process another server connection for each transaction, where named \
                 statements fail or return the rows of another statement: say `pooler = true` \
                 (`StoreOptions::pooler`), or connect to Postgres directly",
            ));
        }
        self.looked_for_pooler().store(true, Ordering::Relaxed);
        Ok(())
    }
}
