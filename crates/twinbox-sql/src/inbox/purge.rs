//! Purging claims.
use super::handle::Inbox;
use crate::{
    Dialect, Error, ReaderName,
    micros::{Micros, micros},
    statement::{Query, query, scalar},
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::Timestamp;

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
        self.purge_attempts(keep).await?;
        let mut deleted = 0;
        while let Some((newest_claim, newest_message)) = self.mark_oldest(ago(keep)).await? {
            let some = self.purge_claims(newest_claim, newest_message).await?;
            deleted += some;
            if some < u64::from(MARKED_AT_ONCE) {
                break;
            }
        }
        Ok(deleted)
    }

    async fn purge_attempts(&self, keep: Duration) -> Result<(), Error> {
        let (sql, consumer) = (&self.engine.sql().inbox, &self.consumer);
        let (kept, superseded_kept) = (ago(ATTEMPTS_KEPT), ago(keep.max(ATTEMPTS_KEPT)));
        for (purge, age) in [(&sql.purge_attempts, kept), (&sql.purge_superseded, superseded_kept)] {
            let bind =
                |query: Query<'static, DB>| query.bind(consumer.clone()).bind(age).bind(i64::from(BATCH));
            while self.engine.execute(purge, bind).await? >= u64::from(BATCH) {}
        }
        Ok(())
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
