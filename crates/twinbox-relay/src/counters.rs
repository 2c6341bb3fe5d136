use metrics::{Counter, Histogram, counter, histogram};
use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use twinbox_core::{Message, PublishError, count::Count};

/// What a relay has counted since it was made. Cheap to clone; goes on counting with the relay.
///
/// The same goes to whatever recorder of the `metrics` crate was installed when the relay was made, with the
/// label `destination`:
///
/// | metric | what |
/// |---|---|
/// | `messaging.client.sent.messages` | answers of the destination, by `error.type`, empty for what was taken |
/// | `twinbox.relay.lag` | seconds from publishing to the destination's acknowledgement |
/// | `twinbox.relay.duplicates` | messages that the destination had before |
/// | `twinbox.relay.parkings`, `.dead_letters`, `.unrouted` | messages put aside, given up, taken by nobody |
/// | `twinbox.relay.lease.losses` | how often another process took over, or the database was silent |
/// | `twinbox.relay.breaker` | by `state`: 1 for the one that [`Breaker`](crate::Breaker) is in |
#[derive(Debug, Clone)]
pub struct Counters(Arc<Counts>);

struct Counts {
    destination: String,
    published: Count,
    duplicates: Count,
    unexpected_duplicates: AtomicU64,
    refused: AtomicU64,
    parked: Count,
    dead: Count,
    unrouted: Count,
    lease_losses: Count,
    lag: Histogram,
    errors: Mutex<HashSet<String>>,
}

/// Names of errors that metrics tell apart.
const ERRORS_MAX: usize = 50;

impl Counters {
    pub(crate) fn new(destination: &str) -> Self {
        let count = |name: &'static str| Count::new(counter!(name, "destination" => destination.to_owned()));
        Self(Arc::new(Counts {
            published: Count::new(sent(destination, "")),
            duplicates: count("twinbox.relay.duplicates"),
            unexpected_duplicates: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            parked: count("twinbox.relay.parkings"),
            dead: count("twinbox.relay.dead_letters"),
            unrouted: count("twinbox.relay.unrouted"),
            lease_losses: count("twinbox.relay.lease.losses"),
            lag: histogram!("twinbox.relay.lag", "destination" => destination.to_owned()),
            errors: Mutex::default(),
            destination: destination.to_owned(),
        }))
    }

    /// Messages that the destination has acknowledged.
    pub fn published(&self) -> u64 {
        self.0.published.get()
    }

    /// Of those, how many the destination had before.
    pub fn duplicates(&self) -> u64 {
        self.0.duplicates.get()
    }

    /// Of those, how many nobody had sent before: two messages have one id, or the log was restored.
    pub fn unexpected_duplicates(&self) -> u64 {
        self.0.unexpected_duplicates.load(Relaxed)
    }

    /// How often the destination refused a message.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    /// How often a message was put aside.
    pub fn parked(&self) -> u64 {
        self.0.parked.get()
    }

    /// Messages that were given up.
    pub fn dead(&self) -> u64 {
        self.0.dead.get()
    }

    /// Messages that no destination takes, where that is looked for.
    pub fn unrouted(&self) -> u64 {
        self.0.unrouted.get()
    }

    /// How often the lease was lost: to another process, or because the database was silent.
    pub fn lease_losses(&self) -> u64 {
        self.0.lease_losses.get()
    }

    pub(crate) fn note_published(&self, message: &Message, duplicate: bool, repeated: bool) {
        self.0.published.add(1);
        self.0.lag.record(age(message));
        if duplicate {
            self.0.duplicates.add(1);
            self.0.unexpected_duplicates.fetch_add(u64::from(!repeated), Relaxed);
        }
    }

    /// What a destination calls its errors has no bound either: of many names the later ones are one.
    pub(crate) fn note_error(&self, error: &PublishError) {
        let mut errors = self.0.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let known = errors.contains(error.code())
            || (errors.len() < ERRORS_MAX && errors.insert(error.code().to_owned()));
        sent(&self.0.destination, if known { error.code() } else { "other" }).increment(1);
    }

    pub(crate) fn note_refused(&self) {
        self.0.refused.fetch_add(1, Relaxed);
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

/// No type of an event is a label: their number has no bound.
fn sent(destination: &str, error: &str) -> Counter {
    let labels = [("destination", destination.to_owned()), ("error.type", error.to_owned())];
    counter!("messaging.client.sent.messages", &labels)
}

fn age(message: &Message) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let published = Duration::from_micros(u64::try_from(message.time.as_micros()).unwrap_or(0));
    now.saturating_sub(published)
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").field("destination", &self.destination).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinbox_core::PublishErrorKind;

    #[test]
    fn names_of_errors_are_bounded() {
        let counters = Counters::new("d");
        for n in 0..1000 {
            counters.note_error(&PublishError::new(PublishErrorKind::RefusedForNow, format!("test.{n}")));
        }
        assert_eq!(counters.0.errors.lock().unwrap().len(), ERRORS_MAX);
    }
}
