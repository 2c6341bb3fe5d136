//! Readers that do not come back.
use crate::{Dialect, Error, ErrorKind, Store, sql::query};

/// What [`Store::retire`] deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retired {
    /// Whether there was a cursor: the log was kept for it.
    pub cursor: bool,
    /// Messages that were put aside, dead ones included. They stay in the log until they are purged.
    pub parked: u64,
}

impl<DB: Dialect> Store<DB> {
    /// Forgets a destination, or a consumer of the log (`consumer:NAME`), that is gone for good: its cursor, so that
    /// the log is not kept for it, and what it has put aside. Its replays are cancelled. If it comes back it is a new one and starts where its
    /// options say. Nothing to forget is no error.
    ///
    /// In one transaction: killed half-way, it has deleted nothing.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseHeld`]: a process reads for it, or did until its lease ends. Or the database refused.
    pub async fn retire(&self, destination: &str) -> Result<Retired, Error> {
        let statements = self.statements();
        let mut tx = self.begin().await?;
        let deleted = query::<DB>(&statements.retire_cursor).bind(destination.to_owned());
        let cursor = DB::rows_affected(&deleted.execute(&mut *tx).await?) > 0;
        let left = query::<DB>(&statements.cursor_exists).bind(destination.to_owned());
        if left.fetch_optional(&mut *tx).await?.is_some() {
            return Err(Error::new(
                ErrorKind::LeaseHeld,
                format!("a process reads for {destination:?}: stop it, or wait until its lease ends"),
            ));
        }
        let parked = query::<DB>(&statements.retire_parked).bind(destination.to_owned());
        let parked = DB::rows_affected(&parked.execute(&mut *tx).await?);
        self.cancel_replays(&mut tx, Some(destination)).await?;
        tx.commit().await?;
        Ok(Retired { cursor, parked })
    }
}
