//! Which run of the server this is.
//!
//! A database may forget commits that were not flushed, and after a failover also those that were not replicated. Whoever
//! goes on from memory then skips what it believes to be done. So readers keep the run in which they took a cursor or a
//! partition, and each statement that builds upon memory compares it.
use crate::{
    Dialect, Error, ErrorKind, Store,
    sql::{query, scalar},
};

/// How often it is made known and read again. Once is enough, unless the server ends in between.
const TRIES_MAX: u32 = 3;

impl<DB: Dialect> Store<DB> {
    /// The run of the server that this connection is of.
    pub(crate) async fn run(&self, conn: &mut DB::Connection) -> Result<i64, Error> {
        let statements = self.statements();
        for _ in 0..TRIES_MAX {
            if let Some(run) = scalar::<DB, Option<i64>>(&statements.run).fetch_one(&mut *conn).await? {
                return Ok(run);
            }
            query::<DB>(&statements.begin_run).execute(&mut *conn).await?;
        }
        Err(Error::new(ErrorKind::Standby, "the server does not say which run it is: it may be a standby"))
    }

    /// The run of the server, for whoever keeps in memory what it has committed.
    ///
    /// # Errors
    /// The database refused or is away, or is a standby.
    #[doc(hidden)]
    pub async fn server_run(&self) -> Result<i64, Error> {
        let mut conn = self.connection().await?;
        let run = self.run(&mut conn).await?;
        conn.done().await?;
        Ok(run)
    }

    /// Fails if it is another run now.
    pub(crate) async fn check_run(&self, conn: &mut DB::Connection, run: i64) -> Result<(), Error> {
        let is_run = scalar::<DB, Option<bool>>(&self.statements().is_run).bind(run).fetch_one(conn).await?;
        if is_run == Some(true) { Ok(()) } else { Err(lost()) }
    }
}

/// The server may have forgotten what it had committed, as a standby can that was promoted: what comes next under the same
/// id is something else. To read everything again is right, whatever the rows say.
pub(crate) fn lost() -> Error {
    Error::new(
        ErrorKind::LeaseLost,
        "the server started anew, is another one, or has lost a tick: what was read is read again",
    )
}
