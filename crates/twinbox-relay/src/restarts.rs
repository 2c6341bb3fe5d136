//! Delays before a worker of the program starts again.
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder, backoff::Backoff as _};
use std::time::{Duration, Instant};

/// The delay after the first failure. Each start asks database and destination anew.
const DELAY_MIN: Duration = Duration::from_secs(1);
/// The longest delay, give or take the jitter of a half.
const DELAY_MAX: Duration = Duration::from_secs(30);
/// A worker that ran for this long had recovered from its earlier failure.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// The restarts of one worker: the delays double from failure to failure.
pub(crate) struct Restarts {
    delays: ExponentialBackoff,
    started_at: Instant,
}

impl Restarts {
    /// Makes the restarts of a worker that starts now.
    pub(crate) fn new(now: Instant) -> Self {
        let delays = ExponentialBackoffBuilder::new()
            .with_initial_interval(DELAY_MIN)
            .with_max_interval(DELAY_MAX)
            .with_multiplier(2.0)
            .with_randomization_factor(0.5)
            .with_max_elapsed_time(None)
            .build();
        Self { delays, started_at: now }
    }

    /// Returns how long the worker waits that stopped with an error now.
    pub(crate) fn next_delay(&mut self, now: Instant) -> Duration {
        if now.duration_since(self.started_at) >= HEALTHY_AFTER {
            self.delays.reset();
        }
        let delay = self.delays.next_backoff().unwrap_or(DELAY_MAX);
        self.started_at = now + delay;
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_maximum_and_a_healthy_run_ends_that() {
        let mut now = Instant::now();
        let mut restarts = Restarts::new(now);
        let delays = Vec::from_iter((0..12).map(|_| {
            let delay = restarts.next_delay(now);
            now += delay;
            delay
        }));
        assert!(delays[0] <= DELAY_MIN.mul_f64(1.5), "{delays:?}");
        assert!(delays.iter().all(|delay| *delay <= DELAY_MAX.mul_f64(1.5)), "{delays:?}");
        assert!(delays[8..].iter().all(|delay| *delay >= DELAY_MAX.mul_f64(0.5)), "{delays:?}");
        now += HEALTHY_AFTER;
        assert!(restarts.next_delay(now) <= DELAY_MIN.mul_f64(1.5));
    }
}
