//! A connection that the pool gets back in time, or loses.
use crate::Dialect;
use sqlx::pool::PoolConnection;
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};
use tokio::runtime::Handle;
use twinbox_core::task_name::TaskName;

/// How long a connection may take until it is fit for the pool. A silent one is closed then.
pub(crate) const RETURN_MAX: Duration = Duration::from_secs(5);

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
            runtime.spawn(
                TaskName::ReturnConnection.of(tokio::time::timeout(RETURN_MAX, conn.return_to_pool())),
            );
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
