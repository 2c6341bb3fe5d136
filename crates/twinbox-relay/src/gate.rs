//! When nothing may be sent although the destination is there.
use std::{
    collections::{HashMap, HashSet},
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
    /// Types without a place, since when.
    homeless: HashMap<String, Instant>,
}

/// How long a message waits for a place for its type, at least.
const HOMELESS_MIN: Duration = Duration::from_secs(5);
/// At most. It grows with how long there has been none.
const HOMELESS_MAX: Duration = Duration::from_secs(300);

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

    /// How long a message of this type waits for a place.
    pub(crate) fn homeless(&mut self, event_type: &str, now: Instant) -> Duration {
        if self.homeless.len() >= TOLD_MAX && !self.homeless.contains_key(event_type) {
            return HOMELESS_MIN;
        }
        let since = self.homeless.entry(event_type.to_owned()).or_insert(now);
        now.saturating_duration_since(*since).clamp(HOMELESS_MIN, HOMELESS_MAX)
    }

    /// A message of this type was taken.
    pub(crate) fn taken(&mut self, event_type: &str) {
        if !self.homeless.is_empty() {
            self.homeless.remove(event_type);
        }
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

    #[test]
    fn a_type_is_tried_more_rarely_the_longer_it_has_no_place() {
        let (mut gate, now) = (Gate::default(), Instant::now());
        let after =
            |gate: &mut Gate, seconds| gate.homeless("orders.paid", now + Duration::from_secs(seconds));
        assert_eq!(after(&mut gate, 0), HOMELESS_MIN);
        assert_eq!(after(&mut gate, 60), Duration::from_secs(60));
        assert_eq!(after(&mut gate, 3600), HOMELESS_MAX);
        assert_eq!(
            gate.homeless("orders.placed", now + Duration::from_secs(3600)),
            HOMELESS_MIN,
            "its own time"
        );
        gate.taken("orders.paid");
        assert_eq!(after(&mut gate, 3601), HOMELESS_MIN, "there was a place");
    }

    #[test]
    fn no_more_types_without_a_place_are_remembered_than_a_bound() {
        let (mut gate, now) = (Gate::default(), Instant::now());
        for n in 0..2 * TOLD_MAX {
            assert_eq!(gate.homeless(&format!("type-{n}"), now), HOMELESS_MIN);
        }
        assert_eq!(gate.homeless.len(), TOLD_MAX);
    }
}
