use crate::error::Error;
use std::time::Duration;
use twinbox_core::{Destination, RetryPolicy, TypePattern, limits::bounded};
use twinbox_log::{LEASE_MIN, PAGE_MAX, POLL_IDLE, ReaderOptions, StartPosition, parking::ParkedState};

/// The options of a relay: lease, limits, retries and types of its destination.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct RelayOptions {
    pub(crate) start: StartPosition,
    pub(crate) lease: Duration,
    pub(crate) in_flight: usize,
    pub(crate) page: usize,
    pub(crate) idle_poll: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) on_exhausted: OnExhausted,
    pub(crate) rate: Option<u32>,
    pub(crate) types: Vec<TypePattern>,
    /// `None`: the relay does not look for messages that no destination takes.
    pub(crate) types_of_other_destinations: Option<Vec<TypePattern>>,
    pub(crate) dead_letter_events: bool,
}

impl RelayOptions {
    /// Returns the default options: start at the beginning of the log, a lease of 4 s, 4,000 messages in
    /// flight, [`RetryPolicy::vendor`] and then a dead letter.
    pub fn new() -> Self {
        Self {
            start: StartPosition::Beginning,
            lease: Duration::from_secs(4),
            in_flight: 4000,
            page: PAGE_MAX,
            idle_poll: POLL_IDLE,
            retry: RetryPolicy::vendor(),
            on_exhausted: OnExhausted::DeadLetter,
            rate: None,
            types: Vec::new(),
            types_of_other_destinations: None,
            dead_letter_events: false,
        }
    }

    /// Sets where a new destination starts in the log. A destination that has a cursor ignores it.
    pub fn start(self, start: StartPosition) -> Self {
        Self { start, ..self }
    }

    /// Sets how long a relay owns its destination without renewing the lease. Another relay takes over after
    /// that. At least a second.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: bounded(lease.max(LEASE_MIN)), ..self }
    }

    /// Sets how many sent messages may wait for their acknowledgement.
    pub fn in_flight(self, in_flight: usize) -> Self {
        Self { in_flight, ..self }
    }

    /// Sets when a message is retried that the destination refuses for now, and after how many attempts it is
    /// given up. Attempts do not count while the destination is down.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// Sets what happens to a message that is refused for good, or too often.
    pub fn on_exhausted(self, on_exhausted: OnExhausted) -> Self {
        Self { on_exhausted, ..self }
    }

    /// Sets whether each dead letter publishes an event [`DEAD_LETTER`](twinbox_log::DEAD_LETTER).
    ///
    /// The transaction that parks the dead letter publishes the event. The event goes to the destinations
    /// that take its type, as any other event.
    pub fn dead_letter_events(self, dead_letter_events: bool) -> Self {
        Self { dead_letter_events, ..self }
    }

    /// Limits how many new messages are sent per second. At least 1. A replay sends up to a quarter of it
    /// beside them.
    pub fn rate(self, rate: u32) -> Self {
        Self { rate: Some(rate.max(1)), ..self }
    }

    /// Sets the event types that the destination takes, as patterns. The relay skips messages of other types.
    /// Default: all types.
    pub fn types(self, types: impl IntoIterator<Item = TypePattern>) -> Self {
        Self { types: types.into_iter().collect(), ..self }
    }

    /// Sets the event types that the other destinations of this log take, as patterns.
    ///
    /// The relay then counts and reports messages that no destination takes. Call it for one relay of a log
    /// only, because each relay counts by itself.
    pub fn types_of_other_destinations(self, types: impl IntoIterator<Item = TypePattern>) -> Self {
        Self { types_of_other_destinations: Some(types.into_iter().collect()), ..self }
    }

    /// Sets how many messages one statement reads, up to [`PAGE_MAX`].
    pub fn page(self, page: usize) -> Self {
        Self { page, ..self }
    }

    /// Sets the interval at which the relay looks for messages when none came for a second: 25 ms by default.
    /// It looks for replays at this interval too, and at most once a second. For a database that sleeps while
    /// nobody asks it. The relay still renews its lease, four times in its length.
    pub fn idle_poll(self, idle_poll: Duration) -> Self {
        Self { idle_poll: bounded(idle_poll), ..self }
    }

    /// Returns the options of the reader for a destination.
    pub(crate) fn of_reader(&self, destination: &dyn Destination) -> ReaderOptions {
        ReaderOptions::new()
            .start(self.start)
            .lease(self.lease)
            .partitions(destination.partitions())
            .address(destination.address())
            .parking(true)
            .dead_letter_events(self.dead_letter_events)
            .page(self.page)
            .idle_poll(self.idle_poll)
    }

    /// Fails if the lease is too short for a destination with this publish time-out. The reader renews the
    /// lease after a quarter of it, and nothing is sent in the last `timeout` of the lease.
    pub(crate) fn check_lease(&self, timeout: Duration) -> Result<(), Error> {
        let lease = self.lease;
        if timeout >= lease * 3 / 4 { Err(Error::LeaseTooShort { lease, timeout }) } else { Ok(()) }
    }

    pub(crate) fn takes(&self, event_type: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|pattern| pattern.matches(event_type))
    }

    /// Whether no other destination takes a type. Ask only about a type that this destination does not take.
    pub(crate) fn is_unrouted(&self, event_type: &str) -> bool {
        let others = self.types_of_other_destinations.as_ref();
        others.is_some_and(|types| !types.iter().any(|pattern| pattern.matches(event_type)))
    }
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// What happens to a message that its destination refuses for good, or too often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "bin", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum OnExhausted {
    /// The message becomes a dead letter, and later messages of its key continue.
    #[default]
    DeadLetter,
    /// The message becomes a dead letter, and later messages of its key wait for an operator.
    ParkKey,
    /// The message becomes a dead letter, and the whole destination waits for an operator.
    Block,
}

impl OnExhausted {
    pub(crate) fn parked(self) -> ParkedState {
        match self {
            Self::DeadLetter => ParkedState::Dead,
            Self::ParkKey => ParkedState::DeadHoldingKey,
            Self::Block => ParkedState::Blocking,
        }
    }
}
