//! A circuit breaker.
use std::time::{Duration, Instant};

/// Failures in a row that open a breaker.
pub(crate) const FAILURES_MAX: u32 = 5;
/// The shortest and the longest time that a breaker stays open. Each failed probe doubles it.
const OPEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long others wait while a probe is under way.
const PROBE_WAIT: Duration = Duration::from_secs(1);
/// When to ask again whether an isolated operation is closed.
pub(crate) const ISOLATED_WAIT: Duration = Duration::from_secs(60);

/// Stops the calls of an operation while its vendor is in trouble. Half-open, it lets one call through.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    open_for: Duration,
    /// The vendor asked for no call before this time.
    held_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// A probe is under way. It has no end if its result never comes, so it is believed only for a time.
    HalfOpen {
        since: Instant,
    },
    /// A person has opened it, and closes it.
    Isolated,
}

/// How long a probe may take before another one is let through.
const PROBE_MAX: Duration = Duration::from_secs(120);

impl Breaker {
    pub(crate) fn new() -> Self {
        Self { state: State::Closed { failures: 0 }, open_for: OPEN.0, held_until: None }
    }

    /// Lets a call through, or returns how long to wait.
    pub(crate) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        match self.state {
            State::Closed { .. } => return Ok(()),
            State::Open { until } if now < until => return Err(until - now),
            State::HalfOpen { since } if now < since + PROBE_MAX => return Err(PROBE_WAIT),
            State::Isolated => return Err(ISOLATED_WAIT),
            State::Open { .. } | State::HalfOpen { .. } => {}
        }
        self.state = State::HalfOpen { since: now };
        Ok(())
    }

    /// Takes back a call that was let through and not made.
    pub(crate) fn give_back(&mut self, now: Instant) {
        if matches!(self.state, State::HalfOpen { .. }) {
            self.state = State::Open { until: now };
        }
    }

    /// Opens it until [`close`](Self::close), whatever the vendor answers.
    pub(crate) fn isolate(&mut self) {
        self.state = State::Isolated;
    }

    /// Closes it.
    pub(crate) fn close(&mut self) {
        *self = Self::new();
    }

    /// Opens it until a time that the vendor has named.
    pub(crate) fn hold(&mut self, until: Instant) {
        self.held_until = self.held_until.max(Some(until));
        match self.state {
            State::Isolated => {}
            State::Open { until: old } if old > until => {}
            _ => self.state = State::Open { until },
        }
    }

    /// Notes an answer. Returns whether nothing is left to remember. An answer to an earlier call does not
    /// end a pause that the vendor has asked for.
    pub(crate) fn succeeded(&mut self, now: Instant) -> bool {
        let is_held = self.held_until.is_some_and(|until| until > now);
        let closes = !is_held && self.state != State::Isolated;
        if closes {
            self.close();
        }
        closes
    }

    /// Notes that the vendor is in trouble. Returns whether the breaker opened.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        let failures = match self.state {
            State::Closed { failures } => failures + 1,
            State::HalfOpen { .. } => {
                self.open_for = (self.open_for * 2).min(OPEN.1);
                FAILURES_MAX
            }
            // A call that was under way when the breaker opened.
            State::Open { .. } | State::Isolated => return false,
        };
        let opens = failures >= FAILURES_MAX;
        self.state =
            if opens { State::Open { until: now + self.open_for } } else { State::Closed { failures } };
        opens
    }

    /// Returns how long no call may be made. A probe that was let through may.
    pub(crate) fn open_for(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Open { until } => {
                Some(until.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
            }
            State::Isolated => Some(ISOLATED_WAIT),
            State::Closed { .. } | State::HalfOpen { .. } => None,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new();
        assert!((1..FAILURES_MAX).all(|_| !breaker.failed(now)));
        assert!(breaker.failed(now));
        breaker
    }

    /// R12, t27
    #[test]
    fn failures_in_a_row_open_it_and_one_probe_closes_it() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert_eq!(breaker.admit(now + OPEN.0 - MS), Err(MS));
        let later = now + OPEN.0;
        assert_eq!(breaker.admit(later), Ok(()));
        assert_eq!(breaker.admit(later), Err(PROBE_WAIT), "one probe at a time");
        breaker.succeeded(later);
        assert_eq!((breaker.admit(later), breaker.is_open()), (Ok(()), false));
    }

    #[test]
    fn a_failed_probe_doubles_the_pause_up_to_a_minute() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = breaker.admit(now).unwrap_err();
            pauses.push(pause.as_secs());
            now += pause;
            assert_eq!(breaker.admit(now), Ok(()));
            assert!(breaker.failed(now));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn a_success_in_between_starts_the_count_anew_and_a_lost_probe_is_replaced() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        for _ in 0..3 {
            assert!((1..FAILURES_MAX).all(|_| !breaker.failed(now)));
            breaker.succeeded(now);
        }
        let mut breaker = opened(now);
        let probed = now + OPEN.0;
        assert_eq!(breaker.admit(probed), Ok(()));
        assert_eq!(breaker.admit(probed + PROBE_MAX), Ok(()));
        breaker.give_back(probed);
        assert_eq!(breaker.admit(probed), Ok(()), "the probe was not made");
    }

    #[test]
    fn an_isolated_one_opens_and_closes_by_hand() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        breaker.isolate();
        assert!(!breaker.failed(now) && !breaker.succeeded(now));
        assert_eq!(breaker.admit(now + OPEN.1), Err(ISOLATED_WAIT));
        assert_eq!((breaker.open_for(now), breaker.is_open()), (Some(ISOLATED_WAIT), true));
        breaker.close();
        assert_eq!(breaker.admit(now), Ok(()));
    }

    /// R13
    #[test]
    fn an_answer_to_an_earlier_call_ends_no_pause() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        breaker.hold(now + 10 * MS);
        assert!(!breaker.succeeded(now));
        assert_eq!(breaker.admit(now), Err(10 * MS));
        assert_eq!(breaker.admit(now + 10 * MS), Ok(()));
        assert!(breaker.succeeded(now + 10 * MS) && !breaker.is_open());
    }
}
