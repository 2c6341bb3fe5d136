//! When a destination is not tried at all.
use crate::Error;
use metrics::{Gauge, gauge};
use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use twinbox_core::{PublishError, PublishErrorKind, reconnect::Reconnect};

/// Messages that may be given up in [`STORM_WINDOW`] while no other type is taken. More look like a fault of the
/// destination, or of its configuration, that would bury a whole log.
const STORM_MAX: u32 = 100;
/// Messages beyond that which are parked, in case it is their type only: what comes behind them tells.
const STORM_PARKED_MAX: u32 = 1000;
/// Types of which it is known that messages are given up.
const STORM_TYPES_MAX: usize = 100;
const STORM_WINDOW: Duration = Duration::from_secs(60);
/// An outage is reported as often as this, however often the destination comes and goes.
const ALERT_INTERVAL: Duration = Duration::from_secs(60);

/// Whether a relay tries its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Messages are sent.
    Closed,
    /// The destination is asked whether it is there. No message is at stake.
    HalfOpen,
    /// Nothing is sent, and no message is counted as failed.
    Open,
}

/// The states with their names in metrics.
const STATES: [(BreakerState, &str); 3] =
    [(BreakerState::Closed, "closed"), (BreakerState::HalfOpen, "half_open"), (BreakerState::Open, "open")];

/// What a relay's circuit breaker shows. Cheap to clone.
#[derive(Clone)]
pub struct Breaker(Arc<Shown>);

struct Shown {
    state: AtomicU8,
    gauges: [Gauge; STATES.len()],
}

impl Breaker {
    pub(crate) fn new(destination: &str) -> Self {
        let gauges = STATES.map(|(_, state)| {
            let labels = [("destination", destination.to_owned()), ("state", state.to_owned())];
            gauge!("twinbox.relay.breaker", &labels)
        });
        Self::shown_by(gauges)
    }

    /// One that no metric tells of.
    pub(crate) fn unseen() -> Self {
        Self::shown_by(STATES.map(|_| Gauge::noop()))
    }

    fn shown_by(gauges: [Gauge; STATES.len()]) -> Self {
        let breaker = Self(Arc::new(Shown { state: AtomicU8::new(0), gauges }));
        breaker.set(BreakerState::HalfOpen);
        breaker
    }

    /// Where it stands now.
    pub fn state(&self) -> BreakerState {
        STATES[usize::from(self.0.state.load(Relaxed))].0
    }

    fn set(&self, state: BreakerState) {
        self.0.state.store(state as u8, Relaxed);
        for (gauge, (other, _)) in self.0.gauges.iter().zip(STATES) {
            gauge.set(if other == state { 1.0 } else { 0.0 });
        }
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Breaker").field(&self.state()).finish()
    }
}

/// The breaker itself: opens when the destination fails, asks at growing intervals whether it is back.
#[derive(Debug)]
pub(crate) struct Circuit {
    shown: Breaker,
    pauses: Reconnect,
    pub(crate) storm: Storm,
    alerted_at: Option<Instant>,
    /// An alert is out, and nobody was told that it is over.
    alarmed: bool,
    was_there: bool,
}

impl Circuit {
    pub(crate) fn new(shown: Breaker) -> Self {
        Self {
            shown,
            pauses: Reconnect::new(),
            storm: Storm::default(),
            alerted_at: None,
            alarmed: false,
            was_there: false,
        }
    }

    /// Opens, and answers with how long until the next try.
    pub(crate) fn open(&mut self, destination: &str, error: &Error) -> Duration {
        self.shown.set(BreakerState::Open);
        let pause = self.pauses.pause();
        let cause = error as &dyn std::error::Error;
        if self.alerted_at.is_some_and(|at| at.elapsed() < ALERT_INTERVAL) {
            tracing::debug!(destination, ?pause, error = cause, "still down");
        } else {
            tracing::error!(destination, error = cause, "nothing is sent until this is over");
            (self.alerted_at, self.alarmed) = (Some(Instant::now()), true);
        }
        pause
    }

    /// Whether trying again is of no use.
    pub(crate) fn is_final(&self, error: &Error) -> bool {
        !(error.is_transient() || self.was_there && error.is_destination())
    }

    /// Another relay has the destination, and knows how it does.
    pub(crate) fn stand_by(&mut self) -> Duration {
        self.shown.set(BreakerState::Closed);
        self.pauses.pause()
    }

    /// The destination is asked.
    pub(crate) fn probe(&mut self) {
        if self.shown.state() == BreakerState::Open {
            self.shown.set(BreakerState::HalfOpen);
        }
    }

