//! Purging the log and its ticks, in small transactions at READ COMMITTED.
//!
//! A DELETE locks the rows that its sub-selects read: cursors, holes, and the end of the log. So what is to
//! go is read first, without a lock, and deleted by its numbers. A cursor that begins in the past locks the
//! ticks before it names one, and these transactions lock the first tick, which is always there: so neither
//! misses the other.
use super::page::Holes;
use crate::{
    Error,
    catalog::Catalog,
    dialect::{PURGE_BATCH, Purged},
    statement::{query, query_of, scalar},
};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row as _};

/// The ticks of one statement.
const TICKS_BATCH: u32 = 5_000;

/// Deletes the ticks before all cursors that are older than the messages that are kept, and the closed holes
/// that are older than the first tick.
pub(super) async fn purge_ticks(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    age: i64,
) -> Result<bool, Error> {
    let sql = &catalog.sql.holes;
    let Some(bound) = bound(conn, catalog, age).await? else { return Ok(false) };
    let delete = query::<MySql>(&sql.purge_ticks).bind(bound.tick).bind(i64::from(TICKS_BATCH));
    let deleted = delete.execute(&mut *conn).await?.rows_affected();
    query::<MySql>(&sql.forget).execute(conn).await?;
    Ok(deleted >= TICKS_BATCH.into())
}

/// Deletes a batch of the messages beyond `after` that all readers have settled.
pub(super) async fn purge(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    age: i64,
    after: i64,
) -> Result<Purged, Error> {
    let sql = &catalog.sql.holes;
    let Some(Bound { tick, last }) = bound(conn, catalog, age).await? else { return Ok(Purged::NOTHING) };
    let mut ranges = Vec::new();
    let holes = query::<MySql>(&sql.holes_of_tick).bind(tick).bind(tick).bind(after);
    for row in holes.fetch_all(&mut *conn).await? {
        ranges.push((row.try_get("first")?, row.try_get("last")?));
    }
    let holes = Holes::new(ranges);
    let settled = scalar::<MySql, i64>(&sql.purgeable).bind(after).bind(last).bind(i64::from(PURGE_BATCH));
    let settled = settled.fetch_all(&mut *conn).await?;
    let next = settled.last().copied().filter(|_| u32::try_from(settled.len()) == Ok(PURGE_BATCH));
    let gone = settled.into_iter().filter(|&position| !holes.hold(position));
    let gone: Vec<String> = gone.map(|position| position.to_string()).collect();
    if gone.is_empty() {
        return Ok(Purged { messages: 0, next });
    }
    let delete = format!("{} ({})", sql.purge.as_str(), gone.join(", "));
    let deleted = query_of::<MySql>(AssertSqlSafe(delete), false).execute(conn).await?;
    Ok(Purged { messages: deleted.rows_affected(), next })
}

/// The newest tick whose messages may go, and the last of their positions.
struct Bound {
    tick: i64,
    last: i64,
}

/// None: there is no reader, or no tick of the age.
async fn bound(conn: &mut MySqlConnection, catalog: &Catalog, age: i64) -> Result<Option<Bound>, Error> {
    let sql = &catalog.sql.holes;
    query::<MySql>(&sql.lock_first_tick).execute(&mut *conn).await?;
    let row = query::<MySql>(&sql.purgeable_ticks).bind(age).fetch_one(&mut *conn).await?;
    let (aged, settled): (Option<i64>, Option<i64>) = (row.try_get("aged")?, row.try_get("settled")?);
    let newest: i64 = row.try_get("newest")?;
    let (Some(aged), Some(settled)) = (aged, settled) else { return Ok(None) };
    let tick = query::<MySql>(&sql.tick_up_to).bind(aged.min(settled)).fetch_one(conn).await?;
    // The newest row stays: an empty table could give its positions again.
    let last = tick.try_get::<i64, _>("newest")?.min(newest - 1);
    Ok(Some(Bound { tick: tick.try_get("id")?, last }))
}
