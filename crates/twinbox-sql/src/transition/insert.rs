//! Making a row once.
use crate::{Dialect, Error, ErrorKind, InTransaction};
use sqlx::{
    FromRow,
    query::{Query, QueryAs},
};

/// The result of inserting a row that may exist.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an effect belongs to `Inserted` alone"]
pub enum RowInsert<T> {
    /// This call inserted the row. Plan effects in this case only.
    Inserted,
    /// The row was there before. Nothing was written.
    Existing(T),
}

/// Inserts a row, or reads the existing one, in the same transaction. `insert` ends with
/// `ON CONFLICT … DO NOTHING`, and `existing` reads by the same key.
///
/// Unlike `ON CONFLICT … DO UPDATE` it writes nothing to an existing row: no trigger fires, and change data
/// capture sees no change. Two transactions that make the same row wait for each other.
///
/// ```text
/// let id = tx.message_id().as_uuid();
/// let made = insert_or_existing(
///     tx,
///     sqlx::query("INSERT INTO payments (id, amount) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING")
///         .bind(id)
///         .bind(4200),
///     sqlx::query_as("SELECT id, amount FROM payments WHERE id = $1").bind(id),
/// )
/// .await?;
/// ```
///
/// # Errors
/// The database refused: on Postgres the transaction is lost then. [`ErrorKind::Configuration`]: the two
/// statements are not about one row.
pub async fn insert_or_existing<'q, DB, T>(
    tx: &mut impl InTransaction<DB>,
    insert: Query<'q, DB, DB::Arguments>,
    existing: QueryAs<'q, DB, T, DB::Arguments>,
) -> Result<RowInsert<T>, Error>
where
    DB: Dialect,
    T: for<'r> FromRow<'r, DB::Row> + Send + Unpin,
{
    let (conn, _) = tx.parts();
    match DB::rows_affected(&insert.execute(&mut *conn).await?) {
        1 => Ok(RowInsert::Inserted),
        0 => match existing.fetch_optional(conn).await? {
            Some(row) => Ok(RowInsert::Existing(row)),
            None => Err(wrong("nothing was inserted, and the existing row was not found by its key")),
        },
        _ => Err(wrong("more than one row was inserted")),
    }
}

fn wrong(what: &'static str) -> Error {
    Error::new(ErrorKind::Configuration, what)
}
