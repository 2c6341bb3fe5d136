//! Deleting what nobody needs any more.
use crate::{Dialect, Error, Store, row::query};
use std::time::Duration;

/// Messages that one statement deletes.
const BATCH: u32 = 1000;

/// What [`Store::purge`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// Messages that are gone.
    pub messages: u64,
    /// The reader furthest behind, if it keeps messages that are old enough to go.
    pub held_by: Option<String>,
}

impl<DB: Dialect> Store<DB> {
    /// Deletes the messages of the log that are older than `keep`, that every destination and every consumer of
    /// the log has settled, and that none has put aside. Without any reader: nothing. In statements of 1,000
    /// messages, so that nobody waits for it.
    ///
    /// A message that is kept for a week at 100 a second and 1 KB costs about 60 GB with its indexes.
    ///
    /// Killed half-way, it has deleted some of them; run it again. Age is when a message was committed, as far as
    /// ticks of the readers tell; on SQLite it is the time of the message.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge(&self, keep: Duration) -> Result<Purged, Error> {
        let age = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
        let statements = self.statements();
        let mut messages = 0;
        loop {
            let _permit = self.write_permit().await?;
            let purge = query::<DB>(&statements.purge).bind(age).bind(i64::from(BATCH));
            let done = DB::rows_affected(&purge.execute(&mut *self.connection().await?).await?);
            messages += done;
            if done < u64::from(BATCH) {
                break;
            }
        }
        if DB::PURGE_TICKS.is_some() {
            query::<DB>(&statements.purge_ticks).bind(age).execute(&mut *self.connection().await?).await?;
        }
        let held_by = sqlx::query_scalar::<DB, String>(statements.held_by.clone()).bind(age);
        Ok(Purged { messages, held_by: held_by.fetch_optional(&mut *self.connection().await?).await? })
    }
}
