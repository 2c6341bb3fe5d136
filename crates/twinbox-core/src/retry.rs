//! When to try a message again.
use std::time::Duration;

/// Delays between the attempts of one message: exponential from `base`, capped at `max`, spread upwards
/// by `jitter`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct RetryPolicy {
    base: Duration,
    max: Duration,
    jitter: f64,
}

impl RetryPolicy {
    /// Doubling delays from `base` to `max`, each spread over [1, 1.5) times itself.
    pub const fn exponential(base: Duration, max: Duration) -> Self {
        Self { base, max, jitter: 0.5 }
    }

    /// The share of a delay that may be added to it: 0 for none, 1 for up to twice the delay.
    pub const fn jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// The delay after the failure of `attempt`, counted from 1. `random` is in [0, 1).
    ///
    /// Never shorter than the undisturbed delay, so that a policy is a promise to whoever is being retried.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let delay = self.base.saturating_mul(1 << doublings).min(self.max);
        delay.mul_f64(1.0 + self.jitter.max(0.0) * random.clamp(0.0, 1.0))
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

    #[test]
    fn random_stays_in_its_range() {
        assert!((0..1000).map(|_| random()).all(|r| (0.0..1.0).contains(&r)));
    }
}
