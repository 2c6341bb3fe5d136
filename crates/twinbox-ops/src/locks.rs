//! Which sessions lock tables of the store.
use crate::Ops;
use sqlx::Row as _;
use std::fmt;
use twinbox_sql::{Dialect, Error, engine::TextColumns};

/// The most locks that are listed.
const LOCKS_MAX: i64 = 20;

/// A lock on a table of the store, for which the statements of others wait.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableLock {
    /// The name of the table.
    pub table: String,
    /// The mode of the lock, in the words of the database.
    pub mode: String,
    /// The number of the session that holds the lock.
    pub session: i64,
    /// The role of that session.
    pub role: String,
}

impl fmt::Display for TableLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, mode, session, role } = self;
        write!(f, "the session {session} of the role {role} locks the table {table} ({mode})")
    }
}

impl<DB: Dialect> Ops<DB> {
    /// Returns the locks on whole tables of the store, by table. Waits for none of them. Empty on MySQL,
    /// which does not show them to everybody, and on SQLite, which has none.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn table_locks(&self) -> Result<Vec<TableLock>, Error> {
        let held = &self.engine.sql().setup.table_locks;
        if held.is_absent() {
            return Ok(Vec::new());
        }
        let namespace = self.engine.catalog().namespace.clone();
        let rows = self.engine.fetch_all(held, |query| query.bind(namespace).bind(LOCKS_MAX)).await?;
        let read = |row: &DB::Row| {
            Ok(TableLock {
                table: row.text("locked")?,
                mode: row.text("mode")?,
                session: row.try_get("session")?,
                role: row.text("role")?,
            })
        };
        rows.iter().map(read).collect()
    }
}
