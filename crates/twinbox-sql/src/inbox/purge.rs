//! Purging claims.
use super::handle::Inbox;
use crate::{
    Dialect, Error, ReaderName,
    micros::{Micros, micros},
    statement::{Query, query, query_of, scalar},
};
use sqlx::{AssertSqlSafe, Row as _};
use std::time::Duration;
use twinbox_core::Timestamp;
use uuid::Uuid;

/// Claims that one move of the purge mark covers.
const MARKED_AT_ONCE: u32 = 100_000;
/// Claims that one statement deletes.
const BATCH: u32 = 1000;
/// How long the failures of a message that never came again are kept.
const ATTEMPTS_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

impl<DB: Dialect> Inbox<DB> {
    /// Deletes claims that are older than `keep`, in statements of 1,000 rows so that nothing waits for it.
    /// Returns the number of deleted claims. Failures go with them, and after 90 days if their message never
    /// came again.
    ///
    /// First the purge mark moves to the newest of their messages. A message without a claim that is no newer
    /// can be a copy of one of them and is not run: [`claim`](Self::claim) fails with
    /// [`ErrorKind::Forgotten`](crate::ErrorKind::Forgotten). So `keep` should be longer than messages can be
    /// delivered again. A claim whose message has a time in the future counts from that time on. Claims of
    /// messages that are newer than a parked one stay until that is settled.
    ///
    /// A message costs about 300 bytes with its indexes: 100 a second for a week are 18 GB.
    ///
    /// Killed or dropped half-way, it has deleted some of them; run it again. Of several processes one does
    /// the work.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge(&self, keep: Duration) -> Result<u64, Error> {
        // Claims go even if failures cannot.
        let attempts = self.purge_attempts(keep).await;
        let mut deleted = 0;
        while let Some((newest_claim, newest_message)) = self.mark_oldest(ago(keep)).await? {
            let some = self.purge_claims(newest_claim, newest_message).await?;
            deleted += some;
            if some < u64::from(MARKED_AT_ONCE) {
                break;
            }
        }
        attempts.map(|()| deleted)
    }

    async fn purge_attempts(&self, keep: Duration) -> Result<(), Error> {
        let (sql, consumer) = (&self.engine.sql().inbox, &self.consumer);
        let (kept, superseded_kept) = (ago(ATTEMPTS_KEPT), ago(keep.max(ATTEMPTS_KEPT)));
        let bind = |age: i64| {
            move |query: Query<'static, DB>| query.bind(consumer.clone()).bind(age).bind(i64::from(BATCH))
        };
        let is_full = |rows: u64| rows >= u64::from(BATCH);
        if sql.purgeable_attempts.is_absent() {
            let bind = |query: Query<'static, DB>| bind(kept)(query).bind(kept);
            while is_full(self.engine.execute(&sql.purge_attempts, bind).await?) {}
        } else {
            while is_full(self.find_and_purge_attempts(kept).await?) {}
        }
        while is_full(self.engine.execute(&sql.purge_superseded, bind(superseded_kept)).await?) {}
        Ok(())
    }

    /// Returns how many were found.
    async fn find_and_purge_attempts(&self, kept: i64) -> Result<u64, Error> {
        let sql = &self.engine.sql().inbox;
        let consumer = self.consumer.clone();
        let bind = |query: Query<'static, DB>| query.bind(consumer).bind(kept).bind(i64::from(BATCH));
        let found = self.engine.fetch_all(&sql.purgeable_attempts, bind).await?;
        if found.is_empty() {
            return Ok(0);
        }
        let places = vec!["?"; found.len()].join(", ");
        let purge = AssertSqlSafe(format!("{} ({places})", sql.purge_attempts.as_str()));
        let mut purge = query_of::<DB>(purge, false).bind(self.consumer.clone()).bind(kept);
        for row in &found {
            purge = purge.bind(row.try_get::<Uuid, _>("message_id")?);
        }
        let mut tx = self.engine.begin_short().await?;
        purge.execute(tx.connection()).await?;
        tx.commit().await?;
        Ok(found.len() as u64)
    }

    /// Moves the purge mark to the newest message of the oldest claims. Returns the times up to which claims,
    /// and their messages, may be deleted now.
    async fn mark_oldest(&self, age: i64) -> Result<Option<(Micros, Micros)>, Error> {
        let sql = &self.engine.sql().inbox;
        let mut conn = self.engine.connection().await?;
        let oldest = query::<DB>(&sql.purgeable_claims)
            .bind(self.consumer.clone())
            .bind(age)
            .bind(i64::from(MARKED_AT_ONCE))
            .fetch_one(&mut *conn)
            .await?;
        let newest_claim: Option<Micros> = oldest.try_get("newest_claim")?;
        let newest_message: Option<Micros> = oldest.try_get("newest_message")?;
        let (Some(newest_claim), Some(newest_message)) = (newest_claim, newest_message) else {
            conn.done().await?;
            return Ok(None);
        };
        let parked = scalar::<DB, Option<Micros>>(&sql.oldest_parked)
            .bind(self.consumer.clone())
            .bind(ReaderName::Consumer(self.consumer.clone()).to_string())
            .fetch_one(&mut *conn)
            .await?;
        conn.done().await?;
        let before = |parked: Micros| Micros(Timestamp::from_micros(parked.0.as_micros().saturating_sub(1)));
        let mark = parked.map_or(newest_message, |parked| newest_message.min(before(parked)));
        self.engine
            .execute(&sql.advance_purge_mark, |query| query.bind(self.consumer.clone()).bind(mark))
            .await?;
        Ok(Some((newest_claim, mark)))
    }

    async fn purge_claims(&self, newest_claim: Micros, newest_message: Micros) -> Result<u64, Error> {
        let mut deleted = 0;
        loop {
            let some = self
                .engine
                .execute(&self.engine.sql().inbox.purge_claims, |query| {
                    query
                        .bind(self.consumer.clone())
                        .bind(newest_claim)
                        .bind(newest_message)
                        .bind(i64::from(BATCH))
                })
                .await?;
            deleted += some;
            if some < u64::from(BATCH) {
                return Ok(deleted);
            }
        }
    }
}

/// Microseconds from now to a time in the past.
fn ago(age: Duration) -> i64 {
    -micros(age)
}
