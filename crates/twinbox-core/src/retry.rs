//! When to try a message again.
use std::time::Duration;

/// Delays between the attempts of one message, and after how many of them to give up.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct RetryPolicy {
    delays: Delays,
    jitter: f64,
    /// No delay is longer than this, whatever the jitter.
    ceiling: Duration,
    max_attempts: u32,
    /// All delays together.
    total: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Delays {
    Doubling { base: Duration, max: Duration },
    Listed(&'static [Duration]),
}

/// What [`RetryPolicy::vendor`] waits for.
const VENDOR: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(30)];

impl RetryPolicy {
    /// Doubling delays from `base` to `max`, each spread over [1, 1.5) times itself, without end.
    pub const fn exponential(base: Duration, max: Duration) -> Self {
        Self::new(Delays::Doubling { base, max }, 0.5)
    }

    /// 500 ms, 2 s, 5 s, 30 s, each spread over [1, 1.25) times itself: for a service that needs time.
    pub const fn vendor() -> Self {
        Self::new(Delays::Listed(&VENDOR), 0.25).max_attempts(VENDOR.len() as u32 + 1)
    }

    /// Doubling delays from 100 ms, each spread over [1, 2) times itself and at most 2 s, at most 10 s
    /// together: for somebody who waits.
    pub const fn client() -> Self {
        let max = Duration::from_secs(2);
        let policy = Self::new(Delays::Doubling { base: Duration::from_millis(100), max }, 1.0);
        Self { ceiling: max, total: Duration::from_secs(10), ..policy }
    }

    const fn new(delays: Delays, jitter: f64) -> Self {
        Self { delays, jitter, ceiling: Duration::MAX, max_attempts: u32::MAX, total: Duration::MAX }
    }

    /// The share of a delay that may be added to it: 0 for none, 1 for up to twice the delay.
    pub const fn jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// After how many attempts, the first included, there is none.
    pub const fn max_attempts(self, attempts: u32) -> Self {
        Self { max_attempts: attempts, ..self }
    }

    /// The delay after the failure of `attempt`, counted from 1. `random` is in [0, 1).
    ///
    /// Never shorter than the undisturbed delay, so that a policy is a promise to whoever is being retried.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let delay = match self.delays {
            Delays::Doubling { base, max } => {
                base.saturating_mul(1 << attempt.saturating_sub(1).min(31)).min(max)
            }
            Delays::Listed(delays) => {
                let at = usize::try_from(attempt.max(1) - 1).unwrap_or(usize::MAX);
                delays.get(at).or(delays.last()).copied().unwrap_or_default()
            }
        };
        delay.mul_f64(1.0 + self.jitter.max(0.0) * random.clamp(0.0, 1.0)).min(self.ceiling.max(delay))
    }

    /// Whether there is always another attempt.
    pub const fn is_endless(&self) -> bool {
        self.max_attempts == u32::MAX && self.total.as_nanos() == Duration::MAX.as_nanos()
    }

    /// The delay after the failure of `attempt`, unless it was the last: because there are no more, or because its delay could make
    /// all of them together too long.
    pub fn next(&self, attempt: u32, random: f64) -> Option<Duration> {
        let too_long = || {
            let mut delays = (1..=attempt).map(|n| self.delay(n, 1.0));
            let within = |sum: Duration, delay| sum.checked_add(delay).filter(|sum| *sum <= self.total);
            delays.try_fold(Duration::ZERO, within).is_none()
        };
        let ends = attempt >= self.max_attempts || (self.total < Duration::MAX && too_long());
        (!ends).then(|| self.delay(attempt, random))
    }
}

/// 100 ms, 200 ms, … up to a minute.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(100), Duration::from_secs(60))
    }
}

/// A number in [0, 1) for [`RetryPolicy::delay`], good enough to spread retries: from a random UUID.
pub fn random() -> f64 {
    let [a, b, c, d, ..] = uuid::Uuid::now_v7().as_bytes()[12..] else { return 0.0 };
    f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_and_never_overflows() {
        let policy = RetryPolicy::exponential(Duration::from_millis(100), Duration::from_secs(2));
        let delays: Vec<_> = (1..=6).map(|n| policy.delay(n, 0.0).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 2000]);
        assert_eq!(policy.delay(u32::MAX, 0.999_999), policy.delay(7, 0.999_999));
        assert_eq!(policy.delay(1, 0.5), Duration::from_millis(125));
        assert_eq!(policy.jitter(0.0).delay(1, 0.9), Duration::from_millis(100));
    }

    /// R13, D17, D18.
    #[test]
    fn the_vendor_profile() {
        let policy = RetryPolicy::vendor();
        let least: Vec<_> = (1..=5).map(|n| policy.next(n, 0.0).map(|d| d.as_millis())).collect();
        assert_eq!(least, [Some(500), Some(2000), Some(5000), Some(30_000), None]);
        let most: Vec<_> = (1..=4).map(|n| policy.next(n, 1.0).unwrap().as_millis()).collect();
        assert_eq!(most, [625, 2500, 6250, 37_500]);
        assert_eq!(policy.next(u32::MAX, 0.0), None);
    }

    /// R31, D17, D18.
    #[test]
    fn the_client_profile() {
        let policy = RetryPolicy::client();
        let range = |n| (policy.delay(n, 0.0).as_millis(), policy.delay(n, 1.0).as_millis());
        let ranges: Vec<_> = (1..=6).map(range).collect();
        assert_eq!(ranges, [(100, 200), (200, 400), (400, 800), (800, 1600), (1600, 2000), (2000, 2000)]);
        let mut together = Duration::ZERO;
        let mut attempt = 1;
        while let Some(delay) = policy.next(attempt, 1.0) {
            together += delay;
            attempt += 1;
        }
        assert_eq!((attempt, together), (8, Duration::from_secs(9)));
    }

    #[test]
    fn random_stays_in_its_range() {
        assert!((0..1000).map(|_| random()).all(|r| (0.0..1.0).contains(&r)));
    }
}
