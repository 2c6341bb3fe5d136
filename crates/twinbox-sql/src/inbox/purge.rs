//! Forgetting what was handled long ago.
use crate::{
    Dialect, Error, Store,
    log::source::reads_as,
    micros::{Micros, micros},
    sql::{query, rows, scalar},
};
use std::time::Duration;
use twinbox_core::Timestamp;

/// Claims that one mark is moved for.
const MARKED_AT_ONCE: u32 = 100_000;
/// Claims that one statement deletes.
const BATCH: u32 = 1000;
/// For how long a failed attempt is remembered whose message never came again.
const ATTEMPTS_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

impl<DB: Dialect> Store<DB> {
    /// Deletes the claims that a consumer made longer ago than `keep`, in statements of 1,000 so that nobody waits for
    /// it. Answers with how many claims are gone. Failed attempts go with them, and after 90 days if their message never
    /// came again.
    ///
    /// First the newest of their messages is written down. A message that has no claim and is no newer can be a copy of
    /// one of them, and is not run: [`claim`](Self::claim) fails with
    /// [`ErrorKind::Forgotten`](crate::ErrorKind::Forgotten). So `keep` should be longer than messages can be delivered
    /// again. A claim whose message has a time in the future counts from that time on, and claims of messages that are
    /// newer than one which is put aside stay until that is done with.
    ///
    /// A message costs about 300 bytes with its indexes: 100 a second for a week are 18 GB.
    ///
    /// Killed or dropped half-way, it has deleted some of them; run it again. Of several processes one does the work.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge_inbox(&self, consumer: &str, keep: Duration) -> Result<u64, Error> {
        self.purge_attempts(consumer, keep).await?;
        let mut deleted = 0;
        while let Some((until, newest)) = self.mark_oldest(consumer, ago(keep)).await? {
            let some = self.purge_claims(consumer, until, newest).await?;
            deleted += some;
            if some < u64::from(MARKED_AT_ONCE) {
                break;
            }
        }
        Ok(deleted)
    }

    async fn purge_attempts(&self, consumer: &str, keep: Duration) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().purge_attempts)
            .bind(consumer.to_owned())
            .bind(ago(ATTEMPTS_KEPT))
            .execute(&mut *conn)
            .await?;
        query::<DB>(&self.statements().purge_superseded)
            .bind(consumer.to_owned())
            .bind(ago(keep.max(ATTEMPTS_KEPT)))
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }

    /// Writes the newest message down that is about to be forgotten. Answers with up to when claims, of messages up to
    /// which time, may be deleted now.
    async fn mark_oldest(&self, consumer: &str, age: i64) -> Result<Option<(Micros, Micros)>, Error> {
        let statements = self.statements();
        let mut conn = self.connection().await?;
        let oldest = rows::<DB, (Option<Micros>, Option<Micros>)>(&statements.purgeable_claims)
            .bind(consumer.to_owned())
            .bind(consumer.to_owned())
            .bind(age)
            .bind(i64::from(MARKED_AT_ONCE))
            .fetch_one(&mut *conn)
            .await?;
        let (Some(until), Some(newest)) = oldest else {
            conn.done().await?;
            return Ok(None);
        };
        let waiting = scalar::<DB, Option<Micros>>(&statements.oldest_waiting)
            .bind(consumer.to_owned())
            .bind(reads_as(consumer))
            .fetch_one(&mut *conn)
            .await?;
        conn.done().await?;
        let before =
            |waiting: Micros| Micros(Timestamp::from_micros(waiting.0.as_micros().saturating_sub(1)));
        let newest = waiting.map_or(newest, |waiting| newest.min(before(waiting)));
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&statements.purge_mark_moves)
            .bind(consumer.to_owned())
            .bind(newest)
            .execute(&mut *conn)
            .await?;
        conn.done().await?;
        Ok(Some((until, newest)))
    }

    async fn purge_claims(&self, consumer: &str, until: Micros, newest: Micros) -> Result<u64, Error> {
        let mut deleted = 0;
        loop {
            let _permit = self.write_permit().await?;
            let mut conn = self.connection().await?;
            let done = query::<DB>(&self.statements().purge_claims)
                .bind(consumer.to_owned())
                .bind(until)
                .bind(newest)
                .bind(i64::from(BATCH))
                .execute(&mut *conn)
                .await?;
            conn.done().await?;
            let some = DB::rows_affected(&done);
            deleted += some;
            if some < u64::from(BATCH) {
                return Ok(deleted);
            }
        }
    }
}

/// Microseconds from now to a time that is past.
fn ago(age: Duration) -> i64 {
    -micros(age)
}
