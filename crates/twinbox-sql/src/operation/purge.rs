//! Forgetting what nobody needs to remember.
use crate::{Dialect, Error, Store, sql::query};

/// Keys that one statement deletes.
const AT_ONCE: u32 = 1000;

impl<DB: Dialect> Store<DB> {
    /// Deletes what has expired, in statements of 1,000. Answers with how many keys are free again. What somebody works
    /// on stays.
    ///
    /// Killed or dropped half-way, it has deleted some of them.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge_operations(&self) -> Result<u64, Error> {
        let mut deleted = 0;
        loop {
            let _permit = self.write_permit().await?;
            let mut conn = self.connection().await?;
            let purge = query::<DB>(&self.statements().purge_operations).bind(i64::from(AT_ONCE));
            let done = DB::rows_affected(&purge.execute(&mut *conn).await?);
            conn.done().await?;
            deleted += done;
            if done < u64::from(AT_ONCE) {
                return Ok(deleted);
            }
        }
    }
}
