//! How long a message of a partition is retried in place, before it is parked.
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};
use twinbox_core::MessageId;

/// How long a message is retried in place. The checkpoint of its partition cannot move on meanwhile.
const IN_PLACE_MAX: Duration = Duration::from_secs(2);
/// The same for failures that do not count, such as lock time-outs. They say little about the message. In
/// leases: an attempt takes one at most, so there is time for some.
const CONTENDED_LEASES: u32 = 6;

/// The messages of a partition that fail and are retried in place.
pub(crate) struct InPlace {
    failures: HashMap<MessageId, Failures>,
    contended_max: Duration,
}

/// The failures of one message.
#[derive(Clone, Copy)]
struct Failures {
    since: Instant,
    /// Whether they count as attempts.
    counted: bool,
}

impl InPlace {
    /// With the lease on the partition, which is the longest time for one attempt.
    pub(crate) fn new(lease: Duration) -> Self {
        Self { failures: HashMap::new(), contended_max: lease.saturating_mul(CONTENDED_LEASES) }
    }

    /// Records a failure. Returns whether a retry after `delay` would keep the message in place for too long.
    pub(crate) fn is_too_long(
        &mut self,
        id: MessageId,
        delay: Duration,
        counted: bool,
        now: Instant,
    ) -> bool {
        let first = Failures { since: now, counted };
        let failures = self.failures.entry(id).or_insert(first);
        if counted && !failures.counted {
            *failures = first;
        }
        let max = if failures.counted { IN_PLACE_MAX } else { self.contended_max };
        now.saturating_duration_since(failures.since).saturating_add(delay) > max
    }

    /// Removes a message that was settled or parked.
    pub(crate) fn remove(&mut self, id: &MessageId) {
        self.failures.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinbox_core::Draft;

    #[test]
    fn the_time_in_place_starts_anew_with_the_first_failure_that_counts() {
        let message = Draft::raw("orders.placed", 1, &b"{}"[..]).into_message("shop").message_id();
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut in_place = InPlace::new(5 * second);
        assert!(!in_place.is_too_long(message, second, false, start));
        assert!(!in_place.is_too_long(message, second, false, start + 29 * second));
        assert!(in_place.is_too_long(message, second, false, start + 30 * second));
        assert!(!in_place.is_too_long(message, second, true, start + 30 * second));
        assert!(in_place.is_too_long(message, second, true, start + 32 * second));
        in_place.remove(&message);
        assert!(in_place.is_too_long(message, 3 * second, true, start + 33 * second));
    }
}
