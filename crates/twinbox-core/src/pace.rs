//! So many a second, and no more.
use std::time::{Duration, Instant};

/// Keeps a rate, in groups of a tenth of a second's worth.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    paid_until: Option<Instant>,
}

impl Pace {
    /// How many may go now at `rate` a second, and otherwise how long until the next group. None: any number.
    pub fn allowance(&mut self, rate: Option<u32>, now: Instant) -> Result<usize, Duration> {
        let Some(rate) = rate else { return Ok(usize::MAX) };
        let rate = rate.max(1);
        let group = (rate / 10).max(1);
        // The clock of what was paid for never lags by more than one group, so that idleness is not saved up.
        let span = Duration::from_secs(1) * group / rate;
        let paid = self.paid_until.map_or(now, |until| until.max(now.checked_sub(span).unwrap_or(now)));
        self.paid_until = Some(paid);
        if paid > now { Err(paid - now) } else { Ok(usize::try_from(group).unwrap_or(usize::MAX)) }
    }

    /// So many went.
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
    fn a_rate_is_kept_and_not_saved_up() {
        let (mut pace, now, rate) = (Pace::default(), Instant::now(), Some(100));
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
