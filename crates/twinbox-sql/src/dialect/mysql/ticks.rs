//! Making ticks, and finding out which holes stay empty.
use super::waits::{
    bound_lock_wait, own_idle, own_lock_wait, own_statement, remember_waits, unbound_lock_wait, usual_waits,
};
use crate::{
    Error, ErrorKind,
    catalog::Catalog,
    dialect::HOLES_MAX,
    error::{is_contention_error, is_duplicate},
    statement::{Query, query, query_of, raw},
};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row as _};
use std::time::Duration;

/// The rows that one tick covers at most. More take several ticks.
const ROWS_MAX: i64 = 20_000;
/// The positions that one round of probes looks at, at most.
const PROBES_MAX: usize = 20_000;
/// The statements of one round of probes, at most.
const PROBE_STATEMENTS_MAX: u32 = 200;
/// The rows of one statement, at most.
const ROWS_OF_STATEMENT: usize = 1_000;

/// Begins a transaction whose statements all see one snapshot of the server. No other process makes a tick
/// before it ends, so the server ends it when its process is silent.
const SNAPSHOT: &str = concat!(
    "SET ",
    remember_waits!(),
    ", SESSION wait_timeout = 2; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    START TRANSACTION WITH CONSISTENT SNAPSHOT"
);
const COMMIT: &str = concat!("COMMIT; SET ", usual_waits!());
const ROLLBACK: &str = concat!("ROLLBACK; SET ", usual_waits!());

/// Positions without a committed row, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: i64,
    last: i64,
}

/// An open hole, by the id of its row.
#[derive(Debug, Clone, Copy)]
struct Hole {
    id: i64,
    range: Range,
}

/// A tick that was made.
struct Tick {
    id: i64,
    /// Whether the snapshot showed more rows than the tick covers.
    is_cut: bool,
}

/// Returns the newest tick. Makes one if the newest is `p`, up to which the caller has read, and there is a
/// message beyond it.
///
/// A server shows rows before they are on its disk. The commit of a tick that this process makes returns when
/// they are. So it commits a row of its own before it reads by the tick of another process.
pub(super) async fn newest_tick(conn: &mut MySqlConnection, catalog: &Catalog, p: i64) -> Result<i64, Error> {
    let row = query::<MySql>(&catalog.sql.log.newest_tick).fetch_one(&mut *conn).await?;
    if !row.try_get::<bool, _>("is_flushed")? {
        return Err(unflushed());
    }
    let (mut newest, run): (i64, Option<i64>) = (row.try_get("id")?, row.try_get("server_run")?);
    if row.try_get("has_old_holes")? {
        probe(conn, catalog).await?;
    }
    let has_news = row.try_get::<bool, _>("has_newcomers")? || row.try_get("has_late")?;
    if newest <= p
        && has_news
        && let Some(tick) = make(conn, catalog, false).await?
    {
        catalog.durable_tick.note(run, tick.id);
        newest = tick.id;
    }
    if newest > p && !catalog.durable_tick.covers(run, newest) {
        query::<MySql>(&catalog.sql.holes.flush).execute(conn).await?;
        catalog.durable_tick.note(run, newest);
    }
    Ok(newest)
}

/// Makes a tick after everything that is committed. None: another process made one meanwhile.
pub(super) async fn tick_now(conn: &mut MySqlConnection, catalog: &Catalog) -> Result<Option<i64>, Error> {
    while let Some(tick) = make(conn, catalog, true).await? {
        if !tick.is_cut {
            return Ok(Some(tick.id));
        }
    }
    Ok(None)
}

/// The error of a server that does not flush each commit.
pub(super) fn unflushed() -> Error {
    Error::new(
        ErrorKind::Configuration,
        "innodb_flush_log_at_trx_commit is not 1: after a crash the server gives positions again that were \
         published, and messages are lost or reversed. SET GLOBAL innodb_flush_log_at_trx_commit = 1, and \
         set it in the server's configuration",
    )
}

