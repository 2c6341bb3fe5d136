//! A statement that was rendered for a store.
use sqlx::{
    Database, FromRow, SqlStr,
    database::HasStatementCache,
    query::{Query, QueryScalar},
};

/// One SQL statement, rendered for its database.
#[derive(Debug)]
pub struct Statement {
    sql: SqlStr,
    /// The server may keep it under a name.
    is_named: bool,
    /// Its text asks for a bounded wait for locks.
    has_bounded_wait: bool,
}

impl Statement {
    /// Creates a statement, and says whether the server may prepare it under a name.
    pub fn new(sql: SqlStr, is_named: bool) -> Self {
        Self { sql, is_named, has_bounded_wait: false }
    }

    /// Marks a statement whose text asks for a bounded wait for locks.
    pub(crate) fn with_bounded_wait(self, has_bounded_wait: bool) -> Self {
        Self { has_bounded_wait, ..self }
    }

    /// Returns whether the text asks for a bounded wait for locks.
    pub(crate) fn has_bounded_wait(&self) -> bool {
        self.has_bounded_wait
    }

    /// Returns whether the database needs no such statement.
    pub fn is_absent(&self) -> bool {
        self.sql.as_str().is_empty()
    }

    /// Returns the SQL.
    pub fn as_str(&self) -> &str {
        self.sql.as_str()
    }
}

/// Creates a query, to which binds are added.
pub fn query<'q, DB: Database + HasStatementCache>(
    statement: &Statement,
) -> Query<'q, DB, <DB as Database>::Arguments> {
    sqlx::query(statement.sql.clone()).persistent(statement.is_named)
}

/// Creates a query that reads the first column of its rows.
pub fn scalar<'q, DB: Database + HasStatementCache, T>(
    statement: &Statement,
) -> QueryScalar<'q, DB, T, <DB as Database>::Arguments>
where
    (T,): for<'r> FromRow<'r, DB::Row>,
{
    sqlx::query_scalar(statement.sql.clone()).persistent(statement.is_named)
}
