//! Delays between the attempts of one message.
use crate::limits::bounded;
use std::time::Duration;

/// The delays between the attempts of one message, and when to give up.
///
/// ```
/// use std::time::Duration;
/// use twinbox_core::RetryPolicy;
///
/// const PATIENT: RetryPolicy =
///     RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(60)).jitter(0.0).max_attempts(3);
///
/// assert_eq!(PATIENT.next(1, 0.0), Some(Duration::from_secs(1)));
/// assert_eq!(PATIENT.next(2, 0.0), Some(Duration::from_secs(2)));
/// assert_eq!(PATIENT.next(3, 0.0), None, "the third attempt is the last");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct RetryPolicy {
    delays: Delays,
    jitter: f64,
    /// Jitter makes no delay longer than this.
    ceiling: Duration,
    max_attempts: u32,
    /// The bound of the sum of all delays.
    total: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Delays {
    Doubling { base: Duration, max: Duration },
    Listed(&'static [Duration]),
}

/// Far more than a policy needs, and a delay that it multiplies is still one.
const JITTER_MAX: f64 = 1000.0;

const VENDOR: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(30)];

impl RetryPolicy {
    /// Returns a policy of doubling delays from `base` to `max`, without an end. Jitter adds up to half of a
    /// delay.
    pub const fn exponential(base: Duration, max: Duration) -> Self {
        Self::new(Delays::Doubling { base, max }, 0.5)
    }

    /// Returns the policy for a vendor's service that needs time to recover: 500 ms, 2 s, 5 s and 30 s, then
    /// give up. Jitter adds up to a quarter of a delay.
    pub const fn vendor() -> Self {
        Self::listed(&VENDOR)
    }

    /// Returns the policy for a caller that waits: doubling delays from 100 ms to 2 s, then give up after at
    /// most 10 s of delays. Jitter may double a delay, but no delay is longer than 2 s.
    pub const fn client() -> Self {
        let max = Duration::from_secs(2);
        let policy = Self::new(Delays::Doubling { base: Duration::from_millis(100), max }, 1.0);
        Self { ceiling: max, total: Duration::from_secs(10), ..policy }
    }

    /// Returns a policy of the given delays: one attempt more than there are delays. Jitter adds up to a
    /// quarter of a delay.
    pub const fn listed(delays: &'static [Duration]) -> Self {
        Self::new(Delays::Listed(delays), 0.25).max_attempts(delays.len() as u32 + 1)
    }

    const fn new(delays: Delays, jitter: f64) -> Self {
        Self { delays, jitter, ceiling: Duration::MAX, max_attempts: u32::MAX, total: Duration::MAX }
    }

    /// Sets the share of a delay that jitter may add to it: 0 for none, 1 for up to twice the delay.
    pub const fn jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// Sets the number of attempts, the first one included.
    pub const fn max_attempts(self, attempts: u32) -> Self {
        Self { max_attempts: attempts, ..self }
    }

    /// Returns the delay after a failed attempt. `attempt` is counted from 1, `random` is in [0, 1).
    ///
    /// Jitter only lengthens a delay: the service that is retried can rely on the delay of the policy.
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
        // NaN is no jitter.
        let jitter = if self.jitter > 0.0 { self.jitter.min(JITTER_MAX) } else { 0.0 };
        let delay = bounded(delay);
        delay.mul_f64(1.0 + jitter * random.clamp(0.0, 1.0)).min(self.ceiling.max(delay))
    }

    /// Returns whether this policy never gives up.
    pub const fn is_endless(&self) -> bool {
        self.max_attempts == u32::MAX && self.total.as_nanos() == Duration::MAX.as_nanos()
    }

    /// Returns the delay after a failed attempt, or `None` after the last one.
    ///
    /// An attempt is the last one if it uses up [`max_attempts`](Self::max_attempts), or if the delay after
    /// it could make the sum of all delays too long.
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

/// Doubling delays from 100 ms to one minute, without an end.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(100), Duration::from_secs(60))
    }
}

/// Returns a random number in [0, 1) for [`RetryPolicy::delay`]. It spreads retries and is not fit for
/// secrets.
pub fn random() -> f64 {
    fastrand::f64()
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
        let longest = RetryPolicy::exponential(Duration::MAX, Duration::MAX).jitter(f64::INFINITY);
        assert!(longest.delay(1, 0.0) < longest.delay(1, 1.0));
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
