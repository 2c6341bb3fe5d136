//! Dead-lettering messages.
use super::{
    dead_letter::{DeadReason, StoredDeadLetter, read},
    handle::Inbox,
};
use crate::{
    ClaimTerms, Dialect, Error,
    dead_letters::consumer_fingerprint,
    row,
    statement::{Query, query, scalar},
    text::bounded,
};
use std::slice;
use twinbox_core::Message;

impl<DB: Dialect> Inbox<DB> {
    /// Makes a message a dead letter: one transaction writes the claim and the dead letter, and deletes the
    /// failures. Acknowledge the message after it. False: the message was claimed before. If its handler has
    /// committed a part of its work by itself, the reason is [`DeadReason::InDoubt`].
    ///
    /// # Errors
    /// The database refused or is away: nothing is written, and the message is delivered again.
    pub async fn dead_letter(
        &self,
        message: &Message,
        reason: DeadReason,
        error: &str,
        attempts: u32,
    ) -> Result<bool, Error> {
        let (id, catalog) = (message.message_id().as_uuid(), self.engine.catalog());
        let mut tx = self.engine.begin_short().await?;
        let mut guard = None;
        let mut reason = reason;
        if !catalog.sql.inbox.delete_open_claim.is_absent() {
            let delete = query::<DB>(&catalog.sql.inbox.delete_open_claim);
            let deleted = delete.bind(self.consumer.clone()).bind(id).execute(tx.connection()).await?;
            if DB::rows_affected(&deleted) > 0 {
                reason = DeadReason::InDoubt;
            }
        }
        let claims =
            self.insert_claims(&mut tx, ClaimTerms::default(), slice::from_ref(message), &mut guard).await?;
        let (false, Some(guard)) = (claims.new.is_empty(), guard) else {
            tx.rollback().await?;
            return Ok(false);
        };
        query::<DB>(&catalog.sql.inbox.set_state)
            .bind(reason.state().to_owned())
            .bind(self.consumer.clone())
            .bind(id)
            .execute(tx.connection())
            .await?;
        let error = bounded(error);
        let fingerprint = consumer_fingerprint(&self.consumer, &message.event_type, reason.as_str(), &error);
        let insert = query::<DB>(&catalog.sql.dead_letters.insert)
            .bind(self.consumer.clone())
            .bind(reason.as_str().to_owned())
            .bind(error)
            .bind(fingerprint)
            .bind(i64::from(attempts));
        row::bind_message(insert, message).execute(tx.connection()).await?;
        query::<DB>(&catalog.sql.inbox.delete_attempts)
            .bind(self.consumer.clone())
            .bind(id)
            .execute(tx.connection())
            .await?;
        DB::allow_commit(tx.connection(), catalog, &guard).await?;
        tx.commit_guarded(false).await?;
        Ok(true)
    }

    /// Returns how many bytes the payloads and headers of the consumer's dead letters have together. Reads
    /// each of them: do not ask for each delivery.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn dead_letter_bytes(&self) -> Result<u64, Error> {
        let mut conn = self.engine.connection().await?;
        let bytes = scalar::<DB, i64>(&self.engine.sql().dead_letters.bytes).bind(self.consumer.clone());
        let bytes = bytes.fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(row::count(bytes))
    }

    /// Returns the dead letters of the consumer, newest first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn dead_letters(&self, limit: u32) -> Result<Vec<StoredDeadLetter>, Error> {
        let newest = &self.engine.sql().dead_letters.newest;
        let bind = |query: Query<'static, DB>| query.bind(self.consumer.clone()).bind(i64::from(limit));
        self.engine.fetch_all(newest, bind).await?.iter().map(read::<DB>).collect()
    }
}
