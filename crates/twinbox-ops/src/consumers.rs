//! Consumers that have run, and pausing them.
use crate::Ops;
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    engine::{Micros, TextColumns, bounded, count},
};

/// A consumer that has run on this database.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerInfo {
    /// The name of the consumer.
    pub consumer: String,
    /// The last heartbeat of the consumer, recorded every
    /// [`HEARTBEAT`](twinbox_sql::inbox::HEARTBEAT) by each process that runs it.
    pub seen_at: Timestamp,
    /// The time since the last heartbeat.
    pub silent: Duration,
    /// Why an operator paused the consumer.
    pub pause_reason: Option<String>,
    /// As [`ConsumerBacklog::address`](crate::ConsumerBacklog::address).
    pub address: Option<String>,
    /// The number of partitions of the log that no process has, of a consumer with `order = "key"`.
    pub unowned_partitions: u64,
    /// The time since a process had the partition that has been without one for the longest time.
    pub unowned: Duration,
    /// The number of dead letters of the consumer, counted up to [`BACKLOG_MAX`](crate::BACKLOG_MAX).
    pub dead_letters: u64,
    /// The number of parked deliveries of the consumer, counted up to [`BACKLOG_MAX`](crate::BACKLOG_MAX).
    pub parked_deliveries: u64,
}

impl<DB: Dialect> Ops<DB> {
    /// Pauses a consumer in every process that runs it, within two seconds. It takes no more deliveries;
    /// those in flight finish. It stays paused over restarts until
    /// [`resume_consumer`](Self::resume_consumer).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: it has never run here. Or the database refused or is away.
    pub async fn pause_consumer(&self, consumer: &str, reason: &str) -> Result<(), Error> {
        self.set_consumer_pause(consumer, Some(bounded(reason))).await
    }

    /// Resumes a paused consumer.
    ///
    /// # Errors
    /// As [`pause_consumer`](Self::pause_consumer).
    pub async fn resume_consumer(&self, consumer: &str) -> Result<(), Error> {
        self.set_consumer_pause(consumer, None).await
    }

    async fn set_consumer_pause(&self, consumer: &str, reason: Option<String>) -> Result<(), Error> {
        let set = &self.engine.sql().consumers.set_pause;
        match self.engine.execute(set, |query| query.bind(reason).bind(consumer.to_owned())).await? {
            1 => Ok(()),
            _ => Err(Error::new(
                ErrorKind::NotFound,
                format!("no consumer {consumer:?} has ever run on this database"),
            )),
        }
    }

    /// Deletes the record that a consumer has run here. It comes back if the consumer runs again. Its claims
    /// and dead letters stay. False: there is no record.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn forget_consumer(&self, consumer: &str) -> Result<bool, Error> {
        let forget = &self.engine.sql().consumers.forget;
        Ok(self.engine.execute(forget, |query| query.bind(consumer.to_owned())).await? > 0)
    }

    /// Returns the consumers that have run on this database, by name.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn consumers(&self) -> Result<Vec<ConsumerInfo>, Error> {
        let rows = self.engine.fetch_all(&self.engine.sql().consumers.list, |query| query).await?;
        let mut consumers = Vec::new();
        for row in rows {
            let (seen_at, now): (Micros, Micros) = (row.try_get("seen_at")?, row.try_get("now")?);
            let since = |time: Timestamp| {
                Duration::from_micros(count(now.0.as_micros().saturating_sub(time.as_micros())))
            };
            let unowned_since = row.try_get::<Option<Micros>, _>("unowned_since")?;
            let consumer = row.text("consumer")?;
            let backlog = self.consumer_backlog(&consumer).await?;
            consumers.push(ConsumerInfo {
                consumer,
                seen_at: seen_at.0,
                silent: since(seen_at.0),
                pause_reason: row.text_or_null("pause_reason")?,
                unowned_partitions: count(row.try_get("unowned_partitions")?),
                unowned: unowned_since.map_or(Duration::ZERO, |time| since(time.0)),
                address: backlog.address,
                dead_letters: backlog.dead_letters,
                parked_deliveries: backlog.parked_deliveries,
            });
        }
        Ok(consumers)
    }
}
