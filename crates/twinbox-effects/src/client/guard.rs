//! Admission of calls to one vendor.
use super::breaker::Breaker;
use crate::vendor::{Certainty, ErrorCode, VendorError};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};
use tower::retry::budget::{Budget as _, TpsBudget};

/// Operations in trouble that have a breaker of their own. The others share one.
const OPERATIONS_MAX: usize = 1000;
/// The operation of the shared breaker.
const OTHERS: &str = "";
/// How long calls count for the budget of retries, how many retries a second are always allowed, and which
/// share of the calls may be retries beyond that.
const BUDGET: (Duration, u32, f32) = (Duration::from_secs(10), 10, 0.2);
/// How long a retry waits that finds the budget empty.
const BUDGET_WAIT: Duration = Duration::from_secs(1);

/// Why no call may be made now, and how long to wait. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) wait: Duration,
}

/// Admits the calls to one vendor.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Of the operations in trouble: one that is not here is fine.
    breakers: HashMap<String, Breaker>,
    /// Whether a pause that the vendor asks for holds for all operations.
    pauses_as_one: bool,
    /// The rate gate: no call before this time.
    closed_until: Option<Instant>,
    budget: TpsBudget,
}

impl Guard {
    pub(crate) fn new(pauses_as_one: bool) -> Self {
        let (ttl, retries_a_second, share) = BUDGET;
        Self {
            breakers: HashMap::new(),
            pauses_as_one,
            closed_until: None,
            budget: TpsBudget::new(ttl, retries_a_second, share),
        }
    }

