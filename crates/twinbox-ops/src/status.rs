//! The status of the readers of the log, and of the server.
use crate::Ops;
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error,
    engine::{Micros, TextColumns, count, query},
};

/// The most messages that [`ReaderStatus`] counts as backlog.
pub const BACKLOG_MAX: u32 = 10_000;

/// The status of a destination, or of a consumer of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderStatus {
    /// The name of the reader's cursor.
    pub name: String,
    /// How long the reader's lease still runs, on the clock of the database. None: no process owns
    /// it. A running reader renews the lease at least four times in its length, so this is its
    /// heartbeat.
    pub lease: Option<Duration>,
    /// How long no process has owned the reader. Zero while one does.
    pub unowned: Duration,
    /// When the reader's cursor was made, if that is known.
    pub started_at: Option<Timestamp>,
    /// How many messages the reader has not settled, counted up to [`BACKLOG_MAX`]. Within a window that is
    /// being read it is an estimate.
    pub backlog: u64,
    /// The age of the oldest unsettled message; zero without any.
    pub oldest: Duration,
    /// How many parked messages wait for another attempt, counted up to [`BACKLOG_MAX`].
    pub waiting: u64,
    /// How many dead letters the reader has, counted up to [`BACKLOG_MAX`].
    pub dead_letters: u64,
    /// How many dead letters block the whole destination, counted up to [`BACKLOG_MAX`].
    pub blocking: u64,
    /// Why an operator paused the reader.
    pub pause_reason: Option<String>,
    /// A position up to which the reader has settled the log, or nearly so. Its growth shows how fast the
    /// reader is.
    pub position: u64,
    /// Whether the reader was so far behind that the log went on without it.
    pub is_detached: bool,
    /// Where at its broker the destination has its messages, as the relay that last owned it recorded, see
    /// [`Destination::address`](twinbox_core::Destination::address).
    pub address: Option<String>,
}

impl<DB: Dialect> Ops<DB> {
    /// Returns the status of all readers of the log, by name. Costs an index range of at most [`BACKLOG_MAX`]
    /// entries for each, and three over its parked messages.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn readers(&self) -> Result<Vec<ReaderStatus>, Error> {
        let sql = self.engine.sql();
        let mut conn = self.engine.connection().await?;
        let mut readers = Vec::new();
        for row in query::<DB>(&sql.cursors.list).fetch_all(&mut *conn).await? {
            let name: String = row.text("destination")?;
            let lease_left: i64 = row.try_get("lease_left")?;
            let backlog = query::<DB>(&sql.log.backlog).bind(name.clone()).bind(i64::from(BACKLOG_MAX));
            let backlog = backlog.fetch_one(&mut *conn).await?;
            let mut status = ReaderStatus {
                unowned: Duration::from_micros(count(lease_left.saturating_neg())),
                started_at: row.try_get::<Option<Micros>, _>("started_at")?.map(|at| at.0),
                lease: u64::try_from(lease_left).ok().filter(|left| *left > 0).map(Duration::from_micros),
                backlog: count(backlog.try_get("messages")?),
                oldest: Duration::from_micros(count(backlog.try_get("oldest_age")?)),
                waiting: 0,
                dead_letters: 0,
                blocking: 0,
                pause_reason: row.text_or_null("pause_reason")?,
                is_detached: row.try_get("is_detached")?,
                position: count(row.try_get("position")?),
                address: row.text_or_null("address")?,
                name,
            };
            let name = || status.name.clone();
            let (limit, counts) = (i64::from(BACKLOG_MAX), query::<DB>(&sql.parked_messages.counts));
            let counts = counts.bind(name()).bind(limit).bind(name()).bind(limit).bind(name()).bind(limit);
            let row = counts.fetch_one(&mut *conn).await?;
            status.waiting = count(row.try_get("waiting")?);
            status.blocking = count(row.try_get("blocking")?);
            status.dead_letters = count(row.try_get("given_up")?).saturating_sub(status.blocking);
            readers.push(status);
        }
        conn.done().await?;
        Ok(readers)
    }

    /// Returns for how long the first delayed message has been due. `None`: none is due.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn delayed_overdue(&self) -> Result<Option<Duration>, Error> {
        let Some(row) = self.engine.fetch_optional(&self.engine.sql().delayed.next, |query| query).await?
        else {
            return Ok(None);
        };
        let at = |column| row.try_get::<Micros, _>(column).map(|at| at.0.as_micros());
        let overdue = u64::try_from(at("now")?.saturating_sub(at("not_before")?));
        Ok(overdue.ok().map(Duration::from_micros))
    }

    /// Returns the settings of the database server on which durability rests, as names and values.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn server_settings(&self) -> Result<Vec<(String, String)>, Error> {
        let rows = self.engine.fetch_all(&self.engine.sql().setup.settings, |query| query).await?;
        rows.iter().map(|row| Ok((row.text("name")?, row.text("value")?))).collect()
    }
}
