//! When nothing may be sent although the destination is there.
use std::time::{Duration, Instant};
use twinbox_core::{PublishError, PublishErrorKind, reconnect::Reconnect};

/// Messages that may be given up in [`STORM_WINDOW`]. More look like a fault of the destination, or of its
/// configuration, that would bury a whole log.
const STORM_MAX: u32 = 100;
const STORM_WINDOW: Duration = Duration::from_secs(60);
/// The longest that a destination is left alone for asking so.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Closed while the destination asks to be left alone.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    until: Option<Instant>,
    pauses: Reconnect,
    pub(crate) storm: Storm,
}

impl Gate {
    /// Closes for as long as was asked for, or for longer from time to time. Never opens earlier than it
    /// would have. Answers with how long.
    pub(crate) fn close(&mut self, retry_after: Option<Duration>) -> Duration {
        let now = Instant::now();
        let wait = match (retry_after, self.until) {
            (Some(wait), _) => wait.min(RETRY_AFTER_MAX),
            // What was on its way together is one refusal.
            (None, Some(until)) if until > now => until - now,
            (None, _) => self.pauses.pause(),
        };
        self.until = self.until.max(Some(now + wait));
        wait
    }

    /// Something was taken.
    pub(crate) fn opened(&mut self) {
        if self.until.is_some_and(|until| until <= Instant::now()) {
            self.until = None;
            self.pauses.reset();
        }
    }

    /// How long it stays closed.
    pub(crate) fn wait(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

/// Keeps count of the messages that are given up.
#[derive(Debug, Default)]
pub(crate) struct Storm {
    since: Option<Instant>,
    dead: u32,
}

impl Storm {
    /// Whether one more may be given up.
    pub(crate) fn note_dead(&mut self) -> Result<(), PublishError> {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since >= STORM_WINDOW) {
            *self = Self { since: Some(now), dead: 0 };
        }
        if self.dead == STORM_MAX {
            return Err(PublishError::new(PublishErrorKind::Unavailable, "relay.storm"));
        }
        self.dead += 1;
        Ok(())
    }

    /// How long until another may be given up.
    pub(crate) fn pause(&self) -> Duration {
        match self.since {
            Some(since) if self.dead == STORM_MAX => STORM_WINDOW.saturating_sub(since.elapsed()),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R13.
    #[test]
    fn the_gate_stays_closed_as_long_as_was_asked_for() {
        let mut gate = Gate::default();
        assert_eq!(gate.wait(), Duration::ZERO);
        assert_eq!(gate.close(Some(Duration::from_secs(60))), Duration::from_secs(60));
        let shorter = gate.close(Some(Duration::from_secs(1)));
        assert_eq!(shorter, Duration::from_secs(1));
        assert!(gate.wait() > Duration::from_secs(59), "never early");
        gate.opened();
        assert!(gate.wait() > Duration::from_secs(59), "an answer to what was sent before opens nothing");
        assert_eq!(gate.close(Some(Duration::MAX)), RETRY_AFTER_MAX);
    }

    #[test]
    fn without_a_word_pauses_grow_once_for_all_that_was_on_its_way() {
        let mut gate = Gate::default();
        let first = gate.close(None);
        assert!(first > Duration::ZERO && gate.close(None) <= first);
    }

    #[test]
    fn a_storm_of_dead_letters_stops() {
        let mut storm = Storm::default();
        for _ in 0..STORM_MAX {
            storm.note_dead().unwrap();
        }
        assert_eq!(storm.note_dead().unwrap_err().code(), "relay.storm");
        assert!(storm.pause() > Duration::from_secs(59));
        storm.since = Instant::now().checked_sub(STORM_WINDOW);
        assert_eq!(storm.pause(), Duration::ZERO);
        storm.note_dead().unwrap();
    }
}
