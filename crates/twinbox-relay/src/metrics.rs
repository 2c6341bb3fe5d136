//! The metrics of the relay: names, units and descriptions.
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// A metric with its description.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    kind: Kind,
    unit: Unit,
    description: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

// The relay counts these. All have the label `destination`.

/// Also by `error_type`.
pub(crate) const PUBLISH_RESULTS: Metric = counter(
    "twinbox_relay_publish_results_total",
    "Results of publishes by error code; the code of an accepted message is empty",
);
pub(crate) const LAG: Metric = Metric {
    name: "twinbox_relay_lag_seconds",
    kind: Kind::Histogram,
    unit: Unit::Seconds,
    description: "Time from publishing a message to the acknowledgement of the destination",
};
pub(crate) const DUPLICATES: Metric =
    counter("twinbox_relay_duplicates_total", "Accepted messages that the destination already had");
pub(crate) const PARKINGS: Metric = counter("twinbox_relay_parkings_total", "Messages that were parked");
pub(crate) const DEAD_LETTERS: Metric =
    counter("twinbox_relay_dead_letters_total", "Messages that became dead letters");
pub(crate) const UNROUTED_MESSAGES: Metric =
    counter("twinbox_relay_unrouted_messages_total", "Messages that no destination takes");
pub(crate) const LEASE_LOSSES: Metric = counter(
    "twinbox_relay_lease_losses_total",
    "Lost leases: another process took over, or the database did not respond",
);
/// Also by `state`.
pub(crate) const CIRCUIT_BREAKER: Metric =
    gauge("twinbox_relay_circuit_breaker", "1 for the current state of the circuit breaker, else 0");

// The program reads these from the database at each request. Where there are several schemas, those of a
// schema have the label `schema`.

pub(crate) const DATABASE_UP: Metric =
    gauge("twinbox_relay_database_up", "1 if the database responded to this request, else 0");
pub(crate) const POOL_WAIT: Metric =
    seconds("twinbox_relay_pool_wait_seconds", "Time that this request waited for a connection of the pool");
/// By `state`.
pub(crate) const POOL_CONNECTIONS: Metric =
    gauge("twinbox_relay_pool_connections", "Connections of the pool by state: idle, used");
/// By `destination`, as the next four.
pub(crate) const BACKLOG_MESSAGES: Metric = gauge(
    "twinbox_relay_backlog_messages",
    "Messages of the log that the reader has not settled, counted up to 10,000",
);
pub(crate) const OLDEST_MESSAGE_AGE: Metric = seconds(
    "twinbox_relay_oldest_message_age_seconds",
    "Age of the oldest message that the reader has not settled",
);
pub(crate) const LEASED: Metric =
    gauge("twinbox_relay_leased", "1 if a process owns the reader by lease, else 0");
pub(crate) const PAUSED: Metric =
    gauge("twinbox_relay_paused", "1 if an operator has paused the reader, else 0");
/// Also by `state`.
pub(crate) const PARKED_MESSAGES: Metric =
    gauge("twinbox_relay_parked_messages", "Parked messages by state: waiting, dead, blocking");
pub(crate) const UNFINISHED_IDEMPOTENCY_KEYS: Metric = gauge(
    "twinbox_relay_unfinished_idempotency_keys",
    "Idempotency keys whose request may have called a vendor and never ended, counted up to 10,000",
);

/// The buckets of histograms, in seconds.
#[cfg(feature = "bin")]
pub(crate) const SECONDS_BUCKETS: [f64; 13] =
    [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];

const ALL: [Metric; 17] = [
    PUBLISH_RESULTS,
    LAG,
    DUPLICATES,
    PARKINGS,
    DEAD_LETTERS,
    UNROUTED_MESSAGES,
    LEASE_LOSSES,
    CIRCUIT_BREAKER,
    DATABASE_UP,
    POOL_WAIT,
    POOL_CONNECTIONS,
    BACKLOG_MESSAGES,
    OLDEST_MESSAGE_AGE,
    LEASED,
    PAUSED,
    PARKED_MESSAGES,
    UNFINISHED_IDEMPOTENCY_KEYS,
];

/// Describes all metrics to the installed recorder.
pub(crate) fn describe() {
    for Metric { name, kind, unit, description } in ALL {
        match kind {
            Kind::Counter => describe_counter!(name, unit, description),
            Kind::Gauge => describe_gauge!(name, unit, description),
            Kind::Histogram => describe_histogram!(name, unit, description),
        }
    }
}

const fn counter(name: &'static str, description: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit: Unit::Count, description }
}

const fn gauge(name: &'static str, description: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit: Unit::Count, description }
}

const fn seconds(name: &'static str, description: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit: Unit::Seconds, description }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_follow_one_pattern() {
        let mut names = HashSet::new();
        for Metric { name, kind, unit, description } in ALL {
            assert!(names.insert(name), "{name} is there twice");
            let what = name.strip_prefix("twinbox_relay_").unwrap();
            assert!(what.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_seconds"), unit == Unit::Seconds, "{name}");
            assert!(!description.is_empty(), "{name}");
        }
    }
}
