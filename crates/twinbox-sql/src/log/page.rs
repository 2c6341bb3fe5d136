//! Reading one page.
use super::{Replayed, Window};
use crate::{Dialect, Error, ErrorKind, Store, dialect, row, sql::query};
use futures::TryStreamExt as _;
use sqlx::Row as _;
use std::{collections::HashSet, sync::Arc};
use twinbox_core::Message;

/// How far pages are read.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// The window being read; its bounds are looked up when it is taken over from the row.
    pub(super) window: Option<Window>,
    /// Everything up to this tick is read.
    pub(super) p: i64,
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

pub(super) async fn fetch<DB: Dialect>(
    store: Store<DB>,
    mut reading: Reading,
    thin: bool,
    parked_of: Option<String>,
    replay: Option<Arc<Replayed>>,
) -> Result<Fetched, Error> {
    let mut conn = store.connection().await?;
    let statements = store.statements();
    if thin && DB::THIN.is_some() {
        query::<DB>(&statements.log_thin).execute(&mut *conn).await?;
    }
    let window = match (reading.window.take(), &replay, reading.inherited) {
        (Some(window), ..) => Some(window),
        (None, Some(replay), _) => replay.next_window::<DB>(&mut conn, statements, &reading).await?,
        (None, None, Some(w)) => Some(dialect::window::<DB>(&mut conn, statements, reading.p, w).await?),
        (None, None, None) => dialect::next_window::<DB>(&mut conn, statements, reading.p).await?,
    };
    // A tick is there for other readers now, who wait for it.
    conn.done().await?;
    let Some(window) = window else {
        let (rows, parked) = (Vec::new(), HashSet::new());
        return Ok(Fetched { window: None, rows, parked, exhausted: false, ended: replay.is_some() });
    };
    if reading.snapshot.is_some_and(|snapshot| snapshot != window.from) {
        return Err(dialect::tick_lost());
    }
    let mut conn = store.connection().await?;
    let mut page = query::<DB>(&statements.log_page)
        .bind(reading.after)
        .bind(window.p)
        .bind(window.w)
        .bind(window.floor)
        .bind(window.ceiling)
        .bind(i64::try_from(reading.limit).unwrap_or(i64::MAX))
        .fetch(&mut *conn);
    let mut rows = Vec::new();
    while let Some(row) = page.try_next().await? {
        if !row.try_get::<bool, _>(0)? {
            return Err(Error::new(
                ErrorKind::Configuration,
                "a page was read from a standby, or its ticks are gone: read from the primary",
            ));
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
