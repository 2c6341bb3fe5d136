//! A statement that was rendered for a store, and its queries.
//!
//! Every statement of Twinbox runs here, because nothing else gives up on a server that fell silent: sqlx
//! waits for an answer until TCP gives the other side up, which may be never.
use crate::dialect::bounds::{Implied, ImpliedBound};
use futures::{StreamExt as _, stream::BoxStream};
use sqlx::{
    ColumnIndex, Database, Decode, Encode, Error, Executor, IntoArguments, SqlSafeStr, SqlStr, Type,
    database::HasStatementCache,
};
use std::{fmt, io, marker::PhantomData, time::Duration};

/// How long the database may take for a statement of the runtime. Its waits for locks are bounded to 2 s, and
/// it reads no more than a page.
pub(crate) const STATEMENT_MAX: Duration = Duration::from_secs(30);

/// How long it may take for a statement that an operator asked for and that reads a log of any size.
pub const COUNT_MAX: Duration = Duration::from_secs(600);

/// A database whose connections run statements.
#[doc(hidden)]
pub trait Runs:
    Database<Arguments: IntoArguments<Self>>
    + HasStatementCache
    + ImpliedBound<usize, Is: ColumnIndex<Self::Row>>
    + Implied<usize>
    + for<'c> ImpliedBound<&'c mut <Self as Database>::Connection, Is: Executor<'c, Database = Self>>
    + for<'c> Implied<&'c mut <Self as Database>::Connection>
{
}
impl<DB> Runs for DB
where
    DB: Database<Arguments: IntoArguments<DB>> + HasStatementCache,
    usize: ColumnIndex<DB::Row>,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
}

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
    pub fn has_bounded_wait(&self) -> bool {
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

/// A query with its binds. It fails when the database has not answered after 30 s, or after
/// [`within`](Self::within). The connection is of no use then: it would wait for the same answer.
pub struct Query<'q, DB: Runs> {
    query: sqlx::query::Query<'q, DB, DB::Arguments>,
    limit: Duration,
}

/// Creates a query, to which binds are added.
pub fn query<'q, DB: Runs>(statement: &Statement) -> Query<'q, DB> {
    query_of(statement.sql.clone(), statement.is_named)
}

/// Creates a query of a text that is made for it, to which binds are added.
pub fn query_of<'q, DB: Runs>(sql: impl SqlSafeStr, is_named: bool) -> Query<'q, DB> {
    Query { query: sqlx::query(sql).persistent(is_named), limit: STATEMENT_MAX }
}

impl<'q, DB: Runs> Query<'q, DB> {
    /// Adds the next bind.
    #[must_use]
    pub fn bind<T: 'q + Encode<'q, DB> + Type<DB>>(mut self, value: T) -> Self {
        self.query = self.query.bind(value);
        self
    }

    /// Waits this long for the database, and not 30 s.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Has no limit: for a transaction of the application, which may wait for its locks as long as it likes.
    #[must_use]
    pub fn for_caller(self) -> Self {
        self.within(Duration::MAX)
    }

    /// Runs the statement.
    ///
    /// # Errors
    /// The database refused, is away, or took too long.
    pub async fn execute(self, conn: &mut DB::Connection) -> sqlx::Result<DB::QueryResult> {
        in_time(self.limit, self.query.execute(conn)).await
    }

    /// Returns the only row.
    ///
    /// # Errors
    /// As [`execute`](Self::execute), or there is no row.
    pub async fn fetch_one(self, conn: &mut DB::Connection) -> sqlx::Result<DB::Row> {
        in_time(self.limit, self.query.fetch_one(conn)).await
    }

    /// Returns the first row.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn fetch_optional(self, conn: &mut DB::Connection) -> sqlx::Result<Option<DB::Row>> {
        in_time(self.limit, self.query.fetch_optional(conn)).await
    }

    /// Returns all rows.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn fetch_all(self, conn: &mut DB::Connection) -> sqlx::Result<Vec<DB::Row>> {
        in_time(self.limit, self.query.fetch_all(conn)).await
    }

    /// Returns the rows one by one. The limit is for each.
    pub fn fetch<'e>(self, conn: &'e mut DB::Connection) -> BoxStream<'e, sqlx::Result<DB::Row>>
    where
        'q: 'e,
    {
        let Self { query, limit } = self;
        let rows = futures::stream::unfold(Some(query.fetch(conn)), move |rows| async move {
            let mut rows = rows?;
            match tokio::time::timeout(limit, rows.next()).await {
                Ok(row) => row.map(|row| (row, Some(rows))),
                Err(_) => Some((Err(silent(limit)), None)),
            }
        });
        rows.boxed()
    }
}

