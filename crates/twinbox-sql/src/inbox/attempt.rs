//! The open transaction of one attempt, and the results of claims.
use crate::{
    BatchTx, Dialect, Error, OwnedTx, Tx,
    guarded::Guarded,
    handler_connection,
    scope::{Cause, Counts},
    spare_connections::SpareConnections,
    statement::{query, raw, scalar},
};
use std::{sync::Arc, time::Instant};
use twinbox_core::{Message, MessageId};

/// The result of claiming a message.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub enum InboxClaim<DB: Dialect> {
    /// The claim is made: run the handler.
    Open(Attempt<DB>),
    /// The message was claimed before: acknowledge it, run nothing.
    Duplicate(Duplicate),
}

/// The result of claiming the messages of a batch.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub struct BatchClaim<DB: Dialect> {
    /// The transaction with the claims of the new messages. None: all are duplicates.
    pub attempt: Option<Attempt<DB>>,
    /// The duplicates, by their place in the batch.
    pub duplicates: Vec<(usize, Duplicate)>,
}

/// An earlier claim of the same message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Duplicate {
    /// The earlier message had another payload: two different messages share an id. Raise an alarm.
    pub payload_differs: bool,
    /// `processed`, `rejected` or `dead`.
    pub state: String,
}

/// The open transaction of one attempt, which holds the claim of its message. Dropped, it rolls back, the
/// claim included.
#[expect(missing_debug_implementations, reason = "holds an open transaction")]
pub struct Attempt<DB: Dialect> {
    pub(super) tx: Guarded<DB>,
    /// Where the connection is kept after the commit.
    pub(super) spares: Option<Arc<SpareConnections<DB>>>,
    /// The claimed messages, by their place in the batch.
    pub(super) claimed: Vec<usize>,
    pub(super) failures: u32,
    pub(super) recorded: Recorded,
}

/// The failures and starts on record that end with an attempt.
#[derive(Default)]
pub(super) struct Recorded {
    pub(super) messages: Vec<MessageId>,
    /// The role that may delete them. The handler may have set another for its transaction.
    pub(super) role: Option<String>,
}

impl<DB: Dialect> Attempt<DB> {
    /// Returns the number of the attempt, counted from 1 by the failures on record.
    pub fn number(&self) -> u32 {
        self.failures.saturating_add(1)
    }

    /// Returns the indexes of the messages of the batch that were claimed. The others are duplicates.
    pub fn claimed(&self) -> &[usize] {
        &self.claimed
    }

    /// Makes what follows the delivery of another message, for a test that delivers many in one transaction.
    #[doc(hidden)]
    pub fn deliver_another(&mut self, consumer: &str, message: &Message) {
        let scope = &mut self.tx.scope;
        consumer.clone_into(&mut scope.consumer);
        scope.cause = Cause::of(message);
        scope.reset(Counts::default());
    }

    /// Returns the transaction in the form that a handler gets.
    pub fn tx(&mut self) -> Tx<'_, DB> {
        handler_connection::record(self.tx.connection());
        self.tx.tx()
    }

    /// Returns the transaction in the form that a handler of batches gets.
    pub fn batch_tx(&mut self) -> BatchTx<'_, DB> {
        handler_connection::record(self.tx.connection());
        self.tx.batch_tx()
    }

    /// Commits the claim and the writes of the handler.
    ///
    /// # Errors
    /// The handler ended the transaction, ignored an error that aborted it, or left a savepoint open:
    /// everything is rolled back, except what a handler on MySQL has committed by itself.
    /// [`ErrorKind::CommitUnknown`](crate::ErrorKind::CommitUnknown): claim the message again to learn
    /// whether it committed.
    pub async fn commit(mut self) -> Result<(), Error> {
        let spares = self.spares.take();
        // The next transaction of a single writer waits for its turn.
        let is_at_once = spares.is_some() && !DB::ONE_WRITER;
        if (!is_at_once || !self.recorded.messages.is_empty())
            && let Err(error) = self.prepare_commit().await
        {
            self.rollback().await;
            return Err(error);
        }
        match spares {
            Some(spares) if is_at_once => {
                let begun_at = spares.has_waiting().then(Instant::now);
                spares.keep(self.tx.commit_at_once(begun_at.is_some()).await?, begun_at);
            }
            Some(spares) => spares.keep(self.tx.commit_allowed().await?, None),
            None => self.tx.commit().await?,
        }
        Ok(())
    }

    async fn prepare_commit(&mut self) -> Result<(), Error> {
        self.tx.allow_commit().await?;
        if self.recorded.messages.is_empty() {
            return Ok(());
        }
        let of_handler = match self.recorded.role.clone() {
            Some(role) => Some(self.set_role(&role).await?).filter(|of_handler| *of_handler != role),
            None => None,
        };
        let catalog = self.tx.scope.catalog.clone();
        // Not with the claim: a failure is recorded while a handler hangs in its transaction.
        for id in &self.recorded.messages {
            query::<DB>(&catalog.sql.inbox.delete_attempts)
                .bind(self.tx.scope.consumer.clone())
                .bind(id.as_uuid())
                .execute(self.tx.connection())
                .await?;
        }
        // Triggers that are deferred to the COMMIT run as the handler's role.
        if let Some(of_handler) = of_handler {
            self.set_role(&of_handler).await?;
        }
        Ok(())
    }

    /// Returns the role from before.
    async fn set_role(&mut self, role: &str) -> Result<String, Error> {
        let catalog = self.tx.scope.catalog.clone();
        let set = scalar::<DB, String>(&catalog.sql.inbox.set_role).bind(role.to_owned());
        Ok(set.fetch_one(self.tx.connection()).await?)
    }

    /// Returns whether the database still answers in this transaction, be it with a refusal.
    pub async fn is_reachable(&mut self) -> bool {
        self.tx.is_reachable().await
    }

    /// Returns whether nothing has failed in this transaction, as far as the database tells.
    #[doc(hidden)]
    pub async fn is_whole(&mut self) -> bool {
        self.tx.is_whole().await
    }

    /// Rolls back the claim and the writes of the handler. Errors are left to the database, which rolls back
    /// when it loses the connection. A statement that still runs has to end first: after 5 s the connection
    /// is closed instead, but for SQLite's.
    pub async fn rollback(self) {
        self.tx.rollback().await;
    }

    /// Ends a dry run: rolls back in any case, and returns the number of events that would have been
    /// published.
    ///
    /// # Errors
    /// The reason why it could not have been committed; on Postgres also a constraint that is deferred to the
    /// end.
    pub async fn end_dry_run(mut self) -> Result<u32, Error> {
        let published = self.tx.scope.published();
        let mut checked = self.prepare_commit().await;
        if checked.is_ok() && DB::COMMIT.is_some() {
            // Elsewhere `prepare_commit` has looked.
            checked = DB::ensure_whole(self.tx.connection()).await;
        }
        if let (Ok(()), Some(check)) = (&checked, DB::CHECK_DEFERRED) {
            checked = raw::<DB>(check).execute(self.tx.connection()).await.map(drop).map_err(Error::from);
        }
        self.rollback().await;
        checked.map(|()| published)
    }
}

/// A transaction that has tried to claim.
pub(super) enum ClaimTx<DB: Dialect> {
    /// At least one message is claimed.
    Open(Attempt<DB>),
    /// All were claimed before. Nothing is written.
    Known(OwnedTx<DB>),
}
