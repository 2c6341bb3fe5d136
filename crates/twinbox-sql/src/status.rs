//! How the readers of the log are doing, and holding one back.
use crate::{Dialect, Error, ErrorKind, Store, micros::Micros, sql::query};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::Timestamp;

/// Up to how many messages a backlog is counted.
pub const BACKLOG_MAX: u32 = 10_000;

/// How a destination, or a consumer of the log, is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderStatus {
    /// The id of its cursor.
    pub name: String,
    /// How long its lease runs, on the database's clock. None: no process has it. Every running reader renews it at
    /// least four times within a lease, so this is its heartbeat.
    pub lease: Option<Duration>,
    /// For how long none has had it. Zero while one has.
    pub unowned: Duration,
    /// When it was new, if that is known.
    pub started_at: Option<Timestamp>,
    /// Messages that are not settled, of all types, counted up to [`BACKLOG_MAX`]. Within a window that is being
    /// read it is an estimate.
    pub backlog: u64,
    /// How long ago the oldest of them was published; zero without any.
    pub oldest: Duration,
    /// Messages that are put aside and tried again.
    pub waiting: u64,
    /// Dead letters.
    pub dead: u64,
    /// Dead letters that hold the whole destination.
    pub blocking: u64,
    /// Why somebody holds it back, see [`Store::open_breaker`].
    pub held: Option<String>,
    /// Whether it was so far behind that the log went on without it, see [`OnMaxLag::Detach`](crate::OnMaxLag).
    pub detached: bool,
}

impl<DB: Dialect> Store<DB> {
    /// All readers of the log, by name. Costs an index range of at most [`BACKLOG_MAX`] entries for each, and
    /// one over its parked messages.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn readers(&self) -> Result<Vec<ReaderStatus>, Error> {
        let statements = self.statements();
        let mut conn = self.connection().await?;
        let mut readers = Vec::new();
        for row in query::<DB>(&statements.readers).fetch_all(&mut *conn).await? {
            let (name, lease): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            let backlog = query::<DB>(&statements.backlog)
                .bind(name.clone())
                .bind(i64::from(BACKLOG_MAX))
                .fetch_one(&mut *conn)
                .await?;
            let mut status = ReaderStatus {
                unowned: Duration::from_micros(unsigned(lease.saturating_neg())),
                started_at: row.try_get::<Option<Micros>, _>(4)?.map(|at| at.0),
                lease: u64::try_from(lease).ok().filter(|left| *left > 0).map(Duration::from_micros),
                backlog: unsigned(backlog.try_get(0)?),
                oldest: Duration::from_micros(unsigned(backlog.try_get(1)?)),
                waiting: 0,
                dead: 0,
                blocking: 0,
                held: row.try_get(2)?,
                detached: row.try_get(3)?,
                name,
            };
            let parked = query::<DB>(&statements.parked_states).bind(status.name.clone());
            for row in parked.fetch_all(&mut *conn).await? {
                let (state, count): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
                match &*state {
                    "waiting" => status.waiting = unsigned(count),
                    "blocking" => status.blocking = unsigned(count),
                    _ => status.dead += unsigned(count),
                }
            }
            readers.push(status);
        }
        conn.done().await?;
        Ok(readers)
    }

    /// Opens the breaker of a destination by hand: whoever owns it sends nothing more, within a quarter of its
    /// lease, and no attempt is counted. It stays open over restarts, in every process, until
    /// [`close_breaker`](Self::close_breaker).
    ///
    /// # Errors
    /// There is no such destination; the database refused or is away.
    pub async fn open_breaker(&self, destination: &str, reason: &str) -> Result<(), Error> {
        self.set_held(destination, Some(reason)).await
    }

    /// Ends what [`open_breaker`](Self::open_breaker) began.
    ///
    /// # Errors
    /// There is no such destination; the database refused or is away.
    pub async fn close_breaker(&self, destination: &str) -> Result<(), Error> {
        self.set_held(destination, None).await
    }

    async fn set_held(&self, destination: &str, reason: Option<&str>) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let set = query::<DB>(&self.statements().cursor_hold)
            .bind(reason.map(|reason| crate::text::text(reason).into_owned()))
            .bind(destination.to_owned())
            .execute(&mut *conn)
            .await?;
        conn.done().await?;
        if DB::rows_affected(&set) == 1 {
            return Ok(());
        }
        Err(self.unknown_destination(destination))
    }

    pub(crate) fn unknown_destination(&self, destination: &str) -> Error {
        let what =
            format!("no destination {destination:?} has ever run here: it gets its row when it starts first");
        Error::new(ErrorKind::NotFound, what)
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
