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
    Direct(PoolConnection<DB>),
    Pooled(Transaction<'static, DB>),
}

impl<DB: Dialect> Connection<DB> {
    /// To be called after the last statement: until then nothing that was written behind a pooler is there.
    pub(crate) async fn done(self) -> Result<(), Error> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Pooled(tx) => Ok(tx.commit().await?),
        }
    }
}

impl<DB: Dialect> Deref for Connection<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match self {
            Self::Direct(conn) => conn,
            Self::Pooled(tx) => tx,
        }
    }
}

impl<DB: Dialect> DerefMut for Connection<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match self {
            Self::Direct(conn) => conn,
            Self::Pooled(tx) => tx,
        }
    }
}

impl<DB: Dialect> Store<DB> {
    pub(crate) async fn connection(&self) -> Result<Connection<DB>, Error> {
        Ok(match self.statements().named {
            true => Connection::Direct(self.pool().acquire().await?),
            false => Connection::Pooled(begin(self.pool()).await?),
        })
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
