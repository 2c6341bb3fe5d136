//! What consumers are doing, for probes and for a recorder of metrics.
use crate::Outcome;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};
use twinbox_core::count::Count;

/// What the consumers of one [`Consumer::run`](crate::Consumer::run) are doing. Cheap to clone; empty until it runs.
///
/// The same goes to whatever recorder of the `metrics` crate was installed by then, with the label `consumer`:
///
/// | metric | what |
/// |---|---|
/// | `messaging.process.duration` | seconds that a delivery took from its turn to its outcome, by `outcome` |
/// | `messaging.client.consumed.messages` | deliveries that were done with or are to come again, by `outcome` |
/// | `twinbox.consumer.dedup.hits` | duplicates, of which nothing ran |
/// | `twinbox.consumer.dedup.ratio` | their share of all that was done with, from 0 to 1 |
/// | `twinbox.consumer.attempts.failed` | attempts that counted |
/// | `twinbox.consumer.dead_letters` | messages that were given up |
/// | `twinbox.consumer.overtaken` | partitions of which the broker had dropped messages before they were read |
/// | `twinbox.consumer.batches.failed` | batches that failed, whose messages were handled one by one |
/// | `twinbox.consumer.payload_conflicts` | messages with the id of another that was there before and another payload |
/// | `twinbox.consumer.in_flight` | deliveries that handlers work on |
/// | `twinbox.consumer.lag` | messages that the broker has and has not delivered, as it last said |
/// | `twinbox.consumer.inbox.purged` | claims that were forgotten |
#[derive(Debug, Clone, Default)]
pub struct Status(Arc<Mutex<Vec<Arc<Progress>>>>);

/// What one consumer is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStatus {
    /// Its name.
    pub consumer: String,
    /// What it is doing.
    pub state: ConsumerState,
    /// Deliveries that handlers work on.
    pub in_flight: u64,
    /// Deliveries whose handler ran and committed.
    pub handled: u64,
    /// Deliveries of what was done with before.
    pub duplicates: u64,
    /// Attempts that failed and counted.
    pub failed: u64,
    /// Messages that were given up.
    pub dead_letters: u64,
    /// How often the broker had dropped messages behind the place of a partition before they were read: they may never have
    /// been handled.
    pub overtaken: u64,
    /// Batches that failed as a whole, so that each of their messages was handled by itself. A handler whose batches
    /// always fail works, and as slowly as without batches.
    pub failed_batches: u64,
    /// The error of the last of them.
    pub batch_error: Option<String>,
    /// Messages that the broker has and has not delivered, if it said so. The log is told of by
    /// [`Store::readers`](twinbox_sql::Store::readers).
    pub lag: Option<u64>,
}

/// What a consumer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConsumerState {
    /// It is not connected to where its messages come from.
    Waiting,
    /// Another process reads for it, and it takes over when that one ends.
    Standby,
    /// It receives what there is.
    Consuming,
    /// Somebody holds it back: see [`Store::pause_consumer`](twinbox_sql::Store::pause_consumer).
    Paused,
    /// It was when its database went away.
    DatabaseAway,
    /// It has ended.
    Stopped,
}

impl Status {
    /// Whether every consumer receives what there is, stands by, or is held back. False before they run, and after.
    pub fn is_ready(&self) -> bool {
        let consumers = self.all();
        let ready = |one: &Arc<Progress>| {
            use ConsumerState::{Consuming, Paused, Standby};
            matches!(*one.state(), Consuming | Standby | Paused)
        };
        !consumers.is_empty() && consumers.iter().all(ready)
    }

    /// Each consumer, by name.
    pub fn consumers(&self) -> Vec<ConsumerStatus> {
        self.all().iter().map(|one| one.status()).collect()
    }

