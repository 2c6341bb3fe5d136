//! When to try a connection again. The one place that uses the `backoff` crate.
use backoff::{ExponentialBackoff, backoff::Backoff as _};
use std::time::Duration;

/// The longest pause between two tries of a connection.
pub const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// Growing pauses between tries of a connection or a server, without end: an outage outlives every limit
/// that one could set.
#[derive(Debug)]
pub struct Reconnect(ExponentialBackoff);

impl Reconnect {
    /// Pauses from 100 ms up to [`RECONNECT_MAX`], each randomised by half of itself.
    pub fn new() -> Self {
        Self(ExponentialBackoff {
            current_interval: Duration::from_millis(100),
            initial_interval: Duration::from_millis(100),
            max_interval: RECONNECT_MAX,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        })
    }

    /// How long to pause before the next try.
    pub fn pause(&mut self) -> Duration {
        self.0.next_backoff().unwrap_or(RECONNECT_MAX)
    }

    /// Starts over, after a try that worked.
    pub fn reset(&mut self) {
        self.0.reset();
    }
}

impl Default for Reconnect {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_stay_bounded_and_start_over() {
        let mut reconnect = Reconnect::new();
        let pauses: Vec<_> = (0..50).map(|_| reconnect.pause()).collect();
        assert!(pauses[0] <= Duration::from_millis(150));
        assert!(pauses[49] >= RECONNECT_MAX / 2);
        assert!(pauses.iter().all(|p| *p <= RECONNECT_MAX * 3 / 2));
        reconnect.reset();
        assert!(reconnect.pause() <= Duration::from_millis(150));
    }
}
