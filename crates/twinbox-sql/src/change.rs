//! Changes that return rows, also where an INSERT or UPDATE returns none.
use crate::{Dialect, Error, error::is_duplicate, statement::Query};
use sqlx::Row as _;

/// Runs a statement that changes one row at most, and returns what it returns. `read` reads it afterwards
/// where a change returns no rows.
///
/// # Errors
/// The database refused or is away.
pub async fn changed_row<'q, DB: Dialect>(
    conn: &mut DB::Connection,
    change: Query<'q, DB>,
    read: impl FnOnce() -> Query<'q, DB> + Send,
) -> Result<Option<DB::Row>, Error> {
    if DB::HAS_RETURNING {
        return Ok(change.fetch_optional(conn).await?);
    }
    let changed = change.execute(&mut *conn).await?;
    match DB::rows_affected(&changed) {
        0 => Ok(None),
        _ => Ok(read().fetch_optional(conn).await?),
    }
}

/// The same for a statement that changes several rows.
///
/// # Errors
/// As [`changed_row`].
pub async fn changed_rows<'q, DB: Dialect>(
    conn: &mut DB::Connection,
    change: Query<'q, DB>,
    read: impl FnOnce() -> Query<'q, DB> + Send,
) -> Result<Vec<DB::Row>, Error> {
    if DB::HAS_RETURNING {
        return Ok(change.fetch_all(conn).await?);
    }
    change.execute(&mut *conn).await?;
    Ok(read().fetch_all(conn).await?)
}

/// Inserts a row unless there is one with its key. Returns whether it did.
///
/// # Errors
/// As [`changed_row`].
pub async fn inserted<DB: Dialect>(conn: &mut DB::Connection, insert: Query<'_, DB>) -> Result<bool, Error> {
    match insert.execute(conn).await {
        Ok(inserted) => Ok(DB::rows_affected(&inserted) > 0),
        // Elsewhere the statement says what to do then.
        Err(error) if !DB::HAS_RETURNING && is_duplicate(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Inserts a row, and returns its number.
///
/// # Errors
/// As [`changed_row`].
pub async fn inserted_id<DB: Dialect>(
    conn: &mut DB::Connection,
    insert: Query<'_, DB>,
) -> Result<i64, Error> {
    if DB::HAS_RETURNING {
        return Ok(insert.fetch_one(conn).await?.try_get(0)?);
    }
    let inserted = insert.execute(conn).await?;
    Ok(DB::inserted_id(&inserted).unwrap_or_default())
}
