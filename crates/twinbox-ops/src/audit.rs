//! The audit: the acts of operators.
use crate::Ops;
use sqlx::Row as _;
use std::error::Error as StdError;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error,
    engine::{Micros, TextColumns, bounded, inserted_id, query},
};

/// The code of a database that refuses the count of an entry which another of its users made.
const REFUSED_COUNT: &str = "TB006";

/// What an operator's command is about to do, for its entry in the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditIntent<'a> {
    /// The operator who acts.
    pub operator: &'a str,
    /// The command that the operator gave.
    pub command: &'a str,
    /// The objects that the command changes.
    pub target: &'a str,
    /// Why the operator does this.
    pub reason: Option<&'a str>,
}

/// An entry of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The number of this entry in its database.
    pub id: i64,
    /// When the command began.
    pub at: Timestamp,
    /// The operator who gave the command, as the operator's program says.
    pub operator: String,
    /// The database user who wrote the entry, as the database knows it. Empty on SQLite.
    pub database_user: String,
    /// The command that was given.
    pub command: String,
    /// The objects that the command was to change.
    pub target: String,
    /// Why the operator did this.
    pub reason: Option<String>,
    /// How many objects the command changed. None: the end of the command is not recorded.
    pub count: Option<u64>,
}

impl<DB: Dialect> Ops<DB> {
    /// Records in the audit that a command begins, and returns the number of the entry. After a crash `count`
    /// of the entry is NULL: whether the act was done is unknown.
    ///
    /// # Errors
    /// The database refused or is away: do not begin.
    pub async fn begin_audit(&self, intent: &AuditIntent<'_>) -> Result<i64, Error> {
        let _permit = self.engine.write_permit().await?;
        let mut conn = self.engine.connection().await?;
        let id = self.insert_audit(&mut conn, intent).await?;
        conn.done().await?;
        Ok(id)
    }

    /// Writes an entry on the connection of the caller.
    pub(crate) async fn insert_audit(
        &self,
        conn: &mut DB::Connection,
        intent: &AuditIntent<'_>,
    ) -> Result<i64, Error> {
        let begin = query::<DB>(&self.engine.sql().audit.begin)
            .bind(bounded(intent.operator))
            .bind(bounded(intent.command))
            .bind(bounded(intent.target))
            .bind(intent.reason.map(bounded));
        inserted_id::<DB>(conn, begin).await
    }

    /// Records in the audit that a command has ended, and how many objects it changed.
    ///
    /// A login may become that of another database user while a command runs, as short-lived logins do. Then
    /// the entry stays without a count, and the log says so: the command is done.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn end_audit(&self, id: i64, count: u64) -> Result<(), Error> {
        let bound = i64::try_from(count).unwrap_or(i64::MAX);
        let end = &self.engine.sql().audit.end;
        match self.engine.execute(end, |query| query.bind(bound).bind(id)).await {
            Err(error) if is_refused_count(&error) => {
                let error = &error as &dyn StdError;
                tracing::warn!(id, count, error, "the command is done, and its audit entry has no count");
                Ok(())
            }
            ended => ended.map(drop),
        }
    }

    /// Returns the newest entries of the audit, newest first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn audit(&self, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        let list = &self.engine.sql().audit.list;
        let rows = self.engine.fetch_all(list, |query| query.bind(i64::from(limit))).await?;
        let read = |row: &DB::Row| {
            let count: Option<i64> = row.try_get("count")?;
            Ok(AuditEntry {
                id: row.try_get("id")?,
                at: row.try_get::<Micros, _>("at")?.0,
                operator: row.text("operator")?,
                database_user: row.text("database_user")?,
                command: row.text("command")?,
                target: row.text("target")?,
                reason: row.text_or_null("reason")?,
                count: count.and_then(|count| u64::try_from(count).ok()),
            })
        };
        rows.iter().map(read).collect()
    }
}

fn is_refused_count(error: &Error) -> bool {
    let refused = error.source().and_then(|source| source.downcast_ref::<sqlx::Error>());
    let refused = refused.and_then(sqlx::Error::as_database_error);
    refused.and_then(|refused| refused.code()).is_some_and(|code| code == REFUSED_COUNT)
}
