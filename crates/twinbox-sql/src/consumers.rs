//! Consumers that have run here, and holding one back.
use crate::{
    Dialect, Error, ErrorKind, Store,
    micros::Micros,
    replay::unsigned,
    sql::{query, scalar},
    text::bounded,
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::Timestamp;

/// How often a consumer that runs says so.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// A consumer that has run here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerRecord {
    /// Its name.
    pub consumer: String,
    /// When a process last said that it runs it: every [`HEARTBEAT`].
    pub seen_at: Timestamp,
    /// How long ago that is.
    pub silent: Duration,
    /// Why somebody holds it back.
    pub paused: Option<String>,
    /// Messages that it has given up.
    pub dead_letters: u64,
    /// Deliveries of a broker that it has put aside.
    pub parked_deliveries: u64,
}

impl<DB: Dialect> Store<DB> {
    /// Says that this process runs the consumer. Answers with why it is held back, if it is.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn consumer_runs(&self, consumer: &str) -> Result<Option<String>, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let runs = scalar::<DB, Option<String>>(&self.statements().consumer_runs).bind(consumer.to_owned());
        let paused = runs.fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(paused)
    }

    /// Why a consumer is held back, if it is.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn consumer_paused(&self, consumer: &str) -> Result<Option<String>, Error> {
        let mut conn = self.connection().await?;
        let paused =
            scalar::<DB, Option<String>>(&self.statements().consumer_paused).bind(consumer.to_owned());
        let paused = paused.fetch_optional(&mut *conn).await?;
        conn.done().await?;
        Ok(paused.flatten())
    }

    /// Holds a consumer back in every process that runs it, within two seconds: it takes no more deliveries, and those
    /// under way finish. It stays so over restarts, until [`resume_consumer`](Self::resume_consumer).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: it has never run here. Or the database refused or is away.
    pub async fn pause_consumer(&self, consumer: &str, reason: &str) -> Result<(), Error> {
        self.set_paused(consumer, Some(bounded(reason))).await
    }

    /// Ends what [`pause_consumer`](Self::pause_consumer) began.
    ///
    /// # Errors
    /// As [`pause_consumer`](Self::pause_consumer).
    pub async fn resume_consumer(&self, consumer: &str) -> Result<(), Error> {
        self.set_paused(consumer, None).await
    }

    async fn set_paused(&self, consumer: &str, reason: Option<String>) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let set = query::<DB>(&self.statements().consumer_pause).bind(reason).bind(consumer.to_owned());
        let set = DB::rows_affected(&set.execute(&mut *conn).await?);
        conn.done().await?;
        if set == 1 {
            return Ok(());
        }
        let what = format!("no consumer {consumer:?} has ever run on this database");
        Err(Error::new(ErrorKind::NotFound, what))
    }

    /// Forgets that a consumer has run here, which comes back if it runs again. Its claims and letters stay. False: it never
    /// has.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn forget_consumer(&self, consumer: &str) -> Result<bool, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let forget = query::<DB>(&self.statements().consumer_forget).bind(consumer.to_owned());
        let forgotten = DB::rows_affected(&forget.execute(&mut *conn).await?) > 0;
        conn.done().await?;
        Ok(forgotten)
    }

    /// Consumers that have run here, by name.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn consumers(&self) -> Result<Vec<ConsumerRecord>, Error> {
        let mut conn = self.connection().await?;
        let rows = query::<DB>(&self.statements().consumers).fetch_all(&mut *conn).await?;
        conn.done().await?;
        let read = |row: DB::Row| {
            let (seen_at, now): (Micros, Micros) = (row.try_get(1)?, row.try_get(2)?);
            let silent = now.0.as_micros().saturating_sub(seen_at.0.as_micros());
            Ok(ConsumerRecord {
                consumer: row.try_get(0)?,
                seen_at: seen_at.0,
                silent: Duration::from_micros(unsigned(silent)),
                paused: row.try_get(3)?,
                dead_letters: unsigned(row.try_get(4)?),
                parked_deliveries: unsigned(row.try_get(5)?),
            })
        };
        rows.into_iter().map(read).collect()
    }
}
