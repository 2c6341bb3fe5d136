//! Reading one page.
use crate::{
    kept_rows::KeptRows,
    look,
    reading::{Page, Reading},
    replay_reading::ReplayReading,
    task::in_time,
    window::{self, BOUNDS_MAX, Window},
};
use futures::TryStreamExt as _;
use sqlx::Row as _;
use std::{collections::HashSet, sync::Arc, time::Duration};
use twinbox_sql::{
    Dialect, Error,
    engine::{Connection, Engine, MessageColumns, PageBinds, done_with, query, scalar},
};

/// How long it may take to read a page. A slow server answers before this. A connection whose other side is
/// silent would not end for as long as TCP is patient.
const PAGE_READ_MAX: Duration = Duration::from_secs(30);
/// A window over more ticks than this belongs to a reader that is far behind.
pub(crate) const FAR_TICKS: i64 = 1000;

/// Reads the next page. `age`: how old the known newest tick may be.
pub(crate) async fn fetch<DB: Dialect>(
    engine: Engine<DB>,
    mut reading: Reading,
    age: Duration,
    parked_of: Option<String>,
    replay: Option<Arc<ReplayReading>>,
) -> Result<Page, Error> {
    let (window, conn) = match (reading.window.take(), &replay, reading.inherited) {
        (Some(window), ..) => (Some(window), None),
        (None, Some(replay), _) => {
            (in_time(PAGE_READ_MAX, next_of_replay(&engine, replay, &reading)).await?, None)
        }
        (None, None, Some(w)) => (Some(far_window(&engine, reading.p, w, reading.server_run).await?), None),
        (None, None, None) => next(&engine, &reading, age).await?,
    };
    in_time(PAGE_READ_MAX, read(&engine, reading, window, conn, parked_of, replay)).await
}

/// The next window, if there is a new message, and a connection to read it with.
async fn next<DB: Dialect>(
    engine: &Engine<DB>,
    reading: &Reading,
    age: Duration,
) -> Result<(Option<Window>, Option<Connection<DB>>), Error> {
    let (newest, conn) = in_time(PAGE_READ_MAX, look::newest_tick(engine, reading.p, age)).await?;
    if newest > reading.p {
        reading.searched.send_replace(newest);
        let (window, conn) = shared_window(engine, reading.p, newest, reading.server_run, conn).await?;
        return Ok((Some(window), conn));
    }
    done_with(conn).await?;
    if newest < reading.p { Err(Error::other_server_run()) } else { Ok((None, None)) }
}

/// The window between two ticks. Readers that have read everything have it in common.
async fn shared_window<DB: Dialect>(
    engine: &Engine<DB>,
    p: i64,
    w: i64,
    server_run: i64,
    conn: Option<Connection<DB>>,
) -> Result<(Window, Option<Connection<DB>>), Error> {
    // A search that takes long does not make the others wait.
    if w - p > FAR_TICKS {
        done_with(conn).await?;
        return Ok((far_window(engine, p, w, server_run).await?, None));
    }
    let look = engine.state::<look::Look>();
    let (mut last, conn) = match look.window.try_lock() {
        Ok(last) => (last, conn),
        // The task that searches may be waiting for this connection.
        Err(_) => {
            done_with(conn).await?;
            (look.window.lock().await, None)
        }
    };
    match &*last {
        Some((of, window)) if (*of, window.p, window.w) == (server_run, p, w) => Ok((window.clone(), conn)),
        _ => {
            let (window, conn) = near_window(engine, p, w, server_run, conn).await?;
            *last = Some((server_run, window.clone()));
            Ok((window, Some(conn)))
        }
    }
}

async fn next_of_replay<DB: Dialect>(
    engine: &Engine<DB>,
    replay: &ReplayReading,
    reading: &Reading,
) -> Result<Option<Window>, Error> {
    let mut conn = engine.connection().await?;
    let next = replay.next_window::<DB>(&mut conn, engine, reading).await?;
    conn.done().await?;
    Ok(next)
}

