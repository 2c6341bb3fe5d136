//! Pauses between tries to connect.
use std::time::Duration;

/// The longest pause that a [`Backoff`] makes between two tries. Jitter makes a single pause up to half
/// longer.
pub const INTERVAL_MAX: Duration = Duration::from_secs(5);

const FIRST: Duration = Duration::from_millis(100);
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.5;

/// Growing pauses between tries to reach a server, without an end: an outage can outlast any limit.
///
/// The algorithm is the `ExponentialBackOff` of Google's HTTP client library for Java. A pause is a random
/// duration between half of the interval and one and a half of it. Each pause makes the interval half longer,
/// from 100 ms to [`INTERVAL_MAX`].
///
/// ```
/// use std::time::Duration;
/// use twinbox_core::backoff::Backoff;
///
/// let mut pauses = Backoff::new();
/// assert!(pauses.pause() <= Duration::from_millis(150));
/// assert!(pauses.pause() <= Duration::from_millis(225));
/// pauses.reset();
/// assert!(pauses.pause() <= Duration::from_millis(150));
/// ```
#[derive(Debug)]
pub struct Backoff {
    interval: Duration,
}

impl Backoff {
    /// Creates a back-off whose pauses start at 100 ms.
    pub fn new() -> Self {
        Self { interval: FIRST }
    }

    /// Returns how long to pause before the next try.
    pub fn pause(&mut self) -> Duration {
        let pause = self.interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * fastrand::f64());
        self.interval = self.interval.mul_f64(GROWTH).min(INTERVAL_MAX);
        pause
    }

    /// Starts again with a short pause, after a try that worked.
    pub fn reset(&mut self) {
        self.interval = FIRST;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_stay_bounded_and_start_over() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..50).map(|_| backoff.pause()).collect();
        assert!(pauses[0] <= Duration::from_millis(150));
        assert!(pauses[49] >= INTERVAL_MAX / 2);
        assert!(pauses.iter().all(|p| *p <= INTERVAL_MAX * 3 / 2));
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(150));
    }

    #[test]
    fn the_interval_grows_by_half_up_to_the_maximum() {
        let mut backoff = Backoff::new();
        let mut intervals = Vec::new();
        for _ in 0..12 {
            let interval = backoff.interval;
            let pause = backoff.pause();
            assert!((interval / 2..=interval * 3 / 2).contains(&pause), "{interval:?} {pause:?}");
            intervals.push(interval.as_millis());
        }
        assert_eq!(intervals, [100, 150, 225, 337, 506, 759, 1139, 1708, 2562, 3844, 5000, 5000]);
    }

    #[test]
    fn pauses_differ() {
        let first: std::collections::HashSet<_> = (0..50).map(|_| Backoff::new().pause()).collect();
        assert!(first.len() > 40, "{first:?}");
    }
}
