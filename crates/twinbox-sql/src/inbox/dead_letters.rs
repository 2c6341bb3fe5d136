//! Messages that a consumer gave up on.
use crate::{Dialect, Error, Store, row, sql::query, text::bounded};
use twinbox_core::Message;

/// Why a message became a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadReason {
    /// The handler rejected it.
    Rejected,
    /// Its attempts ran out.
    Exhausted,
    /// It cannot be read.
    Undecodable,
    /// The consumer has no handler for its type.
    NoHandler,
    /// Processes died when its handler ran.
    Crashed,
    /// It is as old as claims that were deleted, so nobody can tell whether it was handled.
    InDoubt,
    /// Another message with its id and another payload was there before. It is kept under an id of its own.
    ConflictingPayload,
}

impl DeadReason {
    /// The word in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Exhausted => "exhausted",
            Self::Undecodable => "undecodable",
            Self::NoHandler => "no_handler",
            Self::Crashed => "crashed",
            Self::InDoubt => "in_doubt",
            Self::ConflictingPayload => "conflicting_payload",
        }
    }

    const fn state(self) -> &'static str {
        if matches!(self, Self::Rejected) { "rejected" } else { "dead" }
    }
}

/// A message that a consumer gave up on, as it is kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its number in this database.
    pub id: i64,
    /// The message, whole.
    pub message: Message,
    /// Why: see [`DeadReason::as_str`].
    pub reason: String,
    /// The last error.
    pub error: String,
    /// Attempts that failed.
    pub attempts: u32,
}

impl<DB: Dialect> Store<DB> {
    /// Gives a message up: claim, letter and forgotten failures in one transaction. Acknowledge after it.
    /// False: it was done with before.
    ///
    /// # Errors
    /// The database refused or is away: nothing is written, and the message is delivered again.
    pub async fn dead_letter(
        &self,
        consumer: &str,
        message: &Message,
        reason: DeadReason,
        error: &str,
        attempts: u32,
    ) -> Result<bool, Error> {
        let id = message.message_id();
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        let mut guard = None;
        let claims = self.insert_claims(&mut tx, consumer, std::slice::from_ref(message), &mut guard).await?;
        let (false, Some(guard)) = (claims.new.is_empty(), guard) else {
            tx.rollback().await?;
            return Ok(false);
        };
        let statements = self.statements();
        query::<DB>(&statements.set_state)
            .bind(reason.state().to_owned())
            .bind(consumer.to_owned())
            .bind(id.as_uuid())
            .execute(tx.connection())
            .await?;
        let bury = query::<DB>(&statements.bury)
            .bind(consumer.to_owned())
            .bind(reason.as_str().to_owned())
            .bind(bounded(error))
            .bind(i64::from(attempts));
        row::bind_message(bury, message).execute(tx.connection()).await?;
        query::<DB>(&statements.forget_failures)
            .bind(consumer.to_owned())
            .bind(id.as_uuid())
            .execute(tx.connection())
            .await?;
        DB::allow_commit(tx.connection(), statements, &guard).await?;
        tx.commit_guarded().await?;
        Ok(true)
    }

    /// The newest dead letters of a consumer, newest first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn dead_letters(&self, consumer: &str, limit: u32) -> Result<Vec<DeadLetter>, Error> {
        let mut conn = self.connection().await?;
        let rows = query::<DB>(&self.statements().dead_letters)
            .bind(consumer.to_owned())
            .bind(i64::from(limit))
            .fetch_all(&mut *conn)
            .await?;
        conn.done().await?;
        rows.iter().map(row::letter::<DB>).collect()
    }
}
