//! Faults of event types: types without a home, and the types whose fault was logged.
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

/// The shortest time for which a message is parked until its type has a home.
const DELAY_MIN: Duration = Duration::from_secs(5);
/// The longest. In between a message is parked for as long as its type has had no home.
const DELAY_MAX: Duration = Duration::from_secs(300);
/// Types that are remembered, in each of the two collections.
const TYPES_MAX: usize = 1000;

/// Remembers event types that the destination has no home for, or that no destination takes.
#[derive(Debug, Default)]
pub(crate) struct TypeFaults {
    logged: HashSet<String>,
    /// Types without a home, with the time of their first refusal.
    without_home: HashMap<String, Instant>,
}

impl TypeFaults {
    /// Whether to log a fault of this type. True once per type, because there may be thousands of messages.
    pub(crate) fn should_log(&mut self, event_type: &str) -> bool {
        self.logged.len() < TYPES_MAX && self.logged.insert(event_type.to_owned())
    }

    /// Notes a type without a home. Returns how long to park its message.
    pub(crate) fn note_without_home(&mut self, event_type: &str, now: Instant) -> Duration {
        if self.without_home.len() >= TYPES_MAX && !self.without_home.contains_key(event_type) {
            return DELAY_MIN;
        }
        let since = self.without_home.entry(event_type.to_owned()).or_insert(now);
        now.saturating_duration_since(*since).clamp(DELAY_MIN, DELAY_MAX)
    }

    /// Notes that the destination accepted a message of this type, so the type has a home.
    pub(crate) fn note_accepted(&mut self, event_type: &str) {
        if !self.without_home.is_empty() {
            self.without_home.remove(event_type);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_with_the_time_without_a_home() {
        let (mut faults, now) = (TypeFaults::default(), Instant::now());
        let after = |faults: &mut TypeFaults, seconds| {
            faults.note_without_home("orders.paid", now + Duration::from_secs(seconds))
        };
        assert_eq!(after(&mut faults, 0), DELAY_MIN);
        assert_eq!(after(&mut faults, 60), Duration::from_secs(60));
        assert_eq!(after(&mut faults, 3600), DELAY_MAX);
        let other = faults.note_without_home("orders.placed", now + Duration::from_secs(3600));
        assert_eq!(other, DELAY_MIN, "each type has its own time");
        faults.note_accepted("orders.paid");
        assert_eq!(after(&mut faults, 3601), DELAY_MIN, "the type had a home in between");
    }

    #[test]
    fn the_number_of_remembered_types_is_bounded() {
        let (mut faults, now) = (TypeFaults::default(), Instant::now());
        for n in 0..2 * TYPES_MAX {
            assert_eq!(faults.note_without_home(&format!("type-{n}"), now), DELAY_MIN);
            assert_eq!(faults.should_log(&format!("type-{n}")), n < TYPES_MAX);
        }
        assert_eq!((faults.without_home.len(), faults.logged.len()), (TYPES_MAX, TYPES_MAX));
    }
}
