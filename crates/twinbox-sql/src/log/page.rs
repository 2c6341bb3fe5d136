//! Reading one page.
use super::{Replayed, Window, task::in_time};
use crate::{
    Dialect, Error, Store,
    connection::{Connection, done_with},
    dialect, row, run,
    sql::query,
};
use futures::TryStreamExt as _;
use sqlx::Row as _;
use std::{collections::HashSet, sync::Arc, time::Duration};
use twinbox_core::Message;

/// How far pages are read.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// The window being read; its bounds are looked up when it is taken over from the row.
    pub(super) window: Option<Window>,
    /// Everything up to this tick is read.
    pub(super) p: i64,
    /// The run of the server in which the cursor was taken.
    pub(super) run: i64,
    /// The snapshot of that tick, if this reader has read by it.
    pub(super) snapshot: Option<String>,
    /// A window up to here was being read by the reader before this one.
    pub(super) inherited: Option<i64>,
    pub(super) after: i64,
    pub(super) limit: usize,
    /// How many windows from now on may have been read by a reader before this one.
    pub(super) repeated: u8,
}

pub(super) struct Fetched {
    pub(super) window: Option<Window>,
    pub(super) rows: Vec<(i64, Box<Message>)>,
    /// Those of them that are put aside already, or not for this reader.
    pub(super) parked: HashSet<i64>,
    pub(super) exhausted: bool,
    /// All that there is for a replay has been read.
    pub(super) ended: bool,
}

/// How long it may take to read a page. What is slow but answers ends before this; a connection whose other
/// side is gone without a word would not end for as long as TCP is patient.
const PAGE_READ_MAX: Duration = Duration::from_secs(30);
/// A window over more ticks than this is that of a reader that fell far behind.
pub(super) const FAR_TICKS: i64 = 1000;
/// How long it may take to look for the bounds of such a window: an index is read over all of it, once.
const BOUNDS_MAX: Duration = Duration::from_secs(600);

/// `age`: how old what is known of the newest tick may be.
pub(super) async fn fetch<DB: Dialect>(
    store: Store<DB>,
    mut reading: Reading,
    age: Duration,
    parked_of: Option<String>,
    replay: Option<Arc<Replayed>>,
) -> Result<Fetched, Error> {
    let (window, conn) = match (reading.window.take(), &replay, reading.inherited) {
        (Some(window), ..) => (Some(window), None),
        (None, Some(replay), _) => {
            (in_time(PAGE_READ_MAX, next_of_replay(&store, replay, &reading)).await?, None)
        }
        (None, None, Some(w)) => (Some(window(&store, reading.p, w, reading.run).await?), None),
        (None, None, None) => next(&store, &reading, age).await?,
    };
    in_time(PAGE_READ_MAX, read(&store, reading, window, conn, parked_of, replay)).await
}

/// What is new, if anything is, and a connection to read it by.
async fn next<DB: Dialect>(
    store: &Store<DB>,
    reading: &Reading,
    age: Duration,
) -> Result<(Option<Window>, Option<Connection<DB>>), Error> {
    let (newest, conn) = in_time(PAGE_READ_MAX, store.newest(reading.p, age)).await?;
    if newest > reading.p {
        let (window, conn) = store.shared_window(reading.p, newest, reading.run, conn).await?;
        return Ok((Some(window), conn));
    }
    done_with(conn).await?;
    if newest < reading.p { Err(run::lost()) } else { Ok((None, None)) }
}

async fn next_of_replay<DB: Dialect>(
    store: &Store<DB>,
    replay: &Replayed,
    reading: &Reading,
) -> Result<Option<Window>, Error> {
    let mut conn = store.connection().await?;
    let next = replay.next_window::<DB>(&mut conn, store.statements(), reading).await?;
    conn.done().await?;
    Ok(next)
}

/// The window between two ticks of this run of the server.
pub(super) async fn window<DB: Dialect>(
    store: &Store<DB>,
    p: i64,
    w: i64,
    run: i64,
) -> Result<Window, Error> {
    let Some(begin) = DB::BEGIN_FAR.filter(|_| w - p > FAR_TICKS) else {
        let (window, conn) = near_window(store, p, w, run, None).await?;
        conn.done().await?;
        return Ok(window);
    };
    let far = async {
        let mut tx = store.begin_with(begin).await?;
        let window = dialect::window::<DB>(tx.connection(), store.statements(), p, w, run).await?;
        tx.commit().await?;
        Ok(window)
    };
    in_time(BOUNDS_MAX, far).await
}

pub(super) async fn near_window<DB: Dialect>(
    store: &Store<DB>,
    p: i64,
    w: i64,
    run: i64,
    conn: Option<Connection<DB>>,
) -> Result<(Window, Connection<DB>), Error> {
    let near = async {
        let mut conn = store.connection_or(conn).await?;
        let window = dialect::window::<DB>(&mut conn, store.statements(), p, w, run).await?;
        Ok((window, conn))
    };
    in_time(PAGE_READ_MAX, near).await
}

async fn read<DB: Dialect>(
    store: &Store<DB>,
    reading: Reading,
    window: Option<Window>,
    conn: Option<Connection<DB>>,
    parked_of: Option<String>,
    replay: Option<Arc<Replayed>>,
) -> Result<Fetched, Error> {
    let statements = store.statements();
    let Some(window) = window else {
        let (rows, parked) = (Vec::new(), HashSet::new());
        return Ok(Fetched { window: None, rows, parked, exhausted: false, ended: replay.is_some() });
    };
    if reading.snapshot.is_some_and(|snapshot| snapshot != window.from) {
        return Err(run::lost());
    }
    if window.is_empty() && replay.is_none() {
        done_with(conn).await?;
        let (rows, parked) = (Vec::new(), HashSet::new());
        return Ok(Fetched { window: Some(window), rows, parked, exhausted: true, ended: false });
    }
    let mut conn = store.connection_or(conn).await?;
    let mut page = query::<DB>(&statements.log_page)
        .bind(reading.after)
        .bind(window.p)
        .bind(window.w)
        .bind(window.floor)
        .bind(window.ceiling)
        .bind(i64::try_from(reading.limit).unwrap_or(i64::MAX))
        .bind(reading.run)
        .fetch(&mut *conn);
    let mut rows = Vec::new();
    while let Some(row) = page.try_next().await? {
        if !row.try_get::<bool, _>(0)? {
            return Err(run::lost());
        }
        if let Some(position) = row.try_get::<Option<i64>, _>(1)? {
            let message = row::of_log::<DB>(&row, 2, store.service(), position)?;
            rows.push((position, Box::new(message)));
        }
    }
    drop(page);
    rows.sort_by_key(|(position, _)| *position);
    let mut exhausted = rows.len() < reading.limit;
    let mut parked = HashSet::new();
    if let Some(replay) = &replay {
        exhausted |= replay.cut(&window, &mut rows);
    }
    if let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) {
        let aside_for = parked_of.into_iter().chain(replay.iter().map(|replay| replay.destination.clone()));
        for destination in aside_for {
            parked.extend(store.parked_among(&mut conn, &destination, (*first, *last)).await?);
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
    Ok(Fetched { window: Some(window), rows, parked, exhausted, ended: false })
}
