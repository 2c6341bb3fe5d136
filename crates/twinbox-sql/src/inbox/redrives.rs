//! Dead letters that were redriven.
use super::{
    attempt::{ClaimTx, InboxClaim},
    dead_letter::{Redrive, StoredDeadLetter, read},
    handle::Inbox,
};
use crate::{
    ClaimTerms, Dialect, Error,
    dead_letters::consumer_fingerprint,
    micros::micros,
    row::small_count,
    statement::{Query, Statement, query},
    text::bounded,
};
use sqlx::Row as _;
use std::{slice, time::Duration};
use twinbox_core::crash;

/// The most attempts of a redriven dead letter.
pub const REDRIVE_ATTEMPTS: u32 = 3;

impl<DB: Dialect> Inbox<DB> {
    /// Takes redriven dead letters that are due, under a lease. A redrive without a result is due again after
    /// `lease`, [`REDRIVE_ATTEMPTS`] times at most. So a dead letter that crashes its process does so as
    /// often and no more.
    ///
    /// `is_ordered`: leaves out a dead letter behind an earlier one of its key that is being tried.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn take_redrives(
        &self,
        is_ordered: bool,
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<Redrive>, Error> {
        let sql = &self.engine.sql().dead_letters;
        let rows = if sql.due_redrives.is_absent() {
            let _permit = self.engine.write_permit().await?;
            let bind = |query: Query<'static, DB>| {
                let query = query.bind(micros(lease)).bind(self.consumer.clone());
                query.bind(is_ordered).bind(i64::from(limit))
            };
            self.engine.fetch_all(&sql.take_redriven, bind).await?
        } else {
            self.lock_and_take_redrives(is_ordered, limit, lease).await?
        };
        let read = |row: &DB::Row| {
            let attempts_left = small_count(row.try_get("redrive_attempts_left")?);
            Ok(Redrive { dead_letter: read::<DB>(row)?, attempts_left })
        };
        rows.iter().map(read).collect()
    }

    /// The same where an UPDATE returns no rows.
    async fn lock_and_take_redrives(
        &self,
        is_ordered: bool,
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<DB::Row>, Error> {
        let sql = &self.engine.sql().dead_letters;
        let mut tx = self.engine.begin_short().await?;
        let due = query::<DB>(&sql.due_redrives).bind(self.consumer.clone());
        let due = due.bind(is_ordered).bind(i64::from(limit)).fetch_all(tx.connection()).await?;
        let ids = due.iter().map(|row| row.try_get("id")).collect::<Result<Vec<i64>, _>>()?;
        let ids = serde_json::Value::from(ids).to_string();
        query::<DB>(&sql.take_redriven).bind(micros(lease)).bind(ids).execute(tx.connection()).await?;
        tx.commit().await?;
        Ok(due)
    }

    /// Returns whether a redriven dead letter is due.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn has_due_redrive(&self) -> Result<bool, Error> {
        let has = &self.engine.sql().dead_letters.has_redriven;
        Ok(self.engine.fetch_optional(has, |query| query.bind(self.consumer.clone())).await?.is_some())
    }

    /// Begins the transaction of a redriven dead letter, which deletes the dead letter and claims its message
    /// anew. A rollback restores both. A dead letter that was discarded or taken by another process meanwhile
    /// is a duplicate.
    ///
    /// # Errors
    /// As [`claim`](Self::claim), but the message is never too old. [`ErrorKind::PartlyCommitted`] is of an
    /// attempt of this redrive.
    ///
    /// [`ErrorKind::PartlyCommitted`]: crate::ErrorKind::PartlyCommitted
    pub async fn claim_redrive(&self, terms: ClaimTerms, redrive: &Redrive) -> Result<InboxClaim<DB>, Error> {
        let message = &redrive.dead_letter.message;
        match self.begin_claims(terms, slice::from_ref(message), false, Some(redrive)).await? {
            ClaimTx::Open(attempt) => Ok(InboxClaim::Open(attempt)),
            ClaimTx::Known(mut tx) => {
                // It was handled since, or another process tries it: the dead letter is out of date.
                let earlier = match self.duplicate(tx.connection(), message).await {
                    Ok(earlier) => earlier,
                    Err(error) => {
                        let _ = tx.rollback().await;
                        return Err(error);
                    }
                };
                self.delete_held(tx.connection(), redrive).await?;
                tx.commit().await?;
                Ok(InboxClaim::Duplicate(earlier))
            }
        }
    }

    /// Parks a redriven dead letter of a partition behind the parked messages of its key and before later
    /// ones. Deletes the dead letter with its final claim. False: the dead letter was discarded or taken by
    /// another process meanwhile, and nothing was written.
    ///
    /// # Errors
    /// The database refused or is away: it is tried again when its lease ends.
    pub async fn park_redrive(&self, redrive: &Redrive, partition: u32) -> Result<bool, Error> {
        let (dead_letter, catalog) = (&redrive.dead_letter, self.engine.catalog());
        let mut tx = self.engine.begin_short().await?;
        if !self.take_dead_letter(tx.connection(), redrive).await? {
            tx.rollback().await?;
            return Ok(false);
        }
        self.delete_held(tx.connection(), redrive).await?;
        // A message that failed was not handled, however old it is.
        query::<DB>(&catalog.sql.inbox.record_failure)
            .bind(self.consumer.clone())
            .bind(dead_letter.message.message_id().as_uuid())
            .bind(bounded(&dead_letter.error))
            .execute(tx.connection())
            .await?;
        let delivery = [(&dead_letter.message, Duration::ZERO)];
        DB::park_deliveries(tx.connection(), catalog, &self.consumer, partition, &delivery).await?;
        tx.commit().await?;
        crash::point("consumer.after_redrive_parked");
        Ok(true)
    }

    /// Records that the attempt at a redriven dead letter failed. `retry_after`: the delay of the next
    /// attempt, if there is one. Without one, a later redrive runs the handler again even if it has committed
    /// a part of its work by itself.
    ///
    /// # Errors
    /// The database refused or is away: it is tried again when its lease ends.
    pub async fn record_failed_redrive(
        &self,
        dead_letter: &StoredDeadLetter,
        error: &str,
        retry_after: Option<Duration>,
    ) -> Result<(), Error> {
        let record = &self.engine.sql().dead_letters.record_failure;
        let (error, StoredDeadLetter { message, reason, .. }) = (bounded(error), dead_letter);
        let fingerprint = consumer_fingerprint(&self.consumer, &message.event_type, reason, &error);
        self.engine
            .execute(record, |query| {
                query
                    .bind(error)
                    .bind(fingerprint)
                    .bind(retry_after.map(micros))
                    .bind(i64::from(retry_after.is_some()))
                    .bind(dead_letter.id)
                    .bind(message.message_id().as_uuid())
            })
            .await?;
        let bury = &self.engine.sql().inbox.bury_open_claim;
        if retry_after.is_none() && !bury.is_absent() {
            let id = message.message_id().as_uuid();
            self.engine.execute(bury, |query| query.bind(self.consumer.clone()).bind(id)).await?;
        }
        crash::point("consumer.after_redrive_failed");
        Ok(())
    }

    /// Returns a redriven dead letter that no handler tried, so that the attempt is not counted.
    ///
    /// # Errors
    /// The database refused or is away: the attempt is counted, and the redrive is due again when its lease
    /// ends.
    pub async fn give_back_redrive(&self, redrive: &Redrive, delay: Duration) -> Result<(), Error> {
        let Redrive { dead_letter, attempts_left } = redrive;
        let give_back = &self.engine.sql().dead_letters.give_back;
        self.engine
            .execute(give_back, |query| {
                query
                    .bind(micros(delay))
                    .bind(dead_letter.id)
                    .bind(i64::from(*attempts_left))
                    .bind(dead_letter.message.message_id().as_uuid())
            })
            .await?;
        Ok(())
    }

    /// Deletes a dead letter with its final claim, or holds it where its deletion goes with the commit.
    /// False: another process has it.
    pub(super) async fn take_dead_letter(
        &self,
        conn: &mut DB::Connection,
        redrive: &Redrive,
    ) -> Result<bool, Error> {
        let sql = self.engine.sql();
        let take =
            if sql.dead_letters.hold.is_absent() { &sql.dead_letters.claim } else { &sql.dead_letters.hold };
        if !self.changes_dead_letter(&mut *conn, take, redrive).await? {
            return Ok(false);
        }
        let id = redrive.dead_letter.message.message_id().as_uuid();
        let delete = query::<DB>(&sql.inbox.delete_final_claim).bind(self.consumer.clone()).bind(id);
        delete.execute(conn).await?;
        Ok(true)
    }

    /// Deletes a dead letter that is only held.
    async fn delete_held(&self, conn: &mut DB::Connection, redrive: &Redrive) -> Result<(), Error> {
        let sql = &self.engine.sql().dead_letters;
        if !sql.hold.is_absent() {
            self.changes_dead_letter(conn, &sql.claim, redrive).await?;
        }
        Ok(())
    }

    async fn changes_dead_letter(
        &self,
        conn: &mut DB::Connection,
        change: &Statement,
        Redrive { dead_letter, attempts_left }: &Redrive,
    ) -> Result<bool, Error> {
        let change = query::<DB>(change)
            .bind(dead_letter.id)
            .bind(i64::from(*attempts_left))
            .bind(dead_letter.message.message_id().as_uuid());
        Ok(DB::rows_affected(&change.execute(conn).await?) > 0)
    }
}
