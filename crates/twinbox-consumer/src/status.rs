//! The state and the counters of consumers, for probes and for a recorder of metrics.
use crate::{
    metrics::{
        CLAIMS_PURGED, DEAD_LETTERS, DELIVERIES, DUPLICATES, FAILED_ATTEMPTS, FAILED_BATCHES, IN_FLIGHT, LAG,
        OVERTAKEN, PROCESS_TIME,
    },
    outcome::{DeliveryOutcome, LABELS},
};
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

/// The state and the counters of all consumers of one [`Consumer::run`](crate::Consumer::run). Cheap to
/// clone; empty until it runs.
///
/// The `metrics` crate gets the same numbers, if its recorder was installed before:
///
/// | metric | meaning |
/// |---|---|
/// | `twinbox_consumer_process_seconds` | from the start of a handler to the outcome, by `outcome` |
/// | `twinbox_consumer_deliveries_total` | ended deliveries, by `outcome` |
/// | `twinbox_consumer_duplicates_total` | deliveries of settled messages, for which no handler ran |
/// | `twinbox_consumer_failed_attempts_total` | failed attempts that counted |
/// | `twinbox_consumer_dead_letters_total` | messages that became dead letters |
/// | `twinbox_consumer_delayed_dead_letters_total` | deliveries that wait for the `limit` of dead letters |
/// | `twinbox_consumer_dead_letter_bytes` | bytes of the dead letters, when they were last summed |
/// | `twinbox_consumer_server_answers_total` | answers of a NATS server that came as messages |
/// | `twinbox_consumer_overtaken_total` | partitions of which the broker dropped unread messages |
/// | `twinbox_consumer_failed_batches_total` | failed batches, whose messages were handled one by one |
/// | `twinbox_consumer_payload_conflicts_total` | messages with an earlier one's id and another payload |
/// | `twinbox_consumer_claims_purged_total` | claims that were deleted from the inbox |
/// | `twinbox_consumer_in_flight_deliveries` | deliveries whose handlers run |
/// | `twinbox_consumer_lag_messages` | messages that wait at the broker, as it last reported |
///
/// All have the label `consumer`, the name of the consumer. The share of duplicates is a query:
/// `twinbox_consumer_duplicates_total` divided by `twinbox_consumer_deliveries_total` with the outcomes
/// `handled` and `duplicate`.
#[derive(Debug, Clone, Default)]
pub struct Status(Arc<Mutex<Vec<Arc<ConsumerStats>>>>);

/// The state and the counters of one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStatus {
    /// The name of the consumer.
    pub consumer: String,
    /// The state of the consumer.
    pub state: ConsumerState,
    /// How many deliveries have a running handler.
    pub in_flight: u64,
    /// How many deliveries were handled and committed.
    pub handled: u64,
    /// How many deliveries were of messages that were settled earlier.
    pub duplicates: u64,
    /// How many attempts failed and were counted towards the attempts that the policy allows.
    pub failed: u64,
    /// How many messages became dead letters.
    pub dead_letters: u64,
    /// How often the broker had dropped messages of a partition before they were read. Such messages may
    /// never have been handled.
    pub overtaken: u64,
    /// How many batches failed as a whole, so that each message was handled alone. A handler whose batches
    /// always fail is as slow as without batches.
    pub failed_batches: u64,
    /// The error of the last failed batch.
    pub batch_error: Option<String>,
    /// How many messages wait at the broker, if the broker reported it. For consumers of the log see
    /// `Ops::readers`.
    pub lag: Option<u64>,
}

/// The state of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConsumerState {
    /// The consumer is not connected to its source.
    Waiting,
    /// Another process reads for the consumer. This one takes over when that process ends.
    Standby,
    /// The consumer receives messages.
    Consuming,
    /// An operator paused the consumer: see `Ops::pause_consumer`.
    Paused,
    /// The consumer's database is not available.
    DatabaseAway,
    /// The consumer has ended.
    Stopped,
}

impl Status {
    /// Returns whether every consumer is consuming, on standby or paused. False before they run, and after.
    pub fn is_ready(&self) -> bool {
        let consumers = self.all();
        let ready = |one: &Arc<ConsumerStats>| {
            use ConsumerState::{Consuming, Paused, Standby};
            matches!(*one.state(), Consuming | Standby | Paused)
        };
        !consumers.is_empty() && consumers.iter().all(ready)
    }

    /// Returns the status of each consumer, by name.
    pub fn consumers(&self) -> Vec<ConsumerStatus> {
        self.all().iter().map(|one| one.status()).collect()
    }

