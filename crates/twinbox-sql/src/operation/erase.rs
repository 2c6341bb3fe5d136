//! Forgetting what answers said, and to whom.
use crate::{Dialect, Error, Store, sql::query, text::text};
use sqlx::Row as _;

/// Rows that one transaction looks at.
const PAGE: u32 = 1000;

impl<DB: Dialect> Store<DB> {
    /// Blanks what is kept of a tenant, or of one of its principals: the text of keys, the principal, answers with their
    /// headers, references and recovery points. Answers with how many keys. What was done stays done: asked again, it is
    /// known and not done again, but its answer has a code and nothing else. A key that a tenant
    /// [shares](super::OperationKey::is_shared) is then of a principal without a name, and others get
    /// [`Begun::Mismatch`](super::Begun::Mismatch).
    ///
    /// **Out of reach:** operations that have not ended, or were given up half-way, whose recovery points are needed if
    /// they go on: they expire, or end, or are [forgotten](Self::forget_unfinished), and then run it again; the SHA-256
    /// of a request, and of a key with its principal, by which somebody who can guess them can tell; what operations
    /// wrote to tables of their own; the WAL, free space of the database's files until it is vacuumed, replicas that
    /// lag, and backups.
    ///
    /// Reads the table once, in transactions of 1,000 rows. Killed half-way, it has blanked some; run it again, which is
    /// safe at any time. Needs the rights that `GRANTS.md` names.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn erase_operations(&self, tenant: &str, principal: Option<&str>) -> Result<u64, Error> {
        let statements = self.statements();
        let (mut erased, mut after) = (0, Vec::new());
        loop {
            let mut tx = self.begin().await?;
            let page =
                query::<DB>(&statements.erase_operations_page).bind(after.clone()).bind(i64::from(PAGE));
            let Some(end) = page.fetch_optional(&mut *tx).await? else { return Ok(erased) };
            let end: Vec<u8> = end.try_get(0)?;
            let erase = query::<DB>(&statements.erase_operations)
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