/// Makes a tick, if there is news or `always`. None: there is no news, or another process made one meanwhile.
async fn make(conn: &mut MySqlConnection, catalog: &Catalog, always: bool) -> Result<Option<Tick>, Error> {
    raw::<MySql>(SNAPSHOT).execute(&mut *conn).await?;
    match make_in_snapshot(conn, catalog, always).await {
        Ok(Some(tick)) => {
            raw::<MySql>(COMMIT).execute(&mut *conn).await.map_err(Error::of_commit)?;
            Ok(Some(tick))
        }
        // The connection may not answer any more: it is closed, and its transaction ends with it.
        Err(error) if !is_duplicate(&error) && !is_contention_error(&error) => Err(error.into()),
        _ => {
            raw::<MySql>(ROLLBACK).execute(&mut *conn).await?;
            Ok(None)
        }
    }
}

async fn make_in_snapshot(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    always: bool,
) -> sqlx::Result<Option<Tick>> {
    let sql = &catalog.sql.holes;
    let last = query::<MySql>(&sql.last_tick).fetch_one(&mut *conn).await?;
    let (last, newest): (i64, i64) = (last.try_get("id")?, last.try_get("newest")?);
    let mut open = Vec::new();
    for row in query::<MySql>(&sql.open).fetch_all(&mut *conn).await? {
        let range = Range { first: row.try_get("first")?, last: row.try_get("last")? };
        open.push(Hole { id: row.try_get("id")?, range });
    }
    let mut filled = Vec::new();
    if !open.is_empty() {
        for row in query::<MySql>(&sql.filled).bind(ROWS_MAX).fetch_all(&mut *conn).await? {
            filled.push(row.try_get("position")?);
        }
    }
    // Rows are covered in the order of their positions, so that a message never comes before an earlier one
    // of its key.
    let is_late_cut = i64::try_from(filled.len()).is_ok_and(|n| n >= ROWS_MAX);
    let mut gaps = Vec::new();
    let (mut reached, mut rows) = (newest, 0);
    if !is_late_cut && open.len() < HOLES_MAX {
        for row in query::<MySql>(&sql.newcomers)
            .bind(newest)
            .bind(newest)
            .bind(ROWS_MAX)
            .fetch_all(&mut *conn)
            .await?
        {
            let (previous, position): (i64, i64) = (row.try_get("previous")?, row.try_get("position")?);
            if position > previous + 1 {
                gaps.push(Range { first: previous + 1, last: position - 1 });
            }
            (reached, rows) = (position, row.try_get("rows_seen")?);
        }
    }
    if filled.is_empty() && reached == newest && !always {
        return Ok(None);
    }
    let id = last + 1;
    // The primary key lets one process make this tick. From here on the holes are its own.
    query::<MySql>(&sql.insert_tick).bind(id).bind(reached).bind(last).execute(&mut *conn).await?;
    let (closed, rest) = without(&open, &filled);
    for ids in closed.chunks(ROWS_OF_STATEMENT) {
        let ids = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        let close = format!("{} ({ids})", sql.close.as_str());
        query_of::<MySql>(AssertSqlSafe(close), false).bind(id).execute(&mut *conn).await?;
    }
    let opened = Vec::from_iter(rest.into_iter().chain(gaps));
    for ranges in opened.chunks(ROWS_OF_STATEMENT) {
        let rows = vec!["(?, ?, ?, TIMESTAMPADD(SECOND, 1, UTC_TIMESTAMP(6)))"; ranges.len()].join(", ");
        let insert = query_of::<MySql>(AssertSqlSafe(format!("{} {rows}", sql.insert.as_str())), false);
        let bind =
            |query: Query<'static, MySql>, range: &Range| query.bind(range.first).bind(range.last).bind(id);
        ranges.iter().fold(insert, bind).execute(&mut *conn).await?;
    }
    Ok(Some(Tick { id, is_cut: is_late_cut || rows >= ROWS_MAX }))
}

/// The holes that have a filled position, by their ids, and what is left of them. Both lists are sorted.
fn without(holes: &[Hole], filled: &[i64]) -> (Vec<i64>, Vec<Range>) {
    let (mut closed, mut rest) = (Vec::new(), Vec::new());
    for hole in holes {
        let from = filled.partition_point(|&position| position < hole.range.first);
        let to = filled.partition_point(|&position| position <= hole.range.last);
        if from == to {
            continue;
        }
        closed.push(hole.id);
        let mut first = hole.range.first;
        for &position in &filled[from..to] {
            if position > first {
                rest.push(Range { first, last: position - 1 });
            }
            first = position + 1;
        }
        if first <= hole.range.last {
            rest.push(Range { first, last: hole.range.last });
        }
    }
    (closed, rest)
}

