use super::*;
use crate::{circuit_breaker::CircuitBreakerStatus, options::OnExhausted};
use twinbox_core::{
    Message, RetryPolicy, Timestamp,
    lanes::{Budget, Lanes},
};

fn entry() -> Entry {
    let message = Message {
        id: "o-1".into(),
        source: "orders".into(),
        event_type: "orders.placed".into(),
        version: 1,
        key: None,
        subject: None,
        time: Timestamp::from_micros(0),
        sequence: None,
        correlation_id: None,
        causation_id: None,
        traceparent: None,
        content_type: "application/json".into(),
        headers: Vec::new(),
        payload: "{}".into(),
    };
    let mut lanes = Lanes::new(0);
    lanes.push(Box::new(message), 1, false);
    lanes.take(Budget { messages: 1, bytes: usize::MAX }).remove(0)
}

struct Case {
    options: RelayOptions,
    in_flight: InFlight,
    state: DestinationState,
}

impl Case {
    fn new(options: RelayOptions) -> Self {
        let state = DestinationState::new(CircuitBreakerStatus::without_metrics());
        Self { options, in_flight: InFlight::new(100), state }
    }

    fn decide(&mut self, error: &PublishError, attempt: u32) -> Decision {
        let mut entry = entry();
        entry.ticket.attempt = attempt;
        let sent = SendMark { at: Instant::now(), number: 1 };
        let failed = FailedPublish { destination: "d", entry: &entry, error };
        failed.decide(sent, &self.options, &mut self.in_flight, &mut self.state)
    }
}

fn error(kind: K) -> PublishError {
    PublishError::new(kind, "test")
}

/// Else the relay would take it for published, and the inbox of a consumer would never see it.
#[test]
fn a_name_that_another_message_has_is_no_proof() {
    let mut case = Case::new(RelayOptions::new());
    assert_eq!(case.decide(&error(K::NameTaken), 1), Decision::Rename);
    assert_eq!(case.decide(&error(K::InProcess), 1), Decision::InProcess);
}

#[test]
fn a_destination_that_is_down_is_no_fault_of_the_message() {
    let mut case = Case::new(RelayOptions::new());
    for kind in [K::Unavailable, K::InDoubt, K::Misconfigured] {
        assert_eq!(case.decide(&error(kind), 1), Decision::DestinationDown, "{kind:?}");
    }
    assert_eq!(case.decide(&error(K::Unanswered), 1), Decision::CheckHealth);
    let throttled = error(K::Throttled).with_retry_after(Duration::from_secs(7));
    let later = Decision::Retry { delay: Duration::from_secs(7), counted: false };
    assert_eq!(case.decide(&throttled, 1), later);
}

#[test]
fn a_refused_message_is_retried_in_place_then_parked_then_given_up() {
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let policy = RetryPolicy::exponential(second, minute).jitter(0.0).max_attempts(3);
    let mut case = Case::new(RelayOptions::new().retry(policy).on_exhausted(OnExhausted::Block));
    let decisions = [1, 2, 3].map(|attempt| case.decide(&error(K::RefusedForNow), attempt));
    assert_eq!(
        decisions,
        [
            Decision::Retry { delay: second, counted: true },
            Decision::Park { parked: ParkedState::Waiting(2 * second), attempts: 2 },
            Decision::Park { parked: ParkedState::Blocking, attempts: 3 },
        ]
    );
    let for_good = case.decide(&error(K::RefusedForGood), 1);
    assert_eq!(for_good, Decision::Park { parked: ParkedState::Blocking, attempts: 1 });
}

#[test]
fn a_missing_home_and_a_storm_count_no_attempt() {
    let mut case = Case::new(RelayOptions::new());
    let parked = ParkedState::Waiting(Duration::from_secs(5));
    assert_eq!(case.decide(&error(K::Unroutable), 1), Decision::Park { parked, attempts: 0 });

    let dead_letter = Decision::Park { parked: ParkedState::Dead, attempts: 1 };
    let decisions: Vec<_> = (0..2000).map(|_| case.decide(&error(K::RefusedForGood), 1)).collect();
    let dead_letters = decisions.iter().take_while(|decision| **decision == dead_letter).count();
    let parked = ParkedState::Waiting(Duration::from_secs(60));
    assert_eq!(decisions[dead_letters], Decision::Park { parked, attempts: 0 });
    assert_eq!(decisions.last(), Some(&Decision::Storm));
}
