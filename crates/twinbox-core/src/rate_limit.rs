//! A rate limit for messages.
use std::time::{Duration, Instant};

/// Limits messages to a rate, in groups worth a tenth of a second.
#[derive(Debug, Clone, Default)]
pub struct RateLimit {
    /// The messages up to now use the rate up until then.
    paid_until: Option<Instant>,
}

impl RateLimit {
    /// Returns how many messages may be sent now, or how long to wait for the next group.
    ///
    /// `rate` is in messages a second; `None` is no limit.
    pub fn allowance(&mut self, rate: Option<u32>, now: Instant) -> Result<usize, Duration> {
        let Some(rate) = rate else { return Ok(usize::MAX) };
        let rate = rate.max(1);
        let group = (rate / 10).max(1);
        // An idle time earns one group at most.
        let span = Duration::from_secs(1) * group / rate;
        let paid = self.paid_until.map_or(now, |until| until.max(now.checked_sub(span).unwrap_or(now)));
        self.paid_until = Some(paid);
        if paid > now { Err(paid - now) } else { Ok(usize::try_from(group).unwrap_or(usize::MAX)) }
    }

    /// Charges messages that were sent to the limit of `rate` messages a second.
    pub fn pay(&mut self, rate: Option<u32>, many: usize) {
        if let (Some(rate), Some(paid)) = (rate, &mut self.paid_until) {
            *paid += Duration::from_secs_f64(many as f64 / f64::from(rate.max(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_time_does_not_raise_the_rate_later() {
        let (mut pace, now, rate) = (RateLimit::default(), Instant::now(), Some(100));
        assert_eq!(pace.allowance(None, now), Ok(usize::MAX));
        assert_eq!(pace.allowance(rate, now), Ok(10));
        pace.pay(rate, 10);
        assert_eq!(pace.allowance(rate, now), Err(Duration::from_millis(100)));
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.allowance(rate, later), Ok(10));
        pace.pay(rate, 10);
        pace.pay(rate, 10);
        assert_eq!(pace.allowance(rate, later), Err(Duration::from_millis(100)));
    }
}