/// Puts tombstones into holes whose rows never come. A row that is under way holds the place, and makes the
/// INSERT of a tombstone fail. After a tombstone the INSERT of a slow producer fails instead, and is run
/// again with another position.
async fn probe(conn: &mut MySqlConnection, catalog: &Catalog) -> Result<(), Error> {
    let sql = &catalog.sql.holes;
    let due = query::<MySql>(&sql.due).fetch_all(&mut *conn).await?;
    let mut positions = Vec::new();
    for row in due {
        let (id, first, last): (i64, i64, i64) =
            (row.try_get("id")?, row.try_get("first")?, row.try_get("last")?);
        // One process probes it. The next look is later: most probably a long transaction is at work.
        let taken = query::<MySql>(&sql.postpone).bind(id).execute(&mut *conn).await?;
        if taken.rows_affected() > 0 {
            positions.extend((first..=last).take(PROBES_MAX - positions.len()));
        }
        if positions.len() >= PROBES_MAX {
            break;
        }
    }
    if positions.is_empty() {
        return Ok(());
    }
    bound_lock_wait(conn, Duration::from_secs(1)).await?;
    let mut open = Vec::from_iter(positions.chunks(ROWS_OF_STATEMENT).rev());
    for _ in 0..PROBE_STATEMENTS_MAX {
        let Some(next) = open.pop() else { break };
        if !bury(conn, catalog, next).await? && next.len() > 1 {
            let (low, high) = next.split_at(next.len() / 2);
            open.extend([high, low]);
        }
    }
    unbound_lock_wait(conn, None).await
}

/// Puts a tombstone at each position, or at none: one of them has a row, or a transaction is at work there.
async fn bury(conn: &mut MySqlConnection, catalog: &Catalog, positions: &[i64]) -> Result<bool, Error> {
    let sql = &catalog.sql.holes;
    let list = positions.iter().map(i64::to_string).collect::<Vec<_>>();
    // This does not wait. The INSERT, which decides, would wait for the end of a transaction.
    let look = format!("{} ({}) LIMIT 1 FOR UPDATE NOWAIT", sql.occupied.as_str(), list.join(", "));
    let buried = match raw::<MySql>(AssertSqlSafe(look)).fetch_optional(&mut *conn).await {
        Ok(Some(_)) => return Ok(false),
        Ok(None) => {
            let rows = list.iter().map(|position| format!("({position}, '', 'tombstone', '')"));
            let insert = format!("{} {}", sql.bury.as_str(), Vec::from_iter(rows).join(", "));
            raw::<MySql>(AssertSqlSafe(insert)).execute(&mut *conn).await.map(drop)
        }
        Err(error) => Err(error),
    };
    match buried {
        Ok(()) => Ok(true),
        Err(error) if is_duplicate(&error) || is_contention_error(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(id: i64, first: i64, last: i64) -> Hole {
        Hole { id, range: Range { first, last } }
    }

    #[test]
    fn a_filled_position_splits_its_hole() {
        let holes = [hole(1, 3, 3), hole(2, 5, 9), hole(3, 20, 29)];
        let (closed, rest) = without(&holes, &[3, 5, 7]);
        assert_eq!(closed, [1, 2]);
        assert_eq!(rest, [Range { first: 6, last: 6 }, Range { first: 8, last: 9 }]);
    }

    #[test]
    fn a_hole_that_is_filled_whole_leaves_nothing() {
        let (closed, rest) = without(&[hole(7, 4, 6)], &[4, 5, 6]);
        assert_eq!((closed, rest), (vec![7], Vec::new()));
    }

    #[test]
    fn a_hole_without_a_row_stays() {
        let (closed, rest) = without(&[hole(7, 4, 6)], &[3, 8]);
        assert_eq!((closed, rest), (Vec::new(), Vec::new()));
    }
}
