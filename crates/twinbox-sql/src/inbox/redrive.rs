//! Dead letters of a consumer, back to work.
use super::{Begun, Claimed, DeadLetter};
use crate::{Dialect, Error, Store, micros::micros, row, sql::query, text::bounded};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::crash;

/// How often a dead letter that is redriven is tried, at most.
pub const REDRIVE_ATTEMPTS: u32 = 3;

/// A dead letter whose turn it is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Redriven {
    /// The letter.
    pub letter: DeadLetter,
    /// How often it may be tried after this.
    pub attempts_left: u32,
}

impl<DB: Dialect> Store<DB> {
    /// Takes dead letters of a consumer whose turn it is, for as long as `lease`; after that, if it was not heard of what
    /// became of them, it is their turn again, [`REDRIVE_ATTEMPTS`] times at most. So one that ends the process does so as
    /// often and no more.
    ///
    /// `is_ordered`: none whose turn comes after an earlier one of its key that was taken and is not done with.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn take_redriven(
        &self,
        consumer: &str,
        is_ordered: bool,
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<Redriven>, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let rows = query::<DB>(&self.statements().letters_take)
            .bind(micros(lease))
            .bind(consumer.to_owned())
            .bind(is_ordered)
            .bind(i64::from(limit))
            .fetch_all(&mut *conn)
            .await?;
        conn.done().await?;
        let read = |row: &DB::Row| {
            let left: i64 = row.try_get(row::LETTER_COLUMNS)?;
            let attempts_left = u32::try_from(left).unwrap_or(0);
            Ok(Redriven { letter: row::letter::<DB>(row)?, attempts_left })
        };
        rows.iter().map(read).collect()
    }

    /// Whether it is the turn of a dead letter of this consumer.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn has_redriven(&self, consumer: &str) -> Result<bool, Error> {
        let mut conn = self.connection().await?;
        let due = query::<DB>(&self.statements().letters_due).bind(consumer.to_owned());
        let due = due.fetch_optional(&mut *conn).await?.is_some();
        conn.done().await?;
        Ok(due)
    }

    /// Begins the transaction of a redriven delivery: in it the letter and the claim that buried its message are deleted,
    /// and the message is claimed anew. Rolled back, all is as before. A letter that was discarded or taken by another
    /// meanwhile is a duplicate.
    ///
    /// # Errors
    /// As [`claim`](Self::claim), but the message is never too old.
    pub async fn claim_letter(&self, consumer: &str, letter: &Redriven) -> Result<Claimed<DB>, Error> {
        let message = &letter.letter.message;
        let one = std::slice::from_ref(message);
        match self.begin_claims(None, consumer, one, false, Some(letter)).await? {
            Begun::Open(attempt) => Ok(Claimed::Open(attempt)),
            Begun::Known(mut tx) => {
                // It has run since, or somebody else runs it: the letter tells of nothing any more.
                let earlier = self.duplicate(tx.connection(), consumer, message).await?;
                tx.commit().await?;
                Ok(Claimed::Duplicate(earlier))
            }
        }
    }

    /// Parks a redriven delivery with those of its partition, where it waits for its turn: behind what is parked of its
    /// key, before what comes, and never beside any of it. The letter and the claim that buried its message are deleted
    /// with it. False: the letter was discarded or taken by another meanwhile, and nothing was written.
    ///
    /// # Errors
    /// The database refused or is away: it is tried again when its lease ends.
    pub async fn park_letter(
        &self,
        consumer: &str,
        redriven: &Redriven,
        partition: u32,
    ) -> Result<bool, Error> {
        let message = &redriven.letter.message;
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        if !self.unbury(tx.connection(), consumer, redriven).await? {
            tx.rollback().await?;
            return Ok(false);
        }
        // What has failed was not handled, however old it is.
        query::<DB>(&self.statements().record_failure)
            .bind(consumer.to_owned())
            .bind(message.message_id().as_uuid())
            .bind(bounded(&redriven.letter.error))
            .execute(tx.connection())
            .await?;
        let parked = [(message, Duration::ZERO)];
        DB::park_deliveries(tx.connection(), self.statements(), consumer, partition, &parked).await?;
        tx.commit().await?;
        crash::point("consumer.after_redrive_parked");
        Ok(true)
    }

    /// Puts on record that a redriven letter has failed. `again`: when it is tried once more.
    ///
    /// # Errors
    /// The database refused or is away: it is tried again when its lease ends.
    pub async fn letter_failed(
        &self,
        letter: &DeadLetter,
        error: &str,
        again: Option<Duration>,
    ) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().letter_failed)
            .bind(bounded(error))
            .bind(again.map(micros))
            .bind(i64::from(again.is_some()))
            .bind(letter.id)
            .bind(letter.message.message_id().as_uuid())
            .execute(&mut *conn)
            .await?;
        conn.done().await?;
        crash::point("consumer.after_redrive_failed");
        Ok(())
    }

    /// Says that a letter was not tried after all, so that this counts for nothing.
    ///
    /// # Errors
    /// The database refused or is away: it has counted, and its turn comes again when its lease ends.
    pub async fn give_back(&self, letter: &Redriven, delay: Duration) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().letter_give_back)
            .bind(micros(delay))
            .bind(letter.letter.id)
            .bind(i64::from(letter.attempts_left))
            .bind(letter.letter.message.message_id().as_uuid())
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }

    /// What [`begin_claims`](Self::begin_claims) begins with for a letter. False: it is not this one's to try.
    pub(super) async fn unbury(
        &self,
        conn: &mut DB::Connection,
        consumer: &str,
        Redriven { letter, attempts_left }: &Redriven,
    ) -> Result<bool, Error> {
        let statements = self.statements();
        let id = letter.message.message_id().as_uuid();
        let claim = query::<DB>(&statements.letter_claim).bind(letter.id).bind(i64::from(*attempts_left));
        let claim = claim.bind(id);
        if DB::rows_affected(&claim.execute(&mut *conn).await?) == 0 {
            return Ok(false);
        }
        query::<DB>(&statements.unbury).bind(consumer.to_owned()).bind(id).execute(conn).await?;
        Ok(true)
    }
}
