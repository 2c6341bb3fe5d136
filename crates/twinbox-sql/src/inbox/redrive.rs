//! Dead letters of a consumer, back to work.
use super::{Begun, Claimed, DeadLetter};
use crate::{Dialect, Error, Store, row, sql::query, text::bounded};
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
    /// # Errors
    /// The database refused or is away.
    pub async fn take_redriven(
        &self,
        consumer: &str,
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<Redriven>, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let rows = query::<DB>(&self.statements().letters_take)
            .bind(i64::try_from(lease.as_micros()).unwrap_or(i64::MAX))
            .bind(consumer.to_owned())
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

    /// Puts on record that a redriven letter has failed. `again`: when it is tried once more.
    ///
    /// # Errors
    /// The database refused or is away: it is tried again when its lease ends.
    pub async fn letter_failed(
        &self,
        letter: i64,
        error: &str,
        again: Option<Duration>,
    ) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().letter_failed)
            .bind(bounded(error))
            .bind(again.map(|delay| i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)))
            .bind(i64::from(again.is_some()))
            .bind(letter)
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
            .bind(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX))
            .bind(letter.letter.id)
            .bind(i64::from(letter.attempts_left))
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
        let claim = query::<DB>(&statements.letter_claim).bind(letter.id).bind(i64::from(*attempts_left));
        if DB::rows_affected(&claim.execute(&mut *conn).await?) == 0 {
            return Ok(false);
        }
        let id = letter.message.message_id().as_uuid();
        query::<DB>(&statements.unbury).bind(consumer.to_owned()).bind(id).execute(conn).await?;
        Ok(true)
    }
}
