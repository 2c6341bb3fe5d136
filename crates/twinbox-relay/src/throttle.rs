//! The throttle: stops sending while the destination asks for a pause.
use std::time::{Duration, Instant};
use twinbox_core::backoff::Backoff;

/// The longest pause that a destination can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Closed while the destination asks for a pause.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    closed_until: Option<Instant>,
    back_off: Backoff,
}

impl Throttle {
    /// Closes for `retry_after`, else for the next back-off step. Returns how long. It never opens earlier
    /// than before.
    pub(crate) fn close(&mut self, retry_after: Option<Duration>, now: Instant) -> Duration {
        let wait = match (retry_after, self.closed_until) {
            (Some(wait), _) => wait.min(RETRY_AFTER_MAX),
            // Messages that were in flight together count as one refusal.
            (None, Some(until)) if until > now => until - now,
            (None, _) => self.back_off.pause(),
        };
        self.closed_until = self.closed_until.max(Some(now + wait));
        wait
    }

    /// Notes that the destination accepted a message. Starts the back-off anew, unless the throttle is still
    /// closed.
    pub(crate) fn note_accepted(&mut self) {
        if self.closed_until.is_some_and(|until| until <= Instant::now()) {
            self.closed_until = None;
            self.back_off.reset();
        }
    }

    /// Returns how long the throttle stays closed. Zero: it is open.
    pub(crate) fn wait(&self) -> Duration {
        self.closed_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R13.
    #[test]
    fn the_throttle_stays_closed_for_retry_after() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        assert_eq!(throttle.wait(), Duration::ZERO);
        assert_eq!(throttle.close(Some(Duration::from_secs(60)), now), Duration::from_secs(60));
        let shorter = throttle.close(Some(Duration::from_secs(1)), now);
        assert_eq!(shorter, Duration::from_secs(1));
        assert!(throttle.wait() > Duration::from_secs(59), "it never opens early");
        throttle.note_accepted();
        assert!(throttle.wait() > Duration::from_secs(59), "a message that was sent before opens nothing");
        assert_eq!(throttle.close(Some(Duration::MAX), now), RETRY_AFTER_MAX);
    }

    #[test]
    fn without_retry_after_the_back_off_grows_once_for_messages_that_were_in_flight_together() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        let first = throttle.close(None, now);
        assert!(first > Duration::ZERO);
        assert_eq!(throttle.close(None, now), first);
        let later: Vec<_> =
            (1..20).map(|n| throttle.close(None, now + Duration::from_secs(n * 60))).collect();
        assert!(later.iter().max() > Some(&(first * 3)), "{later:?}");
    }
}
