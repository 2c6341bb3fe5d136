//! Purging expired keys, and erasing personal data.
use super::handle::IdempotencyKeys;
use crate::{
    Dialect, Error,
    statement::{Statement, query, scalar},
    text::text,
};

/// Rows that one statement deletes or blanks.
const BATCH: u32 = 1000;

impl<DB: Dialect> IdempotencyKeys<DB> {
    /// Deletes expired keys, in statements of 1,000. Returns how many are free again. Keys of running
    /// operations stay, and so do [unfinished](Self::unfinished) ones, however old they are.
    ///
    /// Killed or dropped half-way, it has deleted some of them.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge(&self) -> Result<u64, Error> {
        self.purge_with(&self.engine.sql().operations.purge).await
    }

    /// Deletes expired receipts of webhooks, in statements of 1,000. Returns how many.
    ///
    /// Killed or dropped half-way, it has deleted some of them.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge_webhooks(&self) -> Result<u64, Error> {
        self.purge_with(&self.engine.sql().webhooks.purge).await
    }

    async fn purge_with(&self, statement: &Statement) -> Result<u64, Error> {
        let mut deleted = 0;
        loop {
            let some = self.engine.execute(statement, |query| query.bind(i64::from(BATCH))).await?;
            deleted += some;
            if some < u64::from(BATCH) {
                return Ok(deleted);
            }
        }
    }

    /// Erases the data of a tenant or of one of its principals: the text of keys, the principal, responses
    /// with their headers, references and recovery points. Returns the number of keys. The operations stay
    /// done: asked again, they are known and not run again, but the response has a code and nothing else. A
    /// key that a tenant [shares](super::OperationKey::is_shared) then belongs to a principal without a name,
    /// and other callers get [`OperationStart::Mismatch`](super::OperationStart::Mismatch).
    ///
    /// **Out of reach:** operations that have not ended, or were abandoned half-way, whose recovery points
    /// are needed if they go on: they expire, or end, or are [forgotten](Self::forget_unfinished); run it
    /// again then. The SHA-256 of a request, and of a key with its principal, by which somebody who can guess
    /// them can tell. Rows that operations wrote to tables of their own. The WAL, free space of the
    /// database's files until it is vacuumed, replicas that lag, and backups.
    ///
    /// Reads the table once, in transactions of 1,000 rows. Killed half-way, it has blanked some; run it
    /// again, which is safe at any time. Needs the rights that `GRANTS.md` names.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn erase(&self, tenant: &str, principal: Option<&str>) -> Result<u64, Error> {
        let sql = &self.engine.sql().operations;
        let (mut erased, mut after) = (0, Vec::new());
        loop {
            let mut tx = self.engine.begin().await?;
            let page = scalar::<DB, Vec<u8>>(&sql.erase_page).bind(after.clone()).bind(i64::from(BATCH));
            let Some(end) = page.fetch_optional(&mut *tx).await? else {
                tx.rollback().await?;
                return Ok(erased);
            };
            let erase = query::<DB>(&sql.erase)
                .bind(after)
                .bind(end.clone())
                .bind(text(tenant).into_owned())
                .bind(principal.map(|principal| text(principal).into_owned()));
            erased += DB::rows_affected(&erase.execute(&mut *tx).await?);
            tx.commit().await?;
            after = end;
        }
    }
}
