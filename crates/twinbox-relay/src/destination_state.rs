//! The state of a destination, as a relay knows it.
use crate::{
    circuit_breaker::{CircuitBreaker, CircuitBreakerStatus},
    storm_guard::StormGuard,
    throttle::Throttle,
    type_faults::TypeFaults,
};
use twinbox_core::rate_limit::RateLimit;

/// What a relay remembers about its destination from one session to the next.
#[derive(Debug)]
pub(crate) struct DestinationState {
    pub(crate) breaker: CircuitBreaker,
    pub(crate) storm: StormGuard,
    pub(crate) throttle: Throttle,
    /// Keeps the rate that the options allow.
    pub(crate) pace: RateLimit,
    pub(crate) type_faults: TypeFaults,
}

impl DestinationState {
    pub(crate) fn new(breaker: CircuitBreakerStatus) -> Self {
        Self {
            breaker: CircuitBreaker::new(breaker),
            storm: StormGuard::default(),
            throttle: Throttle::default(),
            pace: RateLimit::default(),
            type_faults: TypeFaults::default(),
        }
    }

    pub(crate) fn note_accepted(&mut self, event_type: &str) {
        self.throttle.note_accepted();
        self.type_faults.note_accepted(event_type);
        self.storm.note_accepted(event_type);
    }
}
