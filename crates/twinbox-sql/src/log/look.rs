//! One look at the log for all readers of a store in this process: what is new, what is to be replayed, what is no longer
//! needed. Ten idle readers ask no more than one.
use super::{
    THIN_INTERVAL, Window,
    page::{FAR_TICKS, near_window, window},
    task::in_time,
};
use crate::{
    Dialect, Error, Store,
    connection::{Connection, done_with},
    sql::{query, scalar},
};
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, watch};

/// What was seen, and when it was asked for.
#[derive(Debug, Default)]
struct Seen<T> {
    at: Option<Instant>,
    what: T,
}

impl<T> Seen<T> {
    fn is_younger_than(&self, age: Duration) -> bool {
        self.at.is_some_and(|at| at.elapsed() < age)
    }
}

#[derive(Debug)]
pub(crate) struct Look {
    newest: Mutex<Seen<i64>>,
    /// The newest tick, whoever has seen it.
    found: watch::Sender<i64>,
    /// The last window that was looked up, and in which run of the server: in another the same ticks may be others. Readers
    /// that have read all have it in common.
    window: Mutex<Option<(i64, Window)>>,
    /// Destinations with replays to execute.
    replays: Mutex<Seen<HashSet<String>>>,
    thinned: Mutex<Seen<()>>,
}

/// How old may be what is known of replays.
const REPLAYS_AGE: Duration = Duration::from_secs(1);
/// How long it may take to delete ticks.
const THIN_MAX: Duration = Duration::from_secs(60);

impl Look {
    pub(crate) fn new() -> Self {
        Self {
            newest: Mutex::default(),
            found: watch::Sender::new(0),
            window: Mutex::default(),
            replays: Mutex::default(),
            thinned: Mutex::default(),
        }
    }

    /// Told when somebody has seen a new tick.
    pub(crate) fn found(&self) -> watch::Receiver<i64> {
        self.found.subscribe()
    }
}

impl<DB: Dialect> Store<DB> {
    /// The newest tick, as it was no longer ago than `age`. Makes one if it is `p`, all that the asker has read, and there
    /// is something beyond it. With the connection by which it was asked for, to go on with.
    pub(super) async fn newest(&self, p: i64, age: Duration) -> Result<(i64, Option<Connection<DB>>), Error> {
        let look = self.log_look();
        let mut newest = look.newest.lock().await;
        if newest.what >= p && newest.is_younger_than(age) {
            return Ok((newest.what, None));
        }
        newest.at = None;
        let at = Instant::now();
        let mut conn = self.connection().await?;
        let asked = scalar::<DB, i64>(&self.statements().log_newest).bind(p).fetch_one(&mut *conn).await?;
        // A tick is there for other readers now, who wait for it.
        let conn = conn.committed().await?;
        if asked != newest.what {
            look.found.send_replace(asked);
        }
        *newest = Seen { at: Some(at), what: asked };
        Ok((asked, conn))
    }

    /// The window between two ticks of this run of the server.
    pub(super) async fn shared_window(
        &self,
        p: i64,
        w: i64,
        run: i64,
        conn: Option<Connection<DB>>,
    ) -> Result<(Window, Option<Connection<DB>>), Error> {
        let look = &self.log_look().window;
        // A look that takes long is not waited for by others.
        if w - p > FAR_TICKS {
            done_with(conn).await?;
            return Ok((window(self, p, w, run).await?, None));
        }
        let (mut last, conn) = match look.try_lock() {
            Ok(last) => (last, conn),
            // Whoever is looking may be waiting for this connection.
            Err(_) => {
                done_with(conn).await?;
                (look.lock().await, None)
            }
        };
        match &*last {
            Some((of, window)) if (*of, window.p, window.w) == (run, p, w) => Ok((window.clone(), conn)),
            _ => {
                let (window, conn) = near_window(self, p, w, run, conn).await?;
                *last = Some((run, window.clone()));
                Ok((window, Some(conn)))
            }
        }
    }

    /// Whether a destination may have a replay to execute, as it was no longer ago than a second.
    pub(crate) async fn may_have_replays(&self, destination: &str) -> Result<bool, Error> {
        let mut replays = self.log_look().replays.lock().await;
        if !replays.is_younger_than(REPLAYS_AGE) {
            let at = Instant::now();
            let mut conn = self.connection().await?;
            let running =
                scalar::<DB, String>(&self.statements().replays_running).fetch_all(&mut *conn).await?;
            conn.done().await?;
            *replays = Seen { at: Some(at), what: running.into_iter().collect() };
        }
        Ok(replays.what.contains(destination))
    }

    /// Deletes ticks that nobody will ask for, in the background and for all readers of this process once in a while.
    pub(super) fn thin(&self) {
        let Ok(mut thinned) = self.log_look().thinned.try_lock() else { return };
        if DB::THIN.is_none() || thinned.is_younger_than(THIN_INTERVAL) {
            return;
        }
        thinned.at = Some(Instant::now());
        let store = self.clone();
        tokio::spawn(async move {
            let thin = async {
                let mut conn = store.connection().await?;
                query::<DB>(&store.statements().log_thin).execute(&mut *conn).await?;
                conn.done().await
            };
            if let Err(error) = in_time(THIN_MAX, thin).await {
                tracing::debug!(%error, "old ticks stay for now");
            }
        });
    }
}
