//! When webhooks are sent again.
use crate::dispatcher::VendorOptions;
use std::time::Duration;
use twinbox_core::RetryPolicy;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// The delays that Standard Webhooks recommends: ten tries over three to four days, jitter included.
const DELAYS: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * MINUTE),
    Duration::from_secs(30 * MINUTE),
    Duration::from_secs(2 * HOUR),
    Duration::from_secs(5 * HOUR),
    Duration::from_secs(10 * HOUR),
    Duration::from_secs(14 * HOUR),
    Duration::from_secs(20 * HOUR),
    Duration::from_secs(24 * HOUR),
];

/// How long a receiver may take. Standard Webhooks recommends 15 to 30 s.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The schedule of Standard Webhooks: again after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h,
/// then give up. Jitter adds up to a quarter of a delay.
pub const SCHEDULE: RetryPolicy = RetryPolicy::listed(&DELAYS);

/// Returns the options of a dispatcher for webhooks: the tries of [`SCHEDULE`], and 20 s for an answer.
pub const fn options() -> VendorOptions {
    VendorOptions::new().retries(SCHEDULE).timeout(TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_tried_ten_times_over_three_to_four_days() {
        let delays = (1..).map_while(|attempt| SCHEDULE.next(attempt, 0.0));
        let seconds = Vec::from_iter(delays.map(|delay| delay.as_secs()));
        assert_eq!(seconds, [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]);
        let longest: Duration = (1..).map_while(|attempt| SCHEDULE.next(attempt, 1.0)).sum();
        assert!(longest < Duration::from_secs(4 * 24 * 3600), "{longest:?}");
    }
}