    fn name<'a>(&self, operation: &'a str) -> &'a str {
        let is_own = self.breakers.contains_key(operation) || self.breakers.len() < OPERATIONS_MAX;
        if is_own { operation } else { OTHERS }
    }

    fn breaker(&mut self, operation: &str) -> &mut Breaker {
        self.breakers.entry(self.name(operation).to_owned()).or_insert_with(Breaker::new)
    }

    /// The breaker of an operation in trouble.
    fn troubled(&mut self, operation: &str) -> Option<&mut Breaker> {
        self.breakers.get_mut(self.name(operation))
    }

    /// Returns how long the rate gate is closed.
    pub(crate) fn closed_for(&self, now: Instant) -> Option<Duration> {
        self.closed_until.map(|until| until.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Closes the rate gate for a time, unless it is closed for longer.
    pub(crate) fn close(&mut self, now: Instant, wait: Duration) {
        let until = after(now, wait);
        self.closed_until = Some(self.closed_until.map_or(until, |old| old.max(until)));
    }

    /// Opens the rate gate before its time.
    pub(crate) fn reopen(&mut self) {
        self.closed_until = None;
    }

    /// Admits a call of an operation: gate, then breaker, then budget.
    pub(crate) fn admit(&mut self, operation: &str, is_retry: bool, now: Instant) -> Result<(), Refusal> {
        if let Some(wait) = self.closed_for(now) {
            return Err(Refusal { code: ErrorCode::RateLimited, wait });
        }
        if let Some(breaker) = self.troubled(operation) {
            breaker.admit(now).map_err(|wait| Refusal { code: ErrorCode::CircuitOpen, wait })?;
        }
        if is_retry && !self.budget.withdraw() {
            self.give_back(operation, now);
            return Err(Refusal { code: ErrorCode::Unavailable, wait: BUDGET_WAIT });
        }
        if !is_retry {
            self.budget.deposit();
        }
        Ok(())
    }

    /// Whether a call that was admitted earlier must not be made any more.
    pub(crate) fn refuses(&self, operation: &str, now: Instant) -> Option<Refusal> {
        if let Some(wait) = self.closed_for(now) {
            return Some(Refusal { code: ErrorCode::RateLimited, wait });
        }
        let breaker = self.breakers.get(self.name(operation))?;
        breaker.open_for(now).map(|wait| Refusal { code: ErrorCode::CircuitOpen, wait })
    }

    /// Takes back a call that was admitted and not made.
    pub(crate) fn give_back(&mut self, operation: &str, now: Instant) {
        if let Some(breaker) = self.troubled(operation) {
            breaker.give_back(now);
        }
    }

    /// Opens the breaker of an operation by hand.
    pub(crate) fn isolate(&mut self, operation: &str) {
        self.breaker(operation).isolate();
    }

    /// Closes the breaker of an operation by hand.
    pub(crate) fn close_breaker(&mut self, operation: &str) {
        self.breakers.remove(self.name(operation));
    }

    /// Notes the result of a call. Returns whether its breaker opened.
    pub(crate) fn note(&mut self, operation: &str, error: Option<&VendorError>, now: Instant) -> bool {
        let pause = error.and_then(gate);
        if let Some(wait) = pause.filter(|_| self.pauses_as_one) {
            self.close(now, wait);
        }
        let opened = match error {
            Some(error) if error.is_trouble() => self.breaker(operation).failed(now),
            // Nothing was sent, so nothing is known about the vendor.
            Some(error) if error.certainty() == Certainty::NotSent => {
                self.give_back(operation, now);
                false
            }
            _ => {
                if self.troubled(operation).is_some_and(|breaker| breaker.succeeded(now)) {
                    self.close_breaker(operation);
                }
                false
            }
        };
        if let Some(wait) = pause.filter(|wait| !self.pauses_as_one && !wait.is_zero()) {
            self.breaker(operation).hold(after(now, wait));
        }
        opened
    }

    /// Returns how many breakers are open or half-open.
    pub(crate) fn open_breakers(&self) -> usize {
        self.breakers.values().filter(|breaker| breaker.is_open()).count()
    }
}

fn after(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or(now + Duration::from_secs(365 * 24 * 3600))
}

/// How long an error closes the vendor for all calls: when it asks for a pause because it is overloaded.
pub(crate) fn gate(error: &VendorError) -> Option<Duration> {
    matches!(error.code(), ErrorCode::RateLimited | ErrorCode::Unavailable)
        .then(|| error.earliest_retry())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::breaker::FAILURES_MAX;

    fn limited(seconds: u64) -> VendorError {
        let error = VendorError::not_applied(ErrorCode::RateLimited, "too many calls");
        error.retry_after(Some(Duration::from_secs(seconds)))
    }

    /// R13, t27
    #[test]
    fn too_many_calls_close_the_gate_and_not_the_breaker() {
        let (mut guard, now) = (Guard::new(true), Instant::now());
        for _ in 0..FAILURES_MAX * 2 {
            guard.note("mail", Some(&limited(3)), now);
        }
        guard.note("mail", Some(&limited(1)), now);
        let early = now + Duration::from_millis(2999);
        let refusal = guard.admit("sms", false, early).unwrap_err();
        assert_eq!(refusal, Refusal { code: ErrorCode::RateLimited, wait: Duration::from_millis(1) });
        assert_eq!(guard.admit("mail", false, now + Duration::from_secs(3)), Ok(()));
        assert_eq!(guard.open_breakers(), 0);
    }

    #[test]
    fn each_operation_has_a_breaker_of_its_own() {
        let (mut guard, now) = (Guard::new(true), Instant::now());
        for _ in 0..FAILURES_MAX {
            guard.note("mail", Some(&VendorError::maybe_applied(ErrorCode::Timeout, "")), now);
        }
        assert_eq!(guard.admit("mail", false, now).unwrap_err().code, ErrorCode::CircuitOpen);
        assert_eq!(guard.admit("sms", false, now), Ok(()));
        for _ in 0..FAILURES_MAX * 2 {
            guard.note("sms", Some(&VendorError::not_applied(ErrorCode::Validation, "")), now);
        }
        assert_eq!(guard.admit("sms", false, now), Ok(()), "a refusal is an answer");
    }

    #[test]
    fn a_receiver_that_asks_for_a_pause_gets_it_alone() {
        let (mut guard, now) = (Guard::new(false), Instant::now());
        guard.note("ep_1", Some(&limited(3)), now);
        assert_eq!(guard.admit("ep_2", false, now), Ok(()));
        let early = now + Duration::from_millis(2999);
        assert_eq!(guard.admit("ep_1", false, early).unwrap_err().wait, Duration::from_millis(1));
        assert_eq!(guard.admit("ep_1", false, now + Duration::from_secs(3)), Ok(()));
    }

    #[test]
    fn many_operations_that_are_fine_leave_room_for_one_in_trouble() {
        let (mut guard, now) = (Guard::new(true), Instant::now());
        let down = VendorError::maybe_applied(ErrorCode::Timeout, "");
        for n in 0..OPERATIONS_MAX * 2 {
            assert_eq!(guard.admit(&format!("fine_{n}"), false, now), Ok(()));
            guard.note(&format!("fine_{n}"), None, now);
            guard.note(&format!("troubled_{n}"), Some(&down), now);
            guard.note(&format!("troubled_{n}"), None, now);
        }
        assert!(guard.breakers.is_empty());
        for n in 0..OPERATIONS_MAX * 2 {
            (0..FAILURES_MAX).for_each(|_| _ = guard.note(&format!("down_{n}"), Some(&down), now));
        }
        assert!(guard.breakers.len() <= OPERATIONS_MAX + 1);
        assert_eq!(guard.admit("down_0", false, now).unwrap_err().code, ErrorCode::CircuitOpen);
    }

    #[test]
    fn retries_have_a_budget() {
        let (mut guard, now) = (Guard::new(true), Instant::now());
        let allowed = (0..1000).filter(|_| guard.admit("mail", true, now).is_ok()).count();
        assert!((1..=200).contains(&allowed), "{allowed}");
        assert_eq!(guard.admit("mail", true, now).unwrap_err().wait, BUDGET_WAIT);
        assert_eq!(guard.admit("mail", false, now), Ok(()), "a first call needs no budget");
    }
}
