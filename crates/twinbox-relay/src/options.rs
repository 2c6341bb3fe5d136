use std::time::Duration;
use twinbox_core::{RetryPolicy, TypePattern};
use twinbox_sql::log::{Parked, Start};

/// How a relay treats its destination.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct RelayOptions {
    pub(crate) start: Start,
    pub(crate) lease: Duration,
    pub(crate) in_flight: usize,
    pub(crate) page: usize,
    pub(crate) retry: RetryPolicy,
    pub(crate) on_exhausted: OnExhausted,
    pub(crate) rate: Option<u32>,
    pub(crate) types: Vec<TypePattern>,
    pub(crate) elsewhere: Option<Vec<TypePattern>>,
    pub(crate) dead_letter_events: bool,
}

impl RelayOptions {
    /// From the beginning of the log, a lease of 4 s, 2,000 messages on their way, [`RetryPolicy::vendor`] and
    /// then a dead letter.
    pub fn new() -> Self {
        Self {
            start: Start::Beginning,
            lease: Duration::from_secs(4),
            in_flight: 2000,
            page: twinbox_sql::log::PAGE_MAX,
            retry: RetryPolicy::vendor(),
            on_exhausted: OnExhausted::DeadLetter,
            rate: None,
            types: Vec::new(),
            elsewhere: None,
            dead_letter_events: false,
        }
    }

    /// Where a destination starts that was never published to.
    pub fn start(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// For how long a relay that is not heard of keeps others out.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Messages that are sent and not yet acknowledged, at most.
    pub fn in_flight(self, in_flight: usize) -> Self {
        Self { in_flight, ..self }
    }

    /// When a message that the destination refuses for now is tried again, and after how many attempts it is
    /// given up. Attempts that fail because the destination is down do not count.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// What becomes of a message that is given up.
    pub fn on_exhausted(self, on_exhausted: OnExhausted) -> Self {
        Self { on_exhausted, ..self }
    }

    /// Publishes an event [`DEAD_LETTER`](twinbox_sql::log::DEAD_LETTER) for each message that is given up, in the
    /// transaction that puts it aside. It goes where its type is taken, like any other.
    pub fn dead_letter_events(self, dead_letter_events: bool) -> Self {
        Self { dead_letter_events, ..self }
    }

    /// Messages a second, at most.
    pub fn rate(self, rate: u32) -> Self {
        Self { rate: Some(rate.max(1)), ..self }
    }

    /// The types that the destination takes; others are passed by. Default: all.
    pub fn types(self, types: impl IntoIterator<Item = TypePattern>) -> Self {
        Self { types: types.into_iter().collect(), ..self }
    }

    /// The types that other destinations of this log take. With it messages that nobody takes are counted and
    /// reported: give it to one relay of a log.
    pub fn elsewhere(self, types: impl IntoIterator<Item = TypePattern>) -> Self {
        Self { elsewhere: Some(types.into_iter().collect()), ..self }
    }

    pub(crate) fn takes(&self, event_type: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|pattern| pattern.matches(event_type))
    }

    /// Whether neither this destination nor another takes the type.
    pub(crate) fn is_unrouted(&self, event_type: &str) -> bool {
        let elsewhere = self.elsewhere.as_ref();
        elsewhere.is_some_and(|types| !types.iter().any(|pattern| pattern.matches(event_type)))
    }

    /// Messages that are read in one statement, at most.
    pub fn page(self, page: usize) -> Self {
        Self { page, ..self }
    }
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// What becomes of a message that its destination refuses for good, or too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnExhausted {
    /// It stays in the log as a dead letter, and later messages of its key go on.
    DeadLetter,
    /// The same, and later messages of its key wait until somebody decides.
    ParkKey,
    /// The same, and the whole destination waits until somebody decides.
    Block,
}

impl OnExhausted {
    pub(crate) fn parked(self) -> Parked {
        match self {
            Self::DeadLetter => Parked::Dead,
            Self::ParkKey => Parked::DeadHoldingKey,
            Self::Block => Parked::Blocking,
        }
    }
}
