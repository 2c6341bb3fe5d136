//! What a pooler in between takes away.
use crate::{Error, ErrorKind, sql::Statements};
use sqlx::{Connection as _, PgConnection, Row as _};

/// How often two connections are asked whether they share a server connection. A pooler hands out the one that was
/// used last, unless others are quicker.
pub(super) const LOOKS: usize = 3;

/// A name that a handler gave to a statement may mean another's on the next server.
pub(super) async fn unnamed(conn: &mut PgConnection, statements: &Statements) -> Result<(), Error> {
    if statements.named || conn.cached_statements_size() == 0 {
        return Ok(());
    }
    conn.clear_cached_statements().await?;
    Err(Error::new(
        ErrorKind::Configuration,
        "behind a pooler a statement must have no name: say `.persistent(false)` to each of the handler",
    ))
}

pub(super) async fn server(conn: &mut PgConnection) -> Result<i32, Error> {
    // Without arguments and without a name: right behind a pooler too.
    Ok(sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(conn).await?.try_get(0)?)
}