    pub(crate) fn add(&self, consumer: &str) -> Arc<Progress> {
        let progress = Arc::new(Progress::new(consumer));
        self.all().push(progress.clone());
        progress
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Progress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is counted of one consumer.
#[derive(Debug)]
pub(crate) struct Progress {
    consumer: String,
    state: Mutex<ConsumerState>,
    in_flight: AtomicU64,
    in_flight_recorded: Gauge,
    handled: AtomicU64,
    duplicates: Count,
    ratio: Gauge,
    failed: Count,
    dead_letters: Count,
    overtaken: Count,
    failed_batches: Count,
    batch_error: Mutex<Option<String>>,
    purged: Counter,
    /// In the order of [`OUTCOMES`].
    outcomes: [(Counter, Histogram); OUTCOMES.len()],
    /// By partition, where a process reads several.
    lag: Mutex<HashMap<u32, u64>>,
    lag_recorded: Gauge,
}

/// A delivery that a handler works on.
pub(crate) struct InFlight<'a> {
    progress: &'a Progress,
    since: Instant,
}

impl Progress {
    fn new(consumer: &str) -> Self {
        let label = || consumer.to_owned();
        Self {
            consumer: consumer.to_owned(),
            state: Mutex::new(ConsumerState::Waiting),
            in_flight: AtomicU64::new(0),
            in_flight_recorded: gauge!("twinbox.consumer.in_flight", "consumer" => label()),
            handled: AtomicU64::new(0),
            duplicates: Count::new(counter!("twinbox.consumer.dedup.hits", "consumer" => label())),
            ratio: gauge!("twinbox.consumer.dedup.ratio", "consumer" => label()),
            failed: Count::new(counter!("twinbox.consumer.attempts.failed", "consumer" => label())),
            dead_letters: Count::new(counter!("twinbox.consumer.dead_letters", "consumer" => label())),
            overtaken: Count::new(counter!("twinbox.consumer.overtaken", "consumer" => label())),
            failed_batches: Count::new(counter!("twinbox.consumer.batches.failed", "consumer" => label())),
            batch_error: Mutex::default(),
            purged: counter!("twinbox.consumer.inbox.purged", "consumer" => label()),
            outcomes: OUTCOMES.map(|outcome| {
                let labels = [("consumer", label()), ("outcome", outcome.to_owned())];
                (
                    counter!("messaging.client.consumed.messages", &labels),
                    histogram!("messaging.process.duration", &labels),
                )
            }),
            lag: Mutex::default(),
            lag_recorded: gauge!("twinbox.consumer.lag", "consumer" => label()),
        }
    }

    fn state(&self) -> MutexGuard<'_, ConsumerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is(&self, state: ConsumerState) {
        *self.state() = state;
    }

    fn status(&self) -> ConsumerStatus {
        let lag = self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        ConsumerStatus {
            consumer: self.consumer.clone(),
            state: *self.state(),
            in_flight: self.in_flight.load(Relaxed),
            handled: self.handled.load(Relaxed),
            duplicates: self.duplicates.get(),
            failed: self.failed.get(),
            dead_letters: self.dead_letters.get(),
            overtaken: self.overtaken.get(),
            failed_batches: self.failed_batches.get(),
            batch_error: self.batch_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            lag: (!lag.is_empty()).then(|| lag.values().sum()),
        }
    }

    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Relaxed);
        self.in_flight_recorded.increment(1.0);
        InFlight { progress: self, since: Instant::now() }
    }

    pub(crate) fn note(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Handled => drop(self.handled.fetch_add(1, Relaxed)),
            Outcome::Duplicate => self.duplicates.add(1),
            Outcome::Retried { counted: true, .. } => self.failed.add(1),
            Outcome::DeadLettered { .. } => self.dead_letters.add(1),
            _ => {}
        }
        let (hits, handled) = (self.duplicates.get(), self.handled.load(Relaxed));
        if hits + handled > 0 {
            self.ratio.set(hits as f64 / (hits + handled) as f64);
        }
        self.outcomes[kind(outcome)].0.increment(1);
        self.is(match outcome {
            Outcome::Unavailable => ConsumerState::DatabaseAway,
            _ => ConsumerState::Consuming,
        });
    }

    /// A partition was.
    pub(crate) fn opened(&self, overtaken: bool) {
        self.overtaken.add(u64::from(overtaken));
    }

    pub(crate) fn batch_failed(&self, error: String) {
        self.failed_batches.add(1);
        *self.batch_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    pub(crate) fn add_purged(&self, claims: u64) {
        self.purged.increment(claims);
    }

    /// Messages that wait at the broker for this partition, where there are several. None: nothing is known of it.
    pub(crate) fn set_lag(&self, partition: u32, lag: Option<u64>) {
        let mut all = self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        match lag {
            Some(lag) => drop(all.insert(partition, lag)),
            None => drop(all.remove(&partition)),
        }
        self.lag_recorded.set(all.values().sum::<u64>() as f64);
    }
}

impl InFlight<'_> {
    pub(crate) fn end(self, outcome: &Outcome) {
        self.progress.outcomes[kind(outcome)].1.record(self.since.elapsed());
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.progress.in_flight.fetch_sub(1, Relaxed);
        self.progress.in_flight_recorded.decrement(1.0);
    }
}

/// Outcomes as labels.
const OUTCOMES: [&str; 9] = [
    "handled",
    "duplicate",
    "failed",
    "put_off",
    "redacted",
    "dead_lettered",
    "unavailable",
    "passed_by",
    "not_owned",
];

/// The label of one.
pub(crate) fn label(outcome: &Outcome) -> &'static str {
    OUTCOMES[kind(outcome)]
}

/// Which of them it is.
fn kind(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Handled => 0,
        Outcome::Duplicate => 1,
        Outcome::Retried { counted: true, .. } => 2,
        Outcome::Retried { counted: false, .. } => 3,
        Outcome::Redacted => 4,
        Outcome::DeadLettered { .. } => 5,
        Outcome::Unavailable => 6,
        Outcome::PassedBy => 7,
        Outcome::NotOwned => 8,
    }
}

#[cfg(test)]
mod tests;