    /// The destination is there.
    pub(crate) fn close(&mut self, destination: &str) {
        self.shown.set(BreakerState::Closed);
        if !std::mem::replace(&mut self.was_there, true) {
            tracing::info!(destination, "relaying");
        }
        if std::mem::take(&mut self.alarmed) {
            tracing::info!(destination, "it is over: relaying goes on");
        }
    }

    /// The destination took something.
    pub(crate) fn delivered(&mut self) {
        self.pauses.reset();
    }
}

/// Keeps count of the messages that are given up.
#[derive(Debug, Default)]
pub(crate) struct Storm {
    since: Option<Instant>,
    dead: u32,
    /// Their types.
    types: HashSet<String>,
    /// Messages of another type were taken since: it is those types, and not the destination.
    others_taken: bool,
    parked: u32,
    /// One more was to be given up.
    exceeded: bool,
}

impl Storm {
    /// Whether one more may be given up.
    pub(crate) fn note_dead(&mut self, event_type: &str) -> Result<(), PublishError> {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since >= STORM_WINDOW) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        if self.types.len() < STORM_TYPES_MAX && !self.types.contains(event_type) {
            self.types.insert(event_type.to_owned());
        }
        if self.dead == STORM_MAX && self.others_taken {
            return Ok(());
        }
        if self.dead == STORM_MAX {
            return Err(PublishError::new(PublishErrorKind::Unavailable, "relay.storm"));
        }
        self.dead += 1;
        Ok(())
    }

    /// For how long one is parked that was not to be given up. None: it is the destination, which is not trusted.
    pub(crate) fn park(&mut self) -> Option<Duration> {
        self.exceeded = self.parked == STORM_PARKED_MAX;
        self.parked += u32::from(!self.exceeded);
        (!self.exceeded).then_some(STORM_WINDOW)
    }

    /// The destination took a message.
    pub(crate) fn note_taken(&mut self, event_type: &str) {
        if !self.types.is_empty() && !self.others_taken {
            self.others_taken = !self.types.contains(event_type);
        }
    }

    /// How long until another may be given up.
    pub(crate) fn pause(&self) -> Duration {
        match self.since {
            Some(since) if self.exceeded => STORM_WINDOW.saturating_sub(since.elapsed()),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage() -> Error {
        PublishError::new(PublishErrorKind::Unavailable, "test.down").into()
    }

    #[test]
    fn pauses_grow_until_something_is_delivered() {
        let shown = Breaker::new("d");
        let mut circuit = Circuit::new(shown.clone());
        let pauses: Vec<_> = (0..20).map(|_| circuit.open("d", &outage())).collect();
        assert!(pauses.iter().max() > Some(&(pauses[0] * 3)), "{pauses:?}");
        assert_eq!(shown.state(), BreakerState::Open);
        circuit.probe();
        assert_eq!(shown.state(), BreakerState::HalfOpen);
        circuit.close("d");
        assert_eq!(shown.state(), BreakerState::Closed);
        assert!(circuit.open("d", &outage()) > Duration::from_secs(1), "it was there and took nothing");
        circuit.delivered();
        assert!(circuit.open("d", &outage()) < Duration::from_secs(1));
    }

    #[test]
    fn a_destination_that_comes_and_goes_raises_one_alert() {
        let mut circuit = Circuit::new(Breaker::new("d"));
        circuit.open("d", &outage());
        let alerted_at = circuit.alerted_at;
        assert!(alerted_at.is_some() && circuit.alarmed);
        for _ in 0..1000 {
            circuit.probe();
            circuit.close("d");
            circuit.open("d", &outage());
        }
        assert_eq!(circuit.alerted_at, alerted_at);
        circuit.alerted_at = Instant::now().checked_sub(ALERT_INTERVAL);
        circuit.open("d", &outage());
        assert!(circuit.alerted_at > alerted_at);
    }

    #[test]
    fn a_storm_of_dead_letters_stops() {
        let mut storm = Storm::default();
        for _ in 0..STORM_MAX {
            storm.note_dead("a").unwrap();
        }
        storm.note_taken("a");
        assert_eq!(storm.note_dead("a").unwrap_err().code(), "relay.storm");
        assert_eq!(storm.pause(), Duration::ZERO, "what comes behind them may be taken");
        while storm.park().is_some() {}
        assert_eq!(storm.parked, STORM_PARKED_MAX);
        assert!(storm.pause() > Duration::from_secs(59));
        storm.since = Instant::now().checked_sub(STORM_WINDOW);
        assert_eq!(storm.pause(), Duration::ZERO);
        storm.note_dead("a").unwrap();
    }

    #[test]
    fn a_type_that_is_given_up_beside_others_that_are_taken_is_no_storm() {
        let mut storm = Storm::default();
        for _ in 0..3 * STORM_MAX {
            storm.note_dead("a").unwrap();
            storm.note_taken("b");
        }
        assert_eq!(storm.pause(), Duration::ZERO);
    }
}
