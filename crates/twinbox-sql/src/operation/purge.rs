//! Forgetting what nobody needs to remember.
use crate::{
    Dialect, Error, Store,
    sql::{Statement, query},
};

/// Rows that one statement deletes.
const AT_ONCE: u32 = 1000;

impl<DB: Dialect> Store<DB> {
    /// Deletes keys that have expired, in statements of 1,000. Answers with how many are free again. What somebody works on
    /// stays, and so does [what is unfinished](Self::unfinished_operations), however old it is.
    ///
    /// Killed or dropped half-way, it has deleted some of them.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge_operations(&self) -> Result<u64, Error> {
        self.purge_with(&self.statements().purge_operations).await
    }

    /// Deletes receipts of webhooks that have expired, in statements of 1,000. Answers with how many.
    ///
    /// Killed or dropped half-way, it has deleted some of them.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge_receipts(&self) -> Result<u64, Error> {
        self.purge_with(&self.statements().purge_receipts).await
    }

    async fn purge_with(&self, statement: &Statement) -> Result<u64, Error> {
        let mut deleted = 0;
        loop {
            let _permit = self.write_permit().await?;
            let mut conn = self.connection().await?;
            let purge = query::<DB>(statement).bind(i64::from(AT_ONCE));
            let done = DB::rows_affected(&purge.execute(&mut *conn).await?);
            conn.done().await?;
            deleted += done;
            if done < u64::from(AT_ONCE) {
                return Ok(deleted);
            }
        }
    }
}
