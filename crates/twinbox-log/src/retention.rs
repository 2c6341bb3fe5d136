//! Purging the log.
use crate::Log;
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::limits::bounded;
use twinbox_sql::{
    Dialect, Error, OwnedTx, ReaderName,
    engine::{PURGE_BATCH, Purged, Text, TextColumns as _, micros, query, scalar},
};

/// How often one step of the purge is tried. It waits a second for a lock.
const TRIES_MAX: u32 = 5;

/// How long [`Log::purge`] keeps messages, and for whom. A bare [`Duration`] is `Retention::new` of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Retention {
    keep: Duration,
    max_lag: Option<(Duration, OnMaxLag)>,
}

/// What happens to a destination that is too far behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnMaxLag {
    /// The reader is reported, and every message that the reader has not settled is kept.
    Block,
    /// The reader is detached, and the messages that it has not settled are deleted like the rest.
    /// The reader then fails with [`ErrorKind::Detached`](twinbox_sql::ErrorKind::Detached) until
    /// an operator retires the destination and starts it again.
    Detach,
}

impl Retention {
    /// Keeps messages that are younger than `keep`, and unsettled ones of any age.
    pub fn new(keep: Duration) -> Self {
        Self { keep: bounded(keep), max_lag: None }
    }

    /// Sets the age of an unsettled message from which its destination lags too far behind. No destination is
    /// detached for messages that are kept anyway. Default: every destination is waited for.
    pub fn max_lag(self, max_lag: Duration, on_max_lag: OnMaxLag) -> Self {
        Self { max_lag: Some((bounded(max_lag), on_max_lag)), ..self }
    }
}

impl From<Duration> for Retention {
    fn from(keep: Duration) -> Self {
        Self::new(keep)
    }
}

/// The result of [`Log::purge`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeReport {
    /// How many messages were deleted.
    pub messages: u64,
    /// The reader that is furthest behind, if it keeps messages that are old enough to go.
    pub slowest_reader: Option<String>,
    /// Readers that are further behind than [`Retention::max_lag`]. With [`OnMaxLag::Detach`] they are
    /// detached now; earlier detached ones are not among them.
    pub lagging: Vec<String>,
}

