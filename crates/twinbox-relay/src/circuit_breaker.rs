//! The circuit breaker: stops sending while the destination is down.
use crate::{error::Error, metrics::CIRCUIT_BREAKER};
use metrics::{Gauge, gauge};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use twinbox_core::backoff::Backoff;

/// The shortest time between two alerts of one destination, even if the destination comes and goes.
const ALERT_INTERVAL: Duration = Duration::from_secs(60);

/// The state of a relay's circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CircuitBreakerState {
    /// The relay sends messages.
    Closed,
    /// The relay asks the destination for its health. It sends no message for that.
    HalfOpen,
    /// The relay sends nothing and counts no attempt.
    Open,
}

/// The states with their names in metrics, in the order of the discriminants.
const STATES: [(CircuitBreakerState, &str); 3] = [
    (CircuitBreakerState::Closed, "closed"),
    (CircuitBreakerState::HalfOpen, "half_open"),
    (CircuitBreakerState::Open, "open"),
];

/// A handle that shows the state of a relay's circuit breaker. Cheap to clone.
///
/// The breaker opens by itself when the destination is down, and closes when it is back.
#[derive(Clone)]
pub struct CircuitBreakerStatus(Arc<Shared>);

struct Shared {
    state: AtomicU8,
    gauges: [Gauge; STATES.len()],
}

impl CircuitBreakerStatus {
    pub(crate) fn new(destination: &str) -> Self {
        let gauges = STATES.map(|(_, state)| {
            let labels = [("destination", destination.to_owned()), ("state", state.to_owned())];
            gauge!(CIRCUIT_BREAKER.name, &labels)
        });
        Self::with_gauges(gauges)
    }

    /// Makes a breaker without metrics.
    pub(crate) fn without_metrics() -> Self {
        Self::with_gauges(STATES.map(|_| Gauge::noop()))
    }

    fn with_gauges(gauges: [Gauge; STATES.len()]) -> Self {
        let breaker = Self(Arc::new(Shared { state: AtomicU8::new(0), gauges }));
        breaker.set(CircuitBreakerState::HalfOpen);
        breaker
    }

    /// Returns the current state of the circuit breaker.
    pub fn state(&self) -> CircuitBreakerState {
        STATES[usize::from(self.0.state.load(Relaxed))].0
    }

    fn set(&self, state: CircuitBreakerState) {
        self.0.state.store(state as u8, Relaxed);
        for (gauge, (other, _)) in self.0.gauges.iter().zip(STATES) {
            gauge.set(if other == state { 1.0 } else { 0.0 });
        }
    }
}

impl fmt::Debug for CircuitBreakerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CircuitBreakerStatus").field(&self.state()).finish()
    }
}

/// Opens when the destination fails, and tells how long to wait before the next connection.
#[derive(Debug)]
pub(crate) struct CircuitBreaker {
    status: CircuitBreakerStatus,
    back_off: Backoff,
    alerted_at: Option<Instant>,
    /// An alert was logged, and its end was not.
    has_open_alert: bool,
    has_ever_closed: bool,
}

impl CircuitBreaker {
    pub(crate) fn new(status: CircuitBreakerStatus) -> Self {
        Self {
            status,
            back_off: Backoff::new(),
            alerted_at: None,
            has_open_alert: false,
            has_ever_closed: false,
        }
    }

    /// Opens the breaker. Returns how long to wait before the next connection.
    pub(crate) fn open(&mut self, destination: &str, error: &Error) -> Duration {
        self.status.set(CircuitBreakerState::Open);
        let pause = self.back_off.pause();
        let cause = error as &dyn std::error::Error;
        if self.alerted_at.is_some_and(|at| at.elapsed() < ALERT_INTERVAL) {
            tracing::debug!(destination, ?pause, error = cause, "the destination is still down");
        } else {
            tracing::error!(
                destination,
                error = cause,
                "the circuit breaker is open: the relay sends nothing to the destination"
            );
            (self.alerted_at, self.has_open_alert) = (Some(Instant::now()), true);
        }
        pause
    }

    /// Whether an error needs a person. An error of a destination that worked before is an outage.
    pub(crate) fn is_final(&self, error: &Error) -> bool {
        !(error.is_transient() || self.has_ever_closed && error.is_destination_failure())
    }

    /// Closes the breaker while another relay owns the destination. Returns how long to wait before the next
    /// look.
    pub(crate) fn stand_by(&mut self) -> Duration {
        self.status.set(CircuitBreakerState::Closed);
        self.back_off.pause()
    }

    /// Notes that the relay connects to the destination.
    pub(crate) fn probe(&mut self) {
        if self.status.state() == CircuitBreakerState::Open {
            self.status.set(CircuitBreakerState::HalfOpen);
        }
    }

    /// Closes the breaker, because the destination is there.
    pub(crate) fn close(&mut self, destination: &str) {
        self.status.set(CircuitBreakerState::Closed);
        if !std::mem::replace(&mut self.has_ever_closed, true) {
            tracing::info!(destination, "the relay sends to the destination");
        }
        if std::mem::take(&mut self.has_open_alert) {
            tracing::info!(destination, "the circuit breaker is closed: the relay sends again");
        }
    }

    /// Starts the back-off anew, because the destination gave a result for a message.
    pub(crate) fn note_result(&mut self) {
        self.back_off.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinbox_core::{PublishError, PublishErrorKind};

    fn outage() -> Error {
        PublishError::new(PublishErrorKind::Unavailable, "test.down").into()
    }

    #[test]
    fn the_back_off_grows_until_the_destination_gives_a_result() {
        let status = CircuitBreakerStatus::new("d");
        let mut breaker = CircuitBreaker::new(status.clone());
        let pauses: Vec<_> = (0..20).map(|_| breaker.open("d", &outage())).collect();
        assert!(pauses.iter().max() > Some(&(pauses[0] * 3)), "{pauses:?}");
        assert_eq!(status.state(), CircuitBreakerState::Open);
        breaker.probe();
        assert_eq!(status.state(), CircuitBreakerState::HalfOpen);
        breaker.close("d");
        assert_eq!(status.state(), CircuitBreakerState::Closed);
        assert!(breaker.open("d", &outage()) > Duration::from_secs(1), "it was there and accepted nothing");
        breaker.note_result();
        assert!(breaker.open("d", &outage()) < Duration::from_secs(1));
    }

    #[test]
    fn a_destination_that_comes_and_goes_raises_one_alert() {
        let mut breaker = CircuitBreaker::new(CircuitBreakerStatus::new("d"));
        breaker.open("d", &outage());
        let alerted_at = breaker.alerted_at;
        assert!(alerted_at.is_some() && breaker.has_open_alert);
        for _ in 0..1000 {
            breaker.probe();
            breaker.close("d");
            breaker.open("d", &outage());
        }
        assert_eq!(breaker.alerted_at, alerted_at);
        breaker.alerted_at = Instant::now().checked_sub(ALERT_INTERVAL);
        breaker.open("d", &outage());
        assert!(breaker.alerted_at > alerted_at);
    }
}
