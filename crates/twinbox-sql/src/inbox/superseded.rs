//! Taking a claim back, so that its message runs again on purpose.
use crate::{Dialect, Error, Store, micros::Micros, sql::query};
use twinbox_core::{Message, Timestamp, crash};
use uuid::Uuid;

/// What became of the wish to take a claim back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Superseded {
    /// A claim was taken back.
    Taken,
    /// There was none to take back: the message was never handled, or is being handled.
    Unclaimed,
    /// This replay has asked before, and if there is a claim it is its own.
    Before,
}

impl<DB: Dialect> Store<DB> {
    /// Takes the claim of a consumer on a message back, once for each replay and only if the claim is older than the
    /// replay: what was handled since is right. The claim stays on record in `inbox_superseded`, and the next
    /// [`claim`](Self::claim) finds none. Failures on record are forgotten.
    ///
    /// Killed after it, the message has no claim and is delivered again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn supersede(
        &self,
        consumer: &str,
        message: &Message,
        replay: Uuid,
    ) -> Result<Superseded, Error> {
        let (statements, id) = (self.statements(), message.message_id().as_uuid());
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        let first = query::<DB>(&statements.supersede).bind(consumer.to_owned()).bind(id).bind(replay);
        let first = DB::rows_affected(&first.execute(tx.connection()).await?) > 0;
        let mut taken = false;
        if first {
            taken = self.take_back(tx.connection(), consumer, message, made_at(replay)).await?;
            let forget = query::<DB>(&statements.forget_failures).bind(consumer.to_owned()).bind(id);
            forget.execute(tx.connection()).await?;
        }
        tx.commit().await?;
        crash::point("consumer.after_supersede");
        Ok(match (first, taken) {
            (false, _) => Superseded::Before,
            (true, true) => Superseded::Taken,
            (true, false) => Superseded::Unclaimed,
        })
    }

    /// The same for a claim that was committed since it was found [`Unclaimed`](Superseded::Unclaimed): whoever was at it
    /// had begun before the replay was made. False: it is newer.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn supersede_late(
        &self,
        consumer: &str,
        message: &Message,
        replay: Uuid,
    ) -> Result<bool, Error> {
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        let taken = self.take_back(tx.connection(), consumer, message, made_at(replay)).await?;
        tx.commit().await?;
        Ok(taken)
    }

    /// Deletes a claim that was made before.
    async fn take_back(
        &self,
        conn: &mut DB::Connection,
        consumer: &str,
        message: &Message,
        before: Timestamp,
    ) -> Result<bool, Error> {
        let taken = query::<DB>(&self.statements().superseded)
            .bind(consumer.to_owned())
            .bind(message.message_id().as_uuid())
            .bind(Micros(before))
            .execute(conn)
            .await?;
        Ok(DB::rows_affected(&taken) > 0)
    }
}

/// When a replay was made, by the first 48 bits of its token, and a millisecond after.
fn made_at(replay: Uuid) -> Timestamp {
    let millis = i64::try_from(replay.as_u128() >> 80).unwrap_or(i64::MAX / 2000);
    Timestamp::from_micros((millis + 1) * 1000)
}