/// The window between two ticks, of a reader that may be far behind.
async fn far_window<DB: Dialect>(
    engine: &Engine<DB>,
    p: i64,
    w: i64,
    server_run: i64,
) -> Result<Window, Error> {
    let Some(begin) = DB::BEGIN_LONG.filter(|_| w - p > FAR_TICKS) else {
        let (window, conn) = near_window(engine, p, w, server_run, None).await?;
        conn.done().await?;
        return Ok(window);
    };
    let far = async {
        let mut tx = engine.begin_with(begin).await?;
        let window = window::find::<DB>(&mut tx, engine, p, w, server_run).await?;
        tx.commit().await?;
        Ok(window)
    };
    in_time(BOUNDS_MAX, far).await
}

async fn near_window<DB: Dialect>(
    engine: &Engine<DB>,
    p: i64,
    w: i64,
    server_run: i64,
    conn: Option<Connection<DB>>,
) -> Result<(Window, Connection<DB>), Error> {
    let near = async {
        let mut conn = engine.connection_or(conn).await?;
        let window = window::find::<DB>(&mut conn, engine, p, w, server_run).await?;
        Ok((window, conn))
    };
    in_time(PAGE_READ_MAX, near).await
}

async fn read<DB: Dialect>(
    engine: &Engine<DB>,
    reading: Reading,
    window: Option<Window>,
    conn: Option<Connection<DB>>,
    parked_of: Option<String>,
    replay: Option<Arc<ReplayReading>>,
) -> Result<Page, Error> {
    let Some(window) = window else {
        let (rows, parked) = (Vec::new(), HashSet::new());
        return Ok(Page { window: None, rows, parked, is_last: false, has_ended: replay.is_some() });
    };
    if reading.snapshot.is_some_and(|snapshot| snapshot != window.from) {
        return Err(Error::other_server_run());
    }
    if window.is_empty() && replay.is_none() {
        done_with(conn).await?;
        let (rows, parked) = (Vec::new(), HashSet::new());
        return Ok(Page { window: Some(window), rows, parked, is_last: true, has_ended: false });
    }
    let mut conn = engine.connection_or(conn).await?;
    let binds = PageBinds {
        after: reading.after,
        p: window.p,
        w: window.w,
        floor: window.floor,
        ceiling: window.ceiling,
        limit: i64::try_from(reading.limit).unwrap_or(i64::MAX),
        server_run: reading.server_run,
    };
    let positions = DB::positions(&mut conn, engine.catalog(), binds).await?;
    let page = query::<DB>(&engine.sql().log.page);
    let mut page = DB::bind_page(page, binds, positions.as_deref().unwrap_or_default()).fetch(&mut *conn);
    let (mut kept, mut columns) = (KeptRows::default(), None);
    while let Some(row) = page.try_next().await? {
        if !row.try_get::<bool, _>("is_readable")? {
            return Err(Error::other_server_run());
        }
        let Some(position) = row.try_get::<Option<i64>, _>("position")? else { continue };
        let columns = match columns {
            Some(columns) => columns,
            None => *columns.insert(MessageColumns::of::<DB>(&row)?),
        };
        let message = columns.read_log::<DB>(&row, engine.service(), position)?;
        kept.push(position, Box::new(message));
    }
    drop(page);
    let (mut rows, is_cut) = kept.finish();
    let found = positions.map_or(rows.len(), |positions| positions.len());
    let mut is_last = !is_cut && found < reading.limit;
    let mut parked = HashSet::new();
    if let Some(replay) = &replay {
        is_last |= replay.cut(&window, &mut rows);
    }
    if let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) {
        let destinations =
            parked_of.into_iter().chain(replay.iter().map(|replay| replay.destination.clone()));
        for destination in destinations {
            let positions = scalar::<DB, i64>(&engine.sql().parked_messages.positions_between);
            let positions = positions.bind(destination).bind(*first).bind(*last);
            parked.extend(positions.fetch_all(&mut *conn).await?);
        }
    }
    conn.done().await?;
    if let Some(replay) = &replay {
        for (position, message) in &mut rows {
            match replay.selects(message) {
                true => replay.mark(message),
                false => drop(parked.insert(*position)),
            }
        }
    }
    Ok(Page { window: Some(window), rows, parked, is_last, has_ended: false })
}
