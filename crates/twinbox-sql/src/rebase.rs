//! After a dump and a restore.
use crate::{Dialect, Error, Store};

/// What [`Store::rebase`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebased {
    /// Messages of the log that got a transaction id of this server.
    pub messages: u64,
}

impl<DB: Dialect> Store<DB> {
    /// Makes a log readable again that was restored from a dump: messages, ticks, cursors and the sentinel get
    /// transaction ids of this server, so that every reader goes on where it was in the dump. What a reader had
    /// settled is not delivered again, what it had not is not lost, what it had put aside stays so, and what was
    /// published since the restore is new to all. Replays are cancelled.
    ///
    /// In one transaction, which rewrites the outbox and keeps publishers waiting meanwhile; killed half-way, it has
    /// changed nothing. Needs the rights of the tables' owner.
    ///
    /// # Errors
    /// The database was not restored from a dump, and nothing is to be done: on SQLite always. Or the database
    /// refused.
    pub async fn rebase(&self) -> Result<Rebased, Error> {
        let mut tx = self.begin().await?;
        self.check_version(&mut tx).await?;
        self.check_owner(&mut tx).await?;
        // The ticks up to which they read are not kept.
        self.cancel_replays(&mut tx, None).await?;
        let messages = DB::rebase(&mut tx, &self.statements().namespace).await?;
        tx.commit().await?;
        Ok(Rebased { messages })
    }
}
