//! A handle to the log of a store.
use sqlx::Row as _;
use std::fmt;
use twinbox_core::destination::DestinationSecret;
use twinbox_sql::{
    Dialect, Error, ErrorKind, ReaderName, Store,
    engine::{Engine, Text, check_server_run, query, scalar},
    replay::Replay,
};

/// A handle to the log of a store, for its upkeep: purges it, moves delayed messages into it when they are
/// due, and finds and ends replays. Cheap to create and to clone.
pub struct Log<DB: Dialect> {
    pub(crate) engine: Engine<DB>,
}

impl<DB: Dialect> Log<DB> {
    /// Returns a handle to the log of a store.
    pub fn new(store: &Store<DB>) -> Self {
        Self { engine: store.engine().clone() }
    }

    /// Returns the distinct types of the newest messages, sorted by name.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn recent_types(&self, message_count: u32) -> Result<Vec<String>, Error> {
        let types = scalar::<DB, Text>(&self.engine.sql().outbox.recent_types);
        let mut conn = self.engine.connection().await?;
        let types = types.bind(i64::from(message_count)).fetch_all(&mut *conn).await?;
        conn.done().await?;
        Ok(types.into_iter().map(|name| name.0).collect())
    }

    /// Returns the number of the database server's run. A caller that remembers what it committed compares
    /// it: another run may have forgotten the last commits.
    ///
    /// # Errors
    /// The database refused or is away, or is a standby.
    #[doc(hidden)]
    pub async fn server_run(&self) -> Result<i64, Error> {
        self.engine.record_server_run().await
    }

    /// Returns the secret of a destination. The first call makes it; all later ones, also of other processes,
    /// return the same.
    ///
    /// # Errors
    /// The database refused or is away, or holds no secret of 32 bytes.
    pub async fn destination_secret(&self, destination: &str) -> Result<DestinationSecret, Error> {
        let sql = &self.engine.sql().cursors;
        let find = || self.engine.fetch_optional(&sql.secret, |query| query.bind(destination.to_owned()));
        let mut found = find().await?;
        if found.is_none() {
            let new = DestinationSecret::random().map_err(|error| {
                Error::new(ErrorKind::Configuration, "the operating system has no randomness")
                    .with_source(error)
            })?;
            let _permit = self.engine.write_permit().await?;
            let mut conn = self.engine.connection().await?;
            query::<DB>(&sql.create_secret)
                .bind(destination.to_owned())
                .bind(new.as_bytes().to_vec())
                .execute(&mut *conn)
                .await?;
            conn.done().await?;
            found = find().await?;
        }
        let bytes = found.map(|row| row.try_get::<Vec<u8>, _>("secret")).transpose()?;
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(DestinationSecret::from_bytes).ok_or_else(|| {
            let text =
                format!("the table of secrets has none of 32 bytes for the destination {destination:?}");
            Error::new(ErrorKind::Database, text)
        })
    }

    /// Returns the oldest replay to a destination that has not ended and is not paused.
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

    /// Ends a replay whose messages are all settled, and returns false if it had ended before. `server_run`:
    /// the server run in which they were settled.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: the server was restarted since, and may have forgotten the last settled
    /// messages. The database refused or is away. In both cases the next reader of the replay continues after
    /// the stored cursor.
    pub async fn finish_replay(&self, id: i64, server_run: i64) -> Result<bool, Error> {
        let sql = &self.engine.sql().replays;
        let mut tx = self.engine.begin_short().await?;
        check_server_run::<DB>(&mut tx, self.engine.catalog(), server_run).await?;
        let finish = query::<DB>(&sql.finish).bind("done".to_owned()).bind(id);
        let ends_now = DB::rows_affected(&finish.execute(&mut *tx).await?) > 0;
        if ends_now {
            let cursor = ReaderName::Replay(id).to_string();
            query::<DB>(&sql.detach_cursor).bind(cursor).execute(&mut *tx).await?;
        }
        twinbox_core::crash::point("replay.before_end");
        tx.commit().await?;
        twinbox_core::crash::point("replay.after_end");
        Ok(ends_now)
    }
}

/// The error of a reader whose cursor another process owns.
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