impl<DB: Dialect> Log<DB> {
    /// Deletes messages that are older than the retention, that every destination and every consumer of the
    /// log has settled, and that are not parked. Without any reader it deletes nothing. It deletes in
    /// statements of 1,000 messages, so that nothing waits for it.
    ///
    /// A message that is kept for a week at 100 a second and 1 KB costs about 60 GB with its indexes.
    ///
    /// Killed half-way, it has deleted some of them; run it again. Readers are detached before the first
    /// message that they need is deleted. The age of a message is the time since its commit, as far as the
    /// ticks of the readers tell; on SQLite it goes by the time of the message.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge(&self, retention: impl Into<Retention>) -> Result<PurgeReport, Error> {
        let Retention { keep, max_lag } = retention.into();
        let lagging = match max_lag {
            Some((max_lag, on_max_lag)) => self.lagging(max_lag, keep, on_max_lag).await?,
            None => Vec::new(),
        };
        let (age, sql) = (micros(keep), self.engine.sql());
        let (mut messages, mut next) = (0, Some(0));
        while let Some(after) = next {
            let purged = self.purge_some(age, after).await?;
            (messages, next) = (messages + purged.messages, purged.next);
        }
        self.engine.execute(&sql.replays.delete_cursors, |query| query).await?;
        let before = age.saturating_neg();
        let parked = self.delete_parked_of_replays(before).await;
        self.purge_ticks(age).await?;
        parked?;
        let mut conn = self.engine.connection().await?;
        let slowest_reader = scalar::<DB, Text>(&sql.retention.slowest_reader).bind(age);
        let slowest_reader = slowest_reader.fetch_optional(&mut *conn).await?.map(|name| name.0);
        conn.done().await?;
        Ok(PurgeReport { messages, slowest_reader, lagging })
    }

    /// Deletes the parked rows of replays that ended before a time. It goes from reader to reader that has
    /// any, because a join would read the parked rows of all.
    async fn delete_parked_of_replays(&self, before: i64) -> Result<(), Error> {
        let (sql, mut last) = (self.engine.sql(), String::new());
        loop {
            let next = &sql.parked_messages.next_owner;
            let row = self.engine.fetch_optional(next, |query| query.bind(last.clone())).await?;
            let name = row.map(|row| row.text_or_null("name")).transpose()?.flatten();
            let Some(name) = name else { return Ok(()) };
            if let Ok(ReaderName::Replay(id)) = name.parse()
                && name == ReaderName::Replay(id).to_string()
            {
                let ended = &sql.replays.ended_before;
                let ended = self.engine.fetch_optional(ended, |query| query.bind(id).bind(before)).await?;
                if ended.is_some() {
                    let retire = &sql.retention.retire_parked;
                    self.engine.execute(retire, |query| query.bind(name.clone())).await?;
                }
            }
            last = name;
        }
    }

    async fn purge_some(&self, age: i64, after: i64) -> Result<Purged, Error> {
        let sql = self.engine.sql();
        if sql.holes.purge.is_absent() {
            let (messages, found) = self.purge_settled(age).await?;
            return Ok(Purged { messages, next: (found >= PURGE_BATCH.into()).then_some(after) });
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let mut tx = self.engine.begin_short().await?;
            let purged = DB::purge(&mut tx, self.engine.catalog(), age, after).await;
            match end(tx, purged).await {
                Err(error) if error.is_contention() && tries < TRIES_MAX => {}
                purged => return purged,
            }
        }
    }

    /// Returns how many messages it has deleted, and found.
    async fn purge_settled(&self, age: i64) -> Result<(u64, u64), Error> {
        let (sql, batch) = (&self.engine.sql().retention, i64::from(PURGE_BATCH));
        if sql.purgeable.is_absent() {
            let messages = self.engine.execute(&sql.purge, |query| query.bind(age).bind(batch)).await?;
            return Ok((messages, messages));
        }
        let settled = self.engine.fetch_all(&sql.purgeable, |query| query.bind(age).bind(batch)).await?;
        if settled.is_empty() {
            return Ok((0, 0));
        }
        let positions = settled.iter().map(|row| row.try_get("position"));
        let positions = positions.collect::<Result<Vec<i64>, _>>()?;
        let positions = serde_json::Value::from(positions).to_string();
        let messages = self.engine.execute(&sql.purge, |query| query.bind(positions)).await?;
        Ok((messages, settled.len() as u64))
    }

    async fn purge_ticks(&self, age: i64) -> Result<(), Error> {
        let sql = self.engine.sql();
        if !sql.retention.purge_ticks.is_absent() {
            self.engine.execute(&sql.retention.purge_ticks, |query| query.bind(age)).await?;
        }
        let mut may_be_more = !sql.holes.purge_ticks.is_absent();
        while may_be_more {
            let mut tx = self.engine.begin_short().await?;
            let purged = DB::purge_ticks(&mut tx, self.engine.catalog(), age).await;
            may_be_more = end(tx, purged).await?;
        }
        Ok(())
    }

    /// Destinations that are too far behind, after detaching them if they are to be.
    async fn lagging(
        &self,
        max_lag: Duration,
        keep: Duration,
        on_max_lag: OnMaxLag,
    ) -> Result<Vec<String>, Error> {
        let sql = &self.engine.sql().retention;
        let age = micros(match on_max_lag {
            OnMaxLag::Block => max_lag,
            OnMaxLag::Detach => max_lag.max(keep),
        });
        let _permit = self.engine.write_permit().await?;
        let mut conn = self.engine.connection().await?;
        let found = scalar::<DB, Text>(&sql.lagging).bind(age).fetch_all(&mut *conn).await?;
        let mut lagging = Vec::with_capacity(found.len());
        for Text(destination) in found {
            let is_lagging = match on_max_lag {
                OnMaxLag::Block => true,
                OnMaxLag::Detach => {
                    let detach = query::<DB>(&sql.detach).bind(destination.clone()).bind(age);
                    DB::rows_affected(&detach.execute(&mut *conn).await?) > 0
                }
            };
            lagging.extend(is_lagging.then_some(destination));
        }
        conn.done().await?;
        Ok(lagging)
    }
}

async fn end<DB: Dialect, T>(tx: OwnedTx<DB>, done: Result<T, Error>) -> Result<T, Error> {
    match done {
        Ok(done) => tx.commit_silently().await.map(|()| done),
        Err(error) => {
            let _ = tx.rollback().await;
            Err(error)
        }
    }
}