    pub(crate) fn add(&self, consumer: &str) -> Arc<ConsumerStats> {
        let stats = Arc::new(ConsumerStats::new(consumer));
        self.all().push(stats.clone());
        stats
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<ConsumerStats>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state and the counters of one running consumer.
#[derive(Debug)]
pub(crate) struct ConsumerStats {
    consumer: String,
    state: Mutex<ConsumerState>,
    in_flight: AtomicU64,
    in_flight_gauge: Gauge,
    handled: AtomicU64,
    duplicates: Count,
    failed: Count,
    dead_letters: Count,
    overtaken: Count,
    failed_batches: Count,
    batch_error: Mutex<Option<String>>,
    purged: Counter,
    /// In the order of [`LABELS`].
    outcomes: [(Counter, Histogram); LABELS.len()],
    /// The lag by partition; of an undivided source under 0.
    lag: Mutex<HashMap<u32, u64>>,
    lag_gauge: Gauge,
}

/// Times one delivery from the start of its handler. Dropping it ends the delivery without an outcome.
pub(crate) struct DeliveryTimer<'a> {
    stats: &'a ConsumerStats,
    since: Instant,
}

impl ConsumerStats {
    fn new(consumer: &str) -> Self {
        let label = || consumer.to_owned();
        let count = |name| Count::new(counter!(name, "consumer" => label()));
        Self {
            consumer: consumer.to_owned(),
            state: Mutex::new(ConsumerState::Waiting),
            in_flight: AtomicU64::new(0),
            in_flight_gauge: gauge!(IN_FLIGHT, "consumer" => label()),
            handled: AtomicU64::new(0),
            duplicates: count(DUPLICATES),
            failed: count(FAILED_ATTEMPTS),
            dead_letters: count(DEAD_LETTERS),
            overtaken: count(OVERTAKEN),
            failed_batches: count(FAILED_BATCHES),
            batch_error: Mutex::default(),
            purged: counter!(CLAIMS_PURGED, "consumer" => label()),
            outcomes: LABELS.map(|outcome| {
                let labels = [("consumer", label()), ("outcome", outcome.to_owned())];
                (counter!(DELIVERIES, &labels), histogram!(PROCESS_TIME, &labels))
            }),
            lag: Mutex::default(),
            lag_gauge: gauge!(LAG, "consumer" => label()),
        }
    }

    fn state(&self) -> MutexGuard<'_, ConsumerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_state(&self, state: ConsumerState) {
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

    pub(crate) fn begin_delivery(&self) -> DeliveryTimer<'_> {
        self.in_flight.fetch_add(1, Relaxed);
        self.in_flight_gauge.increment(1.0);
        DeliveryTimer { stats: self, since: Instant::now() }
    }

    /// Counts the outcome of a delivery and sets the state that it shows.
    pub(crate) fn count(&self, outcome: &DeliveryOutcome) {
        match outcome {
            DeliveryOutcome::Handled => drop(self.handled.fetch_add(1, Relaxed)),
            DeliveryOutcome::Duplicate => self.duplicates.add(1),
            DeliveryOutcome::Retried { counted: true, .. } => self.failed.add(1),
            DeliveryOutcome::DeadLettered { .. } => self.dead_letters.add(1),
            _ => {}
        }
        self.outcomes[outcome.label_index()].0.increment(1);
        self.set_state(match outcome {
            DeliveryOutcome::Unavailable => ConsumerState::DatabaseAway,
            _ => ConsumerState::Consuming,
        });
    }

    /// Counts a partition in which the broker had dropped messages before they were read.
    pub(crate) fn count_overtaken(&self, has_gap: bool) {
        self.overtaken.add(u64::from(has_gap));
    }

    pub(crate) fn count_failed_batch(&self, error: String) {
        self.failed_batches.add(1);
        *self.batch_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    pub(crate) fn add_purged(&self, claims: u64) {
        self.purged.increment(claims);
    }

    /// Sets how many messages of a partition wait at the broker. None: nothing is known of the partition.
    pub(crate) fn set_lag(&self, partition: u32, lag: Option<u64>) {
        let mut all = self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        match lag {
            Some(lag) => drop(all.insert(partition, lag)),
            None => drop(all.remove(&partition)),
        }
        self.lag_gauge.set(all.values().sum::<u64>() as f64);
    }
}

impl DeliveryTimer<'_> {
    pub(crate) fn end(self, outcome: &DeliveryOutcome) {
        self.stats.outcomes[outcome.label_index()].1.record(self.since.elapsed());
    }
}

impl Drop for DeliveryTimer<'_> {
    fn drop(&mut self) {
        self.stats.in_flight.fetch_sub(1, Relaxed);
        self.stats.in_flight_gauge.decrement(1.0);
    }
}

#[cfg(test)]
mod tests;
