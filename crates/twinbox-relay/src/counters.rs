use crate::metrics::{
    DEAD_LETTERS, DUPLICATES, LAG, LEASE_LOSSES, Metric, PARKINGS, PUBLISH_RESULTS, UNROUTED_MESSAGES,
};
use metrics::{Counter, Histogram, counter, histogram};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use twinbox_core::{Message, PublishError, PublishErrorKind, count::Count, labels::BoundedLabel};

/// Error codes that get a label of their own. A destination may use any number of codes.
const ERROR_CODES_MAX: usize = 50;

/// The counters of one relay since it was created. Cheap to clone; a clone counts on with the relay.
///
/// The relay gives the same numbers to the recorder of the `metrics` crate that was installed when the relay
/// was made. Each metric has the label `destination`:
///
/// | metric | description |
/// |---|---|
/// | `twinbox_relay_publish_results_total` | publishes by `error_type`; empty: accepted |
/// | `twinbox_relay_lag_seconds` | time from publishing a message to the destination's acknowledgement |
/// | `twinbox_relay_duplicates_total` | accepted messages that the destination already had |
/// | `twinbox_relay_parkings_total` | messages that were parked |
/// | `twinbox_relay_dead_letters_total` | messages that became dead letters |
/// | `twinbox_relay_unrouted_messages_total` | messages that no destination takes |
/// | `twinbox_relay_lease_losses_total` | lost leases, see [`lease_losses`](Self::lease_losses) |
/// | `twinbox_relay_circuit_breaker` | 1 for the current `state` of the circuit breaker, else 0 |
#[derive(Debug, Clone)]
pub struct Counters(Arc<Counts>);

struct Counts {
    destination: String,
    published: Count,
    duplicates: Count,
    renamed: AtomicU64,
    refused: AtomicU64,
    parked: Count,
    dead: Count,
    unrouted: Count,
    lease_losses: Count,
    lag: Histogram,
    error_codes: BoundedLabel,
}

impl Counters {
    pub(crate) fn new(destination: &str) -> Self {
        let count =
            |metric: Metric| Count::new(counter!(metric.name, "destination" => destination.to_owned()));
        Self(Arc::new(Counts {
            published: Count::new(publish_results(destination, "")),
            duplicates: count(DUPLICATES),
            renamed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            parked: count(PARKINGS),
            dead: count(DEAD_LETTERS),
            unrouted: count(UNROUTED_MESSAGES),
            lease_losses: count(LEASE_LOSSES),
            lag: histogram!(LAG.name, "destination" => destination.to_owned()),
            error_codes: BoundedLabel::new(ERROR_CODES_MAX),
            destination: destination.to_owned(),
        }))
    }

    /// Returns how many messages the destination acknowledged.
    pub fn published(&self) -> u64 {
        self.0.published.get()
    }

    /// Returns how many acknowledged messages the destination already had.
    pub fn duplicates(&self) -> u64 {
        self.0.duplicates.get()
    }

    /// Returns how many messages were sent again under another name, because the destination had another
    /// message under theirs.
    pub fn renamed(&self) -> u64 {
        self.0.renamed.load(Relaxed)
    }

    /// Returns how often the destination refused a message.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    /// Returns how often a message was parked.
    pub fn parked(&self) -> u64 {
        self.0.parked.get()
    }

    /// Returns how many messages became dead letters.
    pub fn dead_letters(&self) -> u64 {
        self.0.dead.get()
    }

    /// Returns how many messages had a type that no destination takes. Always 0 without
    /// [`types_of_other_destinations`](crate::RelayOptions::types_of_other_destinations).
    pub fn unrouted(&self) -> u64 {
        self.0.unrouted.get()
    }

    /// Returns how often the relay lost its lease on the destination. Another process took it, or the
    /// database did not respond.
    pub fn lease_losses(&self) -> u64 {
        self.0.lease_losses.get()
    }

    pub(crate) fn note_published(&self, message: &Message, is_duplicate: bool, now: SystemTime) {
        self.0.published.add(1);
        self.0.lag.record(age(message, now));
        if is_duplicate {
            self.0.duplicates.add(1);
        }
    }

    pub(crate) fn note_failure(&self, error: &PublishError) {
        use PublishErrorKind as K;
        if matches!(error.kind(), K::RefusedForNow | K::RefusedForGood | K::Unroutable) {
            self.0.refused.fetch_add(1, Relaxed);
        }
        if error.kind() == K::NameTaken {
            self.0.renamed.fetch_add(1, Relaxed);
        }
        publish_results(&self.0.destination, self.0.error_codes.of(error.code())).increment(1);
    }

    pub(crate) fn note_parked(&self) {
        self.0.parked.add(1);
    }

    pub(crate) fn note_unrouted(&self) {
        self.0.unrouted.add(1);
    }

    pub(crate) fn note_dead(&self) {
        self.0.dead.add(1);
    }

    pub(crate) fn note_lease_lost(&self) {
        self.0.lease_losses.add(1);
    }
}

/// The event type is no label, because the number of types has no bound.
fn publish_results(destination: &str, error: &str) -> Counter {
    let labels = [("destination", destination.to_owned()), ("error_type", error.to_owned())];
    counter!(PUBLISH_RESULTS.name, &labels)
}

fn age(message: &Message, now: SystemTime) -> Duration {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let published = Duration::from_micros(u64::try_from(message.time.as_micros()).unwrap_or(0));
    now.saturating_sub(published)
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts")
            .field("destination", &self.destination)
            .field("published", &self.published.get())
            .field("error_codes", &self.error_codes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_error_labels_is_bounded() {
        let counters = Counters::new("d");
        for n in 0..1000 {
            counters.note_failure(&PublishError::new(PublishErrorKind::RefusedForNow, format!("test.{n}")));
        }
        let label = |code| counters.0.error_codes.of(code);
        assert_eq!((label("test.49"), label("test.50")), ("test.49", "other"));
        assert_eq!(counters.refused(), 1000);
    }
}
