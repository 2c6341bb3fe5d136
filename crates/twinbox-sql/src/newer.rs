//! Applying what is newer than what a row has seen, and nothing else.
use crate::{
    Dialect, Error, InTransaction,
    column::{Column, wrong},
};
use sqlx::{Encode, Row as _, Type};

/// Where the version of a row is kept: in an integer column of a table of the application's own. For consumers without
/// `order = "key"`, and for sources that keep no order.
///
/// ```
/// use twinbox_sql::VersionColumn;
///
/// const BALANCE: VersionColumn = VersionColumn::new("balances", "account_id", "seen");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionColumn {
    column: Column,
}

/// How a version compares with that of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what is not newer is not to be applied"]
pub enum Newer {
    /// It is newer, and the row has it now. The only case in which to apply what came with it.
    Applied {
        /// What the row had; none, if it had seen nothing.
        previous: Option<i64>,
    },
    /// The row has seen this or a newer one. Nothing was written.
    Stale {
        /// What it has seen.
        current: i64,
    },
    /// There is no such row: insert it with the version.
    NotFound,
}

impl VersionColumn {
    /// The column `version` of the rows of `table`, which the unique column `id` tells apart. Names are written
    /// as in SQL, with a schema or quotes where they need them.
    pub const fn new(table: &'static str, id: &'static str, version: &'static str) -> Self {
        Self { column: Column { table, id, name: version } }
    }

    /// Moves the row `id` on to `version` if it is newer, in the transaction. The row stays locked until that ends, so of
    /// two that come at once the older one is not applied after the newer.
    ///
    /// The version is one that grows with each change of the entity: [`Message::sequence`](twinbox_core::Message::sequence)
    /// where all its events have one source and one key, else a version in the event.
    ///
    /// ```text
    /// let seen = order.message().sequence.unwrap_or(0);
    /// if let Newer::Applied { .. } = BALANCE.advance(tx, order.account_id, seen).await? {
    ///     sqlx::query("UPDATE balances SET cents = $1 WHERE account_id = $2")…
    /// }
    /// ```
    ///
    /// # Errors
    /// The database refused or is away: the transaction is lost.
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration): the version is beyond 63 bits, a trigger keeps the
    /// row, or `id` is not unique; roll back.
    pub async fn advance<'q, DB, Id>(
        &self,
        tx: &mut impl InTransaction<DB>,
        id: Id,
        version: u64,
    ) -> Result<Newer, Error>
    where
        DB: Dialect,
        Id: Encode<'q, DB> + Type<DB> + Clone + Send + 'q,
    {
        let Ok(version) = i64::try_from(version) else {
            return Err(wrong(format!("the version {version} is beyond 63 bits")));
        };
        let Some(row) = self.column.lock(tx, id.clone(), "bigint").await? else { return Ok(Newer::NotFound) };
        match row.try_get::<Option<i64>, _>(0)? {
            Some(current) if current >= version => Ok(Newer::Stale { current }),
            previous => {
                self.column.set(tx, id, "$1", version).await?;
                Ok(Newer::Applied { previous })
            }
        }
    }
}
