//! A window of the log.
use sqlx::Row as _;
use std::time::Duration;
use twinbox_sql::{
    Dialect, Error,
    engine::{Engine, TextColumns, query},
};

/// How long it may take to find the bounds of the window of a reader that is far behind: an index is read
/// over all of it, once.
pub(crate) const BOUNDS_MAX: Duration = Duration::from_secs(600);

/// The messages that became visible between two ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    /// The first tick.
    pub(crate) p: i64,
    /// The second tick.
    pub(crate) w: i64,
    /// No newcomer has this position or a lower one. A newcomer was begun after the first tick.
    pub(crate) floor: i64,
    /// No newcomer has a higher position.
    pub(crate) ceiling: i64,
    /// There are no newcomers, and no late committer: nothing that was begun before the first tick became
    /// visible.
    pub(crate) is_late_free: bool,
    /// The snapshot of the first tick.
    pub(crate) from: String,
    /// The snapshot of the second tick.
    pub(crate) to: String,
}

impl Window {
    /// Whether it has no message.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_late_free && self.floor >= self.ceiling
    }
}

/// The window between two ticks of a server run.
///
/// # Errors
/// A tick is gone, or the server run is another one: read everything again.
pub(crate) async fn find<DB: Dialect>(
    conn: &mut DB::Connection,
    engine: &Engine<DB>,
    p: i64,
    w: i64,
    server_run: i64,
) -> Result<Window, Error> {
    // From the beginning every message is a newcomer, and there may be many.
    let from_tick = if p == 0 { w } else { p };
    let bounds = query::<DB>(&engine.sql().log.window_bounds).within(BOUNDS_MAX);
    let row = bounds.bind(from_tick).bind(w).bind(server_run).fetch_one(conn).await?;
    let (from, to) = (row.text_or_null("from_snapshot")?, row.text_or_null("to_snapshot")?);
    let (Some(from), Some(to), true) = (from, to, row.try_get("is_server_run")?) else {
        return Err(Error::other_server_run());
    };
    if p == 0 {
        return Ok(Window { p, w, floor: 0, ceiling: i64::MAX, is_late_free: false, from, to });
    }
    let floor = row.try_get::<Option<i64>, _>("floor")?.unwrap_or(i64::MAX);
    let ceiling = row.try_get::<Option<i64>, _>("ceiling")?.unwrap_or(0);
    Ok(Window { p, w, floor, ceiling, is_late_free: row.try_get("is_late_free")?, from, to })
}
