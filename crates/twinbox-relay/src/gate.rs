//! When nothing may be sent although the destination is there.
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use twinbox_core::{pace::Pace, reconnect::Reconnect};

/// The longest that a destination is left alone for asking so.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Closed while the destination asks to be left alone.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    until: Option<Instant>,
    pauses: Reconnect,
    pub(crate) pace: Pace,
    told: HashSet<String>,
}

/// Types of which it is remembered that a fault was reported.
const TOLD_MAX: usize = 1000;

impl Gate {
    /// Closes for as long as was asked for, or for longer from time to time. Never opens earlier than it
    /// would have. Answers with how long.
    pub(crate) fn close(&mut self, retry_after: Option<Duration>, now: Instant) -> Duration {
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

    /// Whether a fault of this type is to be reported: once, and not for each message.
    pub(crate) fn tells(&mut self, event_type: &str) -> bool {
        self.told.len() < TOLD_MAX && self.told.insert(event_type.to_owned())
    }

    /// How long it stays closed.
    pub(crate) fn wait(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R13.
    #[test]
    fn the_gate_stays_closed_as_long_as_was_asked_for() {
        let (mut gate, now) = (Gate::default(), Instant::now());
        assert_eq!(gate.wait(), Duration::ZERO);
        assert_eq!(gate.close(Some(Duration::from_secs(60)), now), Duration::from_secs(60));
        let shorter = gate.close(Some(Duration::from_secs(1)), now);
        assert_eq!(shorter, Duration::from_secs(1));
        assert!(gate.wait() > Duration::from_secs(59), "never early");
        gate.opened();
        assert!(gate.wait() > Duration::from_secs(59), "an answer to what was sent before opens nothing");
        assert_eq!(gate.close(Some(Duration::MAX), now), RETRY_AFTER_MAX);
    }

    #[test]
    fn without_a_word_pauses_grow_once_for_all_that_was_on_its_way() {
        let (mut gate, now) = (Gate::default(), Instant::now());
        let first = gate.close(None, now);
        assert!(first > Duration::ZERO);
        assert_eq!(gate.close(None, now), first);
        let later: Vec<_> = (1..20).map(|n| gate.close(None, now + Duration::from_secs(n * 60))).collect();
        assert!(later.iter().max() > Some(&(first * 3)), "{later:?}");
    }
}
