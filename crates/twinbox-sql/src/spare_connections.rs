//! Connections that are kept between two handlers.
//!
//! The pool pings a connection when it takes it back, and again when it gives it out. With these, BEGIN and
//! COMMIT, a consumer with much to do would spend half of its round trips on no work.
use crate::{Dialect, Error, OwnedTx, engine::Engine, lent::RETURN_MAX, statement::raw};
use sqlx::AssertSqlSafe;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, task::JoinHandle};
use twinbox_core::{task_name::TaskName, test_signal};

/// How long a connection is kept without work, at least; at most twice as long. Others may be waiting for it
/// at the pool.
const KEPT_MAX: Duration = Duration::from_millis(10);
/// How long a connection stays away from its pool, however busy it is. Others may be waiting for it there,
/// and the pool renews old ones.
const AWAY_MAX: Duration = Duration::from_millis(100);

/// The connections that were used last. sqlx counts one transaction on each.
pub(crate) struct SpareConnections<DB: Dialect> {
    kept: Mutex<Kept<DB>>,
    /// Deliveries that wait for their turn to begin.
    waiting: AtomicUsize,
}

struct Kept<DB: Dialect> {
    spares: Vec<Spare<DB>>,
    /// The task that returns connections that were kept for too long. None: it has ended.
    returning: Option<JoinHandle<()>>,
}

struct Spare<DB: Dialect> {
    tx: OwnedTx<DB>,
    since: Instant,
    /// When its next transaction was begun, with the COMMIT of the last one. None: there is no transaction.
    begun_at: Option<Instant>,
    /// The runtime of the connection.
    runtime: Handle,
}

impl<DB: Dialect> Spare<DB> {
    fn is_long_away(&self) -> bool {
        self.tx.taken_at.elapsed() >= AWAY_MAX
    }

    /// Gives the connection back to the pool, beside others, which may be silent.
    fn go_back(self) {
        let Self { mut tx, begun_at, runtime, .. } = self;
        let returning = async move {
            // The transaction that sqlx counts has to be there to be rolled back.
            if begun_at.is_none() && DB::ROLLBACK.is_none() {
                raw::<DB>("BEGIN").execute(tx.connection()).await?;
            }
            tx.rollback().await
        };
        // The pool needs a runtime too, and the store may be dropped outside of one.
        let _entered = runtime.enter();
        runtime.spawn(TaskName::ReturnConnection.of(async {
            if let Ok(Err(error)) = tokio::time::timeout(RETURN_MAX, returning).await {
                note_lost(&error);
            }
        }));
    }
}

/// The wait of a delivery for its turn. While deliveries wait, a commit begins the next transaction too.
#[derive(Debug)]
pub struct Turn<'a> {
    waiting: Option<&'a AtomicUsize>,
    since: Instant,
}

impl Turn<'_> {
    /// Ends the wait. Returns when it began.
    pub fn end(self) -> Instant {
        self.since
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.waiting.inspect(|waiting| _ = waiting.fetch_sub(1, Relaxed));
    }
}

/// Begins the wait of a delivery.
pub(crate) fn turn<DB: Dialect>(spares: Option<&SpareConnections<DB>>) -> Turn<'_> {
    let waiting = spares.map(|spares| &spares.waiting);
    waiting.inspect(|waiting| _ = waiting.fetch_add(1, Relaxed));
    Turn { waiting, since: Instant::now() }
}

impl<DB: Dialect> Default for SpareConnections<DB> {
    fn default() -> Self {
        let kept = Mutex::new(Kept { spares: Vec::new(), returning: None });
        Self { kept, waiting: AtomicUsize::new(0) }
    }
}

impl<DB: Dialect> SpareConnections<DB> {
    fn kept(&self) -> MutexGuard<'_, Kept<DB>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Returns a transaction for a delivery that waits since then, if one was begun later: its `now()` is
    /// then not before that of transactions that the delivery follows.
    pub(crate) fn take_begun(&self, waiting_since: Instant) -> Option<OwnedTx<DB>> {
        let last = self.kept().spares.pop_if(|last| last.begun_at.is_some_and(|at| at >= waiting_since));
        last.map(|last| {
            test_signal::pass("spares.takes_begun");
            last.tx
        })
    }

    /// Begins a transaction, on a kept connection if there is one that still works. That of a single writer
    /// is begun by the claim.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    pub(crate) async fn begin(&self, engine: &Engine<DB>) -> Result<OwnedTx<DB>, Error> {
        let permit = engine.write_permit().await?;
        while let Some(Spare { mut tx, begun_at, .. }) = self.pop() {
            if DB::ONE_WRITER {
                tx.permit = permit;
                return Ok(tx);
            }
            // One that was begun is begun anew: `now()` is the time of its beginning.
            let end = if begun_at.is_some() { "COMMIT; " } else { "" };
            let begin = AssertSqlSafe(format!("{end}{}", DB::BEGIN_TO_CLAIM));
            match raw::<DB>(begin).execute(tx.connection()).await {
                Ok(_) => return Ok(tx),
                Err(error) => note_lost(&error.into()),
            }
        }
        test_signal::pass("spares.begins_anew");
        engine.begin_permitted(permit, DB::BEGIN_TO_CLAIM).await
    }

    fn pop(&self) -> Option<Spare<DB>> {
        self.kept().spares.pop()
    }

    /// Keeps the connection of a transaction that has ended, if it is fit for another. `begun_at`: and
    /// another was begun.
    pub(crate) fn keep(self: &Arc<Self>, tx: Option<OwnedTx<DB>>, begun_at: Option<Instant>) {
        let Some(tx) = tx else { return };
        let since = Instant::now();
        let spare = Spare { tx, since, begun_at, runtime: Handle::current() };
        if spare.is_long_away() {
            test_signal::pass("spares.is_too_long_away");
            return spare.go_back();
        }
        let mut kept = self.kept();
        kept.spares.push(spare);
        // It is also at its end if it was started in a runtime that is gone.
        if kept.returning.as_ref().is_none_or(JoinHandle::is_finished) {
            kept.returning = Some(tokio::spawn(TaskName::ReturnSpares.of(return_old(Arc::downgrade(self)))));
        }
    }

    /// Takes out those that were kept for too long. None: nothing is kept.
    fn take_old(&self) -> Option<Vec<Spare<DB>>> {
        let mut kept = self.kept();
        if kept.spares.is_empty() {
            kept.returning = None;
            return None;
        }
        let is_old = |spare: &mut Spare<DB>| spare.since.elapsed() >= KEPT_MAX || spare.is_long_away();
        let old = kept.spares.extract_if(.., is_old);
        Some(old.inspect(|_| test_signal::pass("spares.is_too_long_away")).collect())
    }
}

async fn return_old<DB: Dialect>(spares: Weak<SpareConnections<DB>>) {
    loop {
        tokio::time::sleep(KEPT_MAX).await;
        let Some(old) = spares.upgrade().and_then(|spares| spares.take_old()) else { return };
        old.into_iter().for_each(Spare::go_back);
    }
}

impl<DB: Dialect> Drop for SpareConnections<DB> {
    fn drop(&mut self) {
        std::mem::take(&mut self.kept().spares).into_iter().for_each(Spare::go_back);
    }
}

pub(crate) fn note_lost(error: &Error) {
    tracing::debug!(error = error as &dyn std::error::Error, "a connection was lost while it was kept");
}