/// A query that reads the first column of its rows, with the limit of a [`Query`].
pub struct Scalar<'q, DB: Runs, T> {
    query: Query<'q, DB>,
    read: PhantomData<fn() -> T>,
}

/// Creates a query that reads the first column of its rows.
pub fn scalar<'q, DB: Runs, T>(statement: &Statement) -> Scalar<'q, DB, T> {
    query(statement).scalar()
}

impl<'q, DB: Runs> Query<'q, DB> {
    /// Reads the first column of the rows.
    pub fn scalar<T>(self) -> Scalar<'q, DB, T> {
        Scalar { query: self, read: PhantomData }
    }
}

impl<'q, DB: Runs, T: for<'r> Decode<'r, DB> + Type<DB>> Scalar<'q, DB, T> {
    /// Adds the next bind.
    #[must_use]
    pub fn bind<V: 'q + Encode<'q, DB> + Type<DB>>(mut self, value: V) -> Self {
        self.query = self.query.bind(value);
        self
    }

    /// Returns the value of the only row.
    ///
    /// # Errors
    /// As [`Query::fetch_one`], or the column has another type.
    pub async fn fetch_one(self, conn: &mut DB::Connection) -> sqlx::Result<T> {
        first::<DB, T>(&self.query.fetch_one(conn).await?)
    }

    /// Returns the value of the first row.
    ///
    /// # Errors
    /// As [`Query::fetch_optional`], or the column has another type.
    pub async fn fetch_optional(self, conn: &mut DB::Connection) -> sqlx::Result<Option<T>> {
        self.query.fetch_optional(conn).await?.map(|row| first::<DB, T>(&row)).transpose()
    }

    /// Returns the values of all rows.
    ///
    /// # Errors
    /// As [`Query::fetch_all`], or the column has another type.
    pub async fn fetch_all(self, conn: &mut DB::Connection) -> sqlx::Result<Vec<T>> {
        self.query.fetch_all(conn).await?.iter().map(first::<DB, T>).collect()
    }
}

fn first<DB: Runs, T: for<'r> Decode<'r, DB> + Type<DB>>(row: &DB::Row) -> sqlx::Result<T>
where
    usize: ColumnIndex<DB::Row>,
{
    sqlx::Row::try_get(row, 0)
}

impl<DB: Runs> fmt::Debug for Query<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<DB: Runs, T> fmt::Debug for Scalar<'_, DB, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scalar").field("query", &self.query).finish_non_exhaustive()
    }
}

/// Statements without binds, with the limit of a [`Query`].
pub(crate) struct Raw<DB> {
    sql: SqlStr,
    limit: Duration,
    database: PhantomData<fn() -> DB>,
}

/// Creates statements without binds.
pub(crate) fn raw<DB: Runs>(sql: impl SqlSafeStr) -> Raw<DB> {
    Raw { sql: sql.into_sql_str(), limit: STATEMENT_MAX, database: PhantomData }
}

impl<DB: Runs> Raw<DB> {
    /// As [`Query::within`].
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// As [`Query::for_caller`].
    pub(crate) fn for_caller(self) -> Self {
        self.within(Duration::MAX)
    }

    /// As [`Query::execute`].
    pub(crate) async fn execute(self, conn: &mut DB::Connection) -> sqlx::Result<DB::QueryResult> {
        in_time(self.limit, sqlx::raw_sql(self.sql).execute(conn)).await
    }

    /// As [`Query::fetch_one`].
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) async fn fetch_one(self, conn: &mut DB::Connection) -> sqlx::Result<DB::Row> {
        in_time(self.limit, sqlx::raw_sql(self.sql).fetch_one(conn)).await
    }

    /// As [`Query::fetch_optional`].
    #[cfg(feature = "mysql")]
    pub(crate) async fn fetch_optional(self, conn: &mut DB::Connection) -> sqlx::Result<Option<DB::Row>> {
        in_time(self.limit, sqlx::raw_sql(self.sql).fetch_optional(conn)).await
    }

    /// As [`Query::fetch_all`].
    #[cfg(feature = "mysql")]
    pub(crate) async fn fetch_all(self, conn: &mut DB::Connection) -> sqlx::Result<Vec<DB::Row>> {
        in_time(self.limit, sqlx::raw_sql(self.sql).fetch_all(conn)).await
    }
}

/// Fails if the database takes longer.
pub(crate) async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(silent(limit)))
}

/// The error of a database that took too long: an outage.
pub fn silent(limit: Duration) -> Error {
    let what = format!("the database did not answer within {limit:?}");
    Error::Io(io::Error::new(io::ErrorKind::TimedOut, what))
}
