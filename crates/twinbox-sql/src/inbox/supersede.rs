//! Taking a claim back, so that its message runs again on purpose.
use super::handle::Inbox;
use crate::{Dialect, Error, micros::Micros, statement::query};
use twinbox_core::{Message, Timestamp, crash};
use uuid::Uuid;

/// The result of superseding a claim, so that its message runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Superseding {
    /// A claim was superseded now.
    Taken,
    /// There was no claim: the message was never handled, or is being handled.
    Unclaimed,
    /// This replay had superseded the claim earlier. If there is a claim, it is the replay's own.
    Before,
}

impl<DB: Dialect> Inbox<DB> {
    /// Supersedes the claim of a message for a replay, so that its handler runs again. That happens once for
    /// each replay, and only if the claim is older than the replay: a newer one is right. The claim is copied
    /// to `superseded_claims`, and the next [`claim`](Self::claim) finds none. Failures are deleted.
    ///
    /// Killed after it, the message has no claim and is delivered again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn supersede(&self, message: &Message, replay: Uuid) -> Result<Superseding, Error> {
        let (sql, id) = (self.engine.sql(), message.message_id().as_uuid());
        let mut tx = self.engine.begin_short().await?;
        let copy = query::<DB>(&sql.inbox.supersede).bind(self.consumer.clone()).bind(id).bind(replay);
        let is_first = DB::rows_affected(&copy.execute(tx.connection()).await?) > 0;
        let mut is_taken = false;
        if is_first {
            is_taken = self.take_back(tx.connection(), message, created_at(replay)).await?;
            let delete = query::<DB>(&sql.inbox.delete_attempts).bind(self.consumer.clone()).bind(id);
            delete.execute(tx.connection()).await?;
        }
        tx.commit().await?;
        crash::point("consumer.after_supersede");
        Ok(match (is_first, is_taken) {
            (false, _) => Superseding::Before,
            (true, true) => Superseding::Taken,
            (true, false) => Superseding::Unclaimed,
        })
    }

    /// Supersedes a claim that was committed after [`supersede`](Self::supersede) found none: its handler had
    /// begun before the replay was made. False: the claim is newer than the replay.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn supersede_late(&self, message: &Message, replay: Uuid) -> Result<bool, Error> {
        let mut tx = self.engine.begin_short().await?;
        let is_taken = self.take_back(tx.connection(), message, created_at(replay)).await?;
        tx.commit().await?;
        Ok(is_taken)
    }

    /// Deletes a claim that was made before a time.
    async fn take_back(
        &self,
        conn: &mut DB::Connection,
        message: &Message,
        before: Timestamp,
    ) -> Result<bool, Error> {
        let deleted = query::<DB>(&self.engine.sql().inbox.delete_superseded)
            .bind(self.consumer.clone())
            .bind(message.message_id().as_uuid())
            .bind(Micros(before))
            .execute(conn)
            .await?;
        Ok(DB::rows_affected(&deleted) > 0)
    }
}

/// When a replay was made, by the first 48 bits of its token, and a millisecond after.
fn created_at(replay: Uuid) -> Timestamp {
    let millis = i64::try_from(replay.as_u128() >> 80).unwrap_or(i64::MAX / 2000);
    Timestamp::from_micros((millis + 1) * 1000)
}
