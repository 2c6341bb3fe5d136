//! Making a row once.
use crate::{Dialect, Error, ErrorKind, InTransaction};
use sqlx::{
    FromRow,
    query::{Query, QueryAs},
};

/// What became of a row that may have been made before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an effect belongs to `Inserted` alone"]
pub enum Insert<T> {
    /// It was made now. The only case in which to plan effects.
    Inserted,
    /// It was there: this is it, and nothing was written.
    Existing(T),
}

/// Makes a row, or reads the one that is there, in the transaction. `insert` says `ON CONFLICT … DO NOTHING` and
/// `existing` reads by the same key.
///
/// Unlike `ON CONFLICT … DO UPDATE` it writes nothing to a row that is there, so no trigger fires for it and nobody who
/// captures changes sees one. Two transactions that make the same row wait for each other.
///
/// ```text
/// let id = tx.message_id().as_uuid();
/// let made = insert_or_existing(
///     tx,
///     sqlx::query("INSERT INTO payments (id, amount) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING").bind(id).bind(4200),
///     sqlx::query_as("SELECT id, amount FROM payments WHERE id = $1").bind(id),
/// )
/// .await?;
/// ```
///
/// # Errors
/// The database refused: on Postgres the transaction is lost then. [`ErrorKind::Configuration`]: the two statements do not
/// speak of one row.
pub async fn insert_or_existing<'q, DB, T>(
    tx: &mut impl InTransaction<DB>,
    insert: Query<'q, DB, DB::Arguments>,
    existing: QueryAs<'q, DB, T, DB::Arguments>,
) -> Result<Insert<T>, Error>
where
    DB: Dialect,
    T: for<'r> FromRow<'r, DB::Row> + Send + Unpin,
{
    let (conn, _) = tx.parts();
    match DB::rows_affected(&insert.execute(&mut *conn).await?) {
        1 => Ok(Insert::Inserted),
        0 => match existing.fetch_optional(conn).await? {
            Some(row) => Ok(Insert::Existing(row)),
            None => Err(wrong("nothing was inserted, and the row that is there was not found by its key")),
        },
        _ => Err(wrong("more than one row was inserted")),
    }
}

fn wrong(what: &'static str) -> Error {
    Error::new(ErrorKind::Configuration, what)
}
