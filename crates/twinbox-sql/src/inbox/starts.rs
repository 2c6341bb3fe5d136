//! Starts of handlers without a known end, to find messages that crash their process.
use super::handle::Inbox;
use crate::{
    Dialect, Error,
    row::small_count,
    statement::{Query, query, scalar},
};
use std::collections::HashSet;
use twinbox_core::MessageId;

impl<DB: Dialect> Inbox<DB> {
    /// Commits a record that a handler is about to start on a message, to count crashes. False: the message
    /// is claimed, or an earlier start has no known end; nothing was written.
    ///
    /// A start ends with the handler's transaction, a recorded failure, a dead letter or
    /// [`end_starts`](Self::end_starts). A process that crashes leaves it on record. The commit is not
    /// flushed: if the server crashes as well, the start may be lost, and is not counted.
    ///
    /// # Errors
    /// The database refused or is away: a start may be on record. [`end_starts`](Self::end_starts) ends it;
    /// else the message counts as one that crashed its process.
    pub async fn record_start(&self, message: MessageId) -> Result<bool, Error> {
        let start = &self.engine.sql().inbox.record_start;
        let started = self.engine.execute(start, |query| self.bind_start(query, message));
        Ok(started.await? > 0)
    }

    /// Commits a record that a handler is about to start on many messages, to count crashes. Returns the
    /// messages whose handlers may start.
    ///
    /// # Errors
    /// As [`record_start`](Self::record_start).
    pub async fn record_starts(&self, messages: &[MessageId]) -> Result<HashSet<MessageId>, Error> {
        let mut tx = self.engine.begin().await?;
        let mut started = HashSet::with_capacity(messages.len());
        for id in messages {
            let start = self.bind_start(query::<DB>(&self.engine.sql().inbox.record_start), *id);
            if DB::rows_affected(&start.execute(tx.connection()).await?) > 0 {
                started.insert(*id);
            }
        }
        tx.commit().await?;
        Ok(started)
    }

    fn bind_start<'q>(&self, start: Query<'q, DB>, message: MessageId) -> Query<'q, DB> {
        let id = message.as_uuid();
        start.bind(self.consumer.clone()).bind(id).bind(self.consumer.clone()).bind(id)
    }

    /// Commits a record that a handler is about to start on a message alone, because an earlier start
    /// crashed.
    ///
    /// # Errors
    /// As [`record_start`](Self::record_start).
    pub async fn record_lone_start(&self, message: MessageId) -> Result<(), Error> {
        let record = &self.engine.sql().inbox.record_lone_start;
        let id = message.as_uuid();
        self.engine.execute(record, |query| query.bind(self.consumer.clone()).bind(id)).await?;
        Ok(())
    }

    /// Returns how many recorded starts on a message have no known end, as after a crash. All but the first
    /// were made alone.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn open_starts(&self, message: MessageId) -> Result<u32, Error> {
        let mut conn = self.engine.connection().await?;
        let starts = scalar::<DB, i64>(&self.engine.sql().inbox.starts)
            .bind(self.consumer.clone())
            .bind(message.as_uuid())
            .fetch_optional(&mut *conn)
            .await?;
        conn.done().await?;
        Ok(small_count(starts.unwrap_or(0)))
    }

    /// Commits that the recorded starts on these messages have ended without a crash.
    ///
    /// # Errors
    /// The database refused or is away: they are still on record.
    pub async fn end_starts(&self, messages: &[MessageId]) -> Result<(), Error> {
        let sql = &self.engine.sql().inbox;
        let mut tx = self.engine.begin().await?;
        for id in messages {
            for statement in [&sql.delete_start, &sql.end_starts] {
                let end = query::<DB>(statement).bind(self.consumer.clone()).bind(id.as_uuid());
                end.execute(tx.connection()).await?;
            }
        }
        tx.commit().await
    }
}
