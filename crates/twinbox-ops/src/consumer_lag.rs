//! What waits for a consumer in its own database, and how far it has settled the log of a broker.
use crate::{Ops, status::BACKLOG_MAX};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::{Checkpoint, Timestamp};
use twinbox_sql::{
    Dialect, Error,
    engine::{Micros, TextColumns, count, small_count},
};
use uuid::Uuid;

/// What waits for a consumer in its own database. Messages that a broker has for it are not in here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerBacklog {
    /// The time since the last heartbeat. None: the consumer has no record here.
    pub silent: Option<Duration>,
    /// Why an operator paused the consumer.
    pub pause_reason: Option<String>,
    /// Where at its broker the consumer has its messages, as it recorded with its last heartbeat, see
    /// [`Transport::address`](twinbox_core::Transport::address).
    pub address: Option<String>,
    /// How many deliveries are parked, counted up to [`BACKLOG_MAX`] for each place where they are.
    pub parked: u64,
    /// How many of them are parked as deliveries, not in the log, counted up to [`BACKLOG_MAX`].
    pub parked_deliveries: u64,
    /// How long the oldest of the counted parked deliveries has been parked.
    pub oldest_parked: Option<Duration>,
    /// How many dead letters there are, counted up to [`BACKLOG_MAX`].
    pub dead_letters: u64,
    /// How long ago the oldest dead letter was given up.
    pub oldest_dead_letter: Option<Duration>,
    /// How long ago the consumer last claimed a message. None: it never did, or its inbox is purged.
    pub last_claim: Option<Duration>,
}

/// How far a consumer with `order = "key"` has settled a partition of the log of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionCheckpoint {
    /// The number of the partition.
    pub partition: u32,
    /// The event types that the consumer reads.
    pub types: Vec<String>,
    /// Up to where the consumer has settled the partition.
    pub checkpoint: Checkpoint,
    /// The process that owns the partition. None: no process does.
    pub owner: Option<Uuid>,
}

impl<DB: Dialect> Ops<DB> {
    /// Returns the names of the consumers that have run on this database.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn consumer_names(&self) -> Result<Vec<String>, Error> {
        let rows = self.engine.fetch_all(&self.engine.sql().consumers.names, |query| query).await?;
        rows.iter().map(|row| Ok(row.text("consumer")?)).collect()
    }

    /// Returns what waits for a consumer in its own database. Costs index ranges of at most [`BACKLOG_MAX`]
    /// entries each. An unknown consumer has nothing.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn consumer_backlog(&self, consumer: &str) -> Result<ConsumerBacklog, Error> {
        let (statement, limit) = (&self.engine.sql().consumers.backlog, i64::from(BACKLOG_MAX));
        let name = || consumer.to_owned();
        let found = self.engine.fetch_optional(statement, |query| {
            let query = query.bind(name()).bind(name()).bind(name()).bind(limit);
            query.bind(name()).bind(limit).bind(name()).bind(limit).bind(name())
        });
        let row = found.await?.ok_or(sqlx::Error::RowNotFound)?;
        let now = row.try_get::<Micros, _>("now")?.0;
        let since = |column: &str| {
            let at = row.try_get::<Option<Micros>, _>(column)?;
            Ok::<_, Error>(at.map(|at| between(at.0, now)))
        };
        let parked_deliveries = count(row.try_get("parked_deliveries")?);
        Ok(ConsumerBacklog {
            silent: since("seen_at")?,
            pause_reason: row.text_or_null("pause_reason")?,
            address: row.text_or_null("address")?,
            parked: parked_deliveries + count(row.try_get("parked_messages")?),
            parked_deliveries,
            oldest_parked: since("oldest_delivery")?.max(since("oldest_message")?),
            dead_letters: count(row.try_get("dead_letters")?),
            oldest_dead_letter: since("oldest_dead_letter")?,
            last_claim: since("newest_claim")?,
        })
    }

    /// Returns the checkpoints of a consumer with `order = "key"`, by partition. Empty: it has none, because
    /// it reads the log directly, has no order, or has never run.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn partition_checkpoints(&self, consumer: &str) -> Result<Vec<PartitionCheckpoint>, Error> {
        let list = &self.engine.sql().partitions.list;
        let rows = self.engine.fetch_all(list, |query| query.bind(consumer.to_owned())).await?;
        let read = |row: &DB::Row| {
            let (types, owner): (String, Option<Uuid>) = (row.text("types")?, row.try_get("owner")?);
            let is_expired: bool = row.try_get("is_expired")?;
            Ok(PartitionCheckpoint {
                partition: small_count(row.try_get("partition")?),
                types: types.split(' ').filter(|text| !text.is_empty()).map(str::to_owned).collect(),
                checkpoint: Checkpoint {
                    log: row.text("log")?,
                    sequence: count(row.try_get("sequence")?),
                    message: row.text("last_message")?,
                },
                owner: owner.filter(|_| !is_expired),
            })
        };
        rows.iter().map(read).collect()
    }
}

fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::from_micros(count(later.as_micros().saturating_sub(earlier.as_micros())))
}
