//! Looking up a window of the log.
use super::Dialect;
use crate::{
    Error,
    log::Window,
    run,
    sql::{Statements, rows},
};

/// The window between two ticks of this run of the server.
pub(crate) async fn window<DB: Dialect>(
    conn: &mut DB::Connection,
    statements: &Statements,
    p: i64,
    w: i64,
    in_run: i64,
) -> Result<Window, Error> {
    type Bounds = (Option<i64>, Option<i64>, Option<String>, Option<String>, bool, bool);
    let bounds = rows::<DB, Bounds>(&statements.log_bounds);
    // From the beginning everything is a newcomer, and there may be a lot of it.
    let from_tick = if p == 0 { w } else { p };
    let (floor, ceiling, from, to, is_late_free, is_run) =
        bounds.bind(from_tick).bind(w).bind(in_run).fetch_one(conn).await?;
    let (Some(from), Some(to), true) = (from, to, is_run) else { return Err(run::lost()) };
    if p == 0 {
        return Ok(Window { p, w, floor: 0, ceiling: i64::MAX, is_late_free: false, from, to });
    }
    let (floor, ceiling) = (floor.unwrap_or(i64::MAX), ceiling.unwrap_or(0));
    Ok(Window { p, w, floor, ceiling, is_late_free, from, to })
}
