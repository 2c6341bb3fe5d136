//! Applying only newer versions to a row.
use super::column::{Column, wrong};
use crate::{Dialect, Error, InTransaction};
use sqlx::{Encode, Row as _, Type};

/// The integer column of a table that holds the version of each row. For consumers without `order = "key"`,
/// and for sources that keep no order.
///
/// ```
/// use twinbox_sql::transition::VersionColumn;
///
/// const BALANCE: VersionColumn = VersionColumn::new("balances", "account_id", "seen");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionColumn {
    column: Column,
}

/// The result of advancing a row to a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a stale version is not to be applied"]
pub enum VersionUpdate {
    /// The version is newer, and the row has it now. Apply the change in this case only.
    Applied {
        /// The version before, if there was one.
        previous: Option<i64>,
    },
    /// The row has this version or a newer one. Nothing was written.
    Stale {
        /// The version of the row.
        current: i64,
    },
    /// There is no such row: insert it with the version.
    NotFound,
}

impl VersionColumn {
    /// Describes the column `version` of `table`, whose unique column `id` tells the rows apart. Names are
    /// written as in SQL, with a schema or quotes where they need them.
    pub const fn new(table: &'static str, id: &'static str, version: &'static str) -> Self {
        Self { column: Column { table, id, name: version } }
    }

    /// Advances the row `id` to `version` if that is newer, in the transaction. The row stays locked until
    /// the transaction ends, so of two concurrent versions the older one is not applied after the newer.
    ///
    /// The version grows with each change of the entity:
    /// [`Message::sequence`](twinbox_core::Message::sequence) where all its events have one source and one
    /// key, else a version in the event.
    ///
    /// ```text
    /// let seen = order.message().sequence.unwrap_or(0);
    /// if let VersionUpdate::Applied { .. } = BALANCE.advance(tx, order.account_id, seen).await? {
    ///     sqlx::query("UPDATE balances SET cents = $1 WHERE account_id = $2")…
    /// }
    /// ```
    ///
    /// # Errors
    /// The database refused or is away: the transaction is lost.
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration): the version is beyond 63 bits, a
    /// trigger keeps the row, or `id` is not unique; roll back.
    pub async fn advance<'q, DB, Id>(
        &self,
        tx: &mut impl InTransaction<DB>,
        id: Id,
        version: u64,
    ) -> Result<VersionUpdate, Error>
    where
        DB: Dialect,
        Id: Encode<'q, DB> + Type<DB> + Clone + Send + 'q,
    {
        let Ok(version) = i64::try_from(version) else {
            return Err(wrong(format!("the version {version} is beyond 63 bits")));
        };
        let Some(row) = self.column.lock(tx, id.clone(), DB::FRAGMENTS.big_integer).await? else {
            return Ok(VersionUpdate::NotFound);
        };
        match row.try_get::<Option<i64>, _>("value")? {
            Some(current) if current >= version => Ok(VersionUpdate::Stale { current }),
            previous => {
                self.column.set(tx, id, "?", version).await?;
                Ok(VersionUpdate::Applied { previous })
            }
        }
    }
}
