//! The storm guard: stops a fault of the destination from turning a whole log into dead letters.
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use twinbox_core::{PublishError, PublishErrorKind};

/// Dead letters allowed in [`STORM_WINDOW`] while the destination accepts no message of another type. More of
/// them look like a fault of the destination or of its configuration.
const DEAD_LETTERS_MAX: u32 = 100;
/// Messages beyond [`DEAD_LETTERS_MAX`] that are parked instead. If the destination accepts a message of
/// another type behind them, only their types are at fault.
const PARKED_MAX: u32 = 1000;
/// Types of dead letters that the guard remembers.
const TYPES_MAX: usize = 100;
const STORM_WINDOW: Duration = Duration::from_secs(60);

/// Counts dead letters and tells when there are too many.
#[derive(Debug, Default)]
pub(crate) struct StormGuard {
    /// The start of the current window. `None`: there was no dead letter yet.
    since: Option<Instant>,
    dead_letters: u32,
    /// The types of the dead letters.
    types: HashSet<String>,
    /// The destination accepted a message of another type in this window, so only those types are at fault.
    other_type_accepted: bool,
    parked: u32,
    /// The destination is at fault: both limits are reached.
    is_exceeded: bool,
}

impl StormGuard {
    /// Counts a dead letter. False: it is one too many, and the message must not become a dead letter now.
    pub(crate) fn allows_dead_letter(&mut self, event_type: &str) -> bool {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since >= STORM_WINDOW) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        if self.types.len() < TYPES_MAX && !self.types.contains(event_type) {
            self.types.insert(event_type.to_owned());
        }
        if self.dead_letters == DEAD_LETTERS_MAX {
            return self.other_type_accepted;
        }
        self.dead_letters += 1;
        true
    }

    /// Returns how long to park a message that must not become a dead letter now. `None`: the destination is
    /// at fault, and the relay stops sending to it.
    pub(crate) fn parking_delay(&mut self) -> Option<Duration> {
        self.is_exceeded = self.parked == PARKED_MAX;
        self.parked += u32::from(!self.is_exceeded);
        (!self.is_exceeded).then_some(STORM_WINDOW)
    }

    /// Notes that the destination accepted a message.
    pub(crate) fn note_accepted(&mut self, event_type: &str) {
        if !self.types.is_empty() && !self.other_type_accepted {
            self.other_type_accepted = !self.types.contains(event_type);
        }
    }

    /// Returns how long the relay stops sending. Zero: there is no storm.
    pub(crate) fn pause(&self) -> Duration {
        match self.since {
            Some(since) if self.is_exceeded => STORM_WINDOW.saturating_sub(since.elapsed()),
            _ => Duration::ZERO,
        }
    }

    /// The error that ends a session during a storm.
    pub(crate) fn error() -> PublishError {
        PublishError::new(PublishErrorKind::Unavailable, "relay.storm")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_dead_letters_stops() {
        let mut storm = StormGuard::default();
        for _ in 0..DEAD_LETTERS_MAX {
            assert!(storm.allows_dead_letter("a"));
        }
        storm.note_accepted("a");
        assert!(!storm.allows_dead_letter("a"));
        assert_eq!(storm.pause(), Duration::ZERO, "the destination may accept the messages behind them");
        while storm.parking_delay().is_some() {}
        assert_eq!(storm.parked, PARKED_MAX);
        assert!(storm.pause() > Duration::from_secs(59));
        storm.since = Instant::now().checked_sub(STORM_WINDOW);
        assert_eq!(storm.pause(), Duration::ZERO);
        assert!(storm.allows_dead_letter("a"));
    }

    #[test]
    fn dead_letters_of_one_type_beside_accepted_ones_of_another_are_no_storm() {
        let mut storm = StormGuard::default();
        for _ in 0..3 * DEAD_LETTERS_MAX {
            assert!(storm.allows_dead_letter("a"));
            storm.note_accepted("b");
        }
        assert_eq!(storm.pause(), Duration::ZERO);
    }
}
