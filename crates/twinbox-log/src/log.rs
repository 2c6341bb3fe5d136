//! The handle of the log.
use std::fmt;
use twinbox_sql::{
    Dialect, Error, ErrorKind, ReaderName, Store,
    engine::{Engine, query, scalar},
    replay::Replay,
};

/// Purges the log of a store, moves due messages to it, and finds its replays. Cheap to make and to clone.
pub struct Log<DB: Dialect> {
    pub(crate) engine: Engine<DB>,
}

impl<DB: Dialect> Log<DB> {
    /// Returns a handle to the log of a store.
    pub fn new(store: &Store<DB>) -> Self {
        Self { engine: store.engine().clone() }
    }

    /// Returns the types of the newest messages, sorted by name.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn recent_types(&self, messages: u32) -> Result<Vec<String>, Error> {
        let types = scalar::<DB, String>(&self.engine.sql().outbox.recent_types);
        let mut conn = self.engine.connection().await?;
        let types = types.bind(i64::from(messages)).fetch_all(&mut *conn).await?;
        conn.done().await?;
        Ok(types)
    }

    /// The server run, for callers that keep committed facts in memory.
    ///
    /// # Errors
    /// The database refused or is away, or is a standby.
    #[doc(hidden)]
    pub async fn server_run(&self) -> Result<i64, Error> {
        let mut conn = self.engine.connection().await?;
        let run = self.engine.server_run(&mut conn).await?;
        conn.done().await?;
        Ok(run)
    }

    /// Returns the oldest running replay to a destination that no operator paused.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn next_replay(&self, destination: &str) -> Result<Option<Replay>, Error> {
        if !crate::look::may_have_replays(&self.engine, destination).await? {
            return Ok(None);
        }
        let next = &self.engine.sql().replays.next;
        let row = self.engine.fetch_optional(next, |query| query.bind(destination.to_owned())).await?;
        row.as_ref().map(Replay::read::<DB>).transpose()
    }

    /// Records that all messages of a replay are settled. False: it had ended. `server_run`: the server run
    /// in which they were settled.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: the server started anew, and may have forgotten some of it. The database
    /// refused or is away. The next reader of its cursor goes on where that is.
    pub async fn finish_replay(&self, id: i64, server_run: i64) -> Result<bool, Error> {
        let sql = &self.engine.sql().replays;
        let mut tx = self.engine.begin_short().await?;
        self.engine.check_server_run(&mut tx, server_run).await?;
        let finish = query::<DB>(&sql.finish).bind("done".to_owned()).bind(id);
        let has_ended = DB::rows_affected(&finish.execute(&mut *tx).await?) > 0;
        if has_ended {
            let cursor = ReaderName::Replay(id).to_string();
            query::<DB>(&sql.detach_cursor).bind(cursor).execute(&mut *tx).await?;
        }
        twinbox_core::crash::point("replay.before_end");
        tx.commit().await?;
        twinbox_core::crash::point("replay.after_end");
        Ok(has_ended)
    }
}

/// Another process owns the cursor.
pub(crate) fn lease_lost() -> Error {
    Error::new(ErrorKind::LeaseLost, "another process owns the cursor now")
}

impl<DB: Dialect> Clone for Log<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for Log<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("service", &self.engine.service()).finish_non_exhaustive()
    }
}
