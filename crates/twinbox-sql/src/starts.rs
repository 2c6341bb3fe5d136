//! Starts of handlers that are not known to have ended: of messages that end the process they run in.
use crate::{
    Dialect, Error, Store,
    sql::{query, scalar},
};
use std::collections::HashSet;
use twinbox_core::MessageId;

impl<DB: Dialect> Store<DB> {
    /// Commits that a handler starts on the message, before it does. False: it is done with, or an earlier start of it
    /// is not known to have ended; nothing was written.
    ///
    /// A start ends with the handler's transaction, a recorded failure, a dead letter or
    /// [`end_starts`](Self::end_starts). What a process that dies leaves on record is what this is for. The commit is not
    /// flushed: if the server ends as well, the start may be forgotten, and then counts for nothing.
    ///
    /// # Errors
    /// The database refused or is away: a start may be on record. [`end_starts`](Self::end_starts) ends it; else the
    /// message counts as one that ended its process.
    pub async fn record_start(&self, consumer: &str, message: MessageId) -> Result<bool, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let started = self.start(&mut conn, consumer, message).await?;
        conn.done().await?;
        Ok(started)
    }

    /// The same for many messages at once. Answers with those it may start on.
    ///
    /// # Errors
    /// As [`record_start`](Self::record_start).
    pub async fn record_starts(
        &self,
        consumer: &str,
        messages: &[MessageId],
    ) -> Result<HashSet<MessageId>, Error> {
        let mut tx = self.begin().await?;
        let mut started = HashSet::with_capacity(messages.len());
        for id in messages {
            if self.start(tx.connection(), consumer, *id).await? {
                started.insert(*id);
            }
        }
        tx.commit().await?;
        Ok(started)
    }

    async fn start(
        &self,
        conn: &mut DB::Connection,
        consumer: &str,
        message: MessageId,
    ) -> Result<bool, Error> {
        let start = query::<DB>(&self.statements().start)
            .bind(consumer.to_owned())
            .bind(message.as_uuid())
            .bind(consumer.to_owned())
            .bind(message.as_uuid());
        Ok(DB::rows_affected(&start.execute(conn).await?) == 1)
    }

    /// Commits that a handler starts on this message alone, after one start that is not known to have ended.
    ///
    /// # Errors
    /// As [`record_start`](Self::record_start).
    pub async fn record_lone_start(&self, consumer: &str, message: MessageId) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().start_alone)
            .bind(consumer.to_owned())
            .bind(message.as_uuid())
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }

    /// Starts on the message that are not known to have ended. All but the first were made alone.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn open_starts(&self, consumer: &str, message: MessageId) -> Result<u32, Error> {
        let mut conn = self.connection().await?;
        let starts = scalar::<DB, i64>(&self.statements().starts)
            .bind(consumer.to_owned())
            .bind(message.as_uuid())
            .fetch_optional(&mut *conn)
            .await?;
        conn.done().await?;
        Ok(u32::try_from(starts.unwrap_or(0)).unwrap_or(u32::MAX))
    }

    /// Commits that the starts on these messages ended, with nothing else to tell of them.
    ///
    /// # Errors
    /// The database refused or is away: they are still on record.
    pub async fn end_starts(&self, consumer: &str, messages: &[MessageId]) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        for id in messages {
            for statement in [&self.statements().forget_start, &self.statements().end_start] {
                query::<DB>(statement)
                    .bind(consumer.to_owned())
                    .bind(id.as_uuid())
                    .execute(tx.connection())
                    .await?;
            }
        }
        tx.commit().await
    }
}
