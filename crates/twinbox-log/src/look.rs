//! One look at the log for all readers of a store in this process: new ticks, replays to execute, old ticks
//! to delete. Ten idle readers ask the database no more than one.
use crate::{
    options::{NAMING_INTERVAL, THIN_INTERVAL},
    task::in_time,
    window::Window,
};
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, watch};
use twinbox_core::task_name::TaskName;
use twinbox_sql::{
    Dialect, Error,
    engine::{Connection, Engine, Text, query, scalar},
};

/// A value that was read, and when it was asked for.
#[derive(Debug, Default)]
struct Seen<T> {
    at: Option<Instant>,
    value: T,
}

impl<T> Seen<T> {
    fn is_younger_than(&self, age: Duration) -> bool {
        self.at.is_some_and(|at| at.elapsed() < age)
    }
}

/// What the readers of a store know together.
#[derive(Debug)]
pub(crate) struct Look {
    newest: Mutex<Seen<i64>>,
    /// The newest tick that any reader has seen.
    found: watch::Sender<i64>,
    /// The last window that was found, and its server run: in another run the same ids may be other ticks.
    pub(crate) window: Mutex<Option<(i64, Window)>>,
    /// Destinations with running replays.
    replays: Mutex<Seen<HashSet<String>>>,
    thinned: Mutex<Seen<()>>,
}

/// How old the known replays may be.
const REPLAYS_AGE: Duration = Duration::from_secs(1);
/// How long deleting ticks may take.
const THIN_MAX: Duration = Duration::from_secs(60);

impl Default for Look {
    fn default() -> Self {
        Self {
            newest: Mutex::default(),
            found: watch::Sender::new(0),
            window: Mutex::default(),
            replays: Mutex::default(),
            thinned: Mutex::default(),
        }
    }
}

impl Look {
    /// Changes when a reader has seen a new tick.
    pub(crate) fn found(&self) -> watch::Receiver<i64> {
        self.found.subscribe()
    }
}

/// The newest tick, at most `age` old. Makes one if the newest is `p`, up to which the caller has read, and
/// there is a message beyond it. Also returns the connection that was used, if it can be used on.
pub(crate) async fn newest_tick<DB: Dialect>(
    engine: &Engine<DB>,
    p: i64,
    age: Duration,
) -> Result<(i64, Option<Connection<DB>>), Error> {
    let look = engine.state::<Look>();
    let mut newest = look.newest.lock().await;
    // A tick that no row names yet may be thinned after ten seconds.
    let age = if newest.value > p { age.min(NAMING_INTERVAL) } else { age };
    if newest.value >= p && newest.is_younger_than(age) {
        return Ok((newest.value, None));
    }
    newest.at = None;
    let at = Instant::now();
    let mut conn = engine.connection().await?;
    let asked = DB::newest_tick(&mut conn, engine.catalog(), p).await?;
    // Other readers, which wait for the tick, see it from here on.
    let conn = conn.commit().await?;
    if asked != newest.value {
        look.found.send_replace(asked);
    }
    *newest = Seen { at: Some(at), value: asked };
    Ok((asked, conn))
}

/// Whether a destination may have a running replay, at most a second ago.
pub(crate) async fn may_have_replays<DB: Dialect>(
    engine: &Engine<DB>,
    destination: &str,
) -> Result<bool, Error> {
    let look = engine.state::<Look>();
    let mut replays = look.replays.lock().await;
    if !replays.is_younger_than(REPLAYS_AGE) {
        let at = Instant::now();
        let mut conn = engine.connection().await?;
        let running = scalar::<DB, Text>(&engine.sql().replays.running_destinations);
        let running = running.fetch_all(&mut *conn).await?;
        conn.done().await?;
        *replays = Seen { at: Some(at), value: running.into_iter().map(|name| name.0).collect() };
    }
    Ok(replays.value.contains(destination))
}

/// Deletes ticks that are no longer needed, in the background, once in a while for all readers of this
/// process.
pub(crate) fn thin_ticks<DB: Dialect>(engine: &Engine<DB>) {
    let look = engine.state::<Look>();
    let Ok(mut thinned) = look.thinned.try_lock() else { return };
    if engine.sql().log.thin_ticks.is_absent() || thinned.is_younger_than(THIN_INTERVAL) {
        return;
    }
    thinned.at = Some(Instant::now());
    let engine = engine.clone();
    tokio::spawn(TaskName::ThinTicks.of(async move {
        let thin = async {
            let mut conn = engine.connection().await?;
            query::<DB>(&engine.sql().log.thin_ticks).within(THIN_MAX).execute(&mut *conn).await?;
            conn.done().await
        };
        if let Err(error) = in_time(THIN_MAX, thin).await {
            tracing::debug!(%error, "old ticks stay for now");
        }
    }));
}
