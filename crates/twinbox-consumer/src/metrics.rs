//! The names and descriptions of this crate's metrics. All have the label `consumer`.
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Also by `outcome`.
pub(crate) const DELIVERIES: &str = "twinbox_consumer_deliveries_total";
/// Also by `outcome`.
pub(crate) const PROCESS_TIME: &str = "twinbox_consumer_process_seconds";
pub(crate) const DUPLICATES: &str = "twinbox_consumer_duplicates_total";
pub(crate) const FAILED_ATTEMPTS: &str = "twinbox_consumer_failed_attempts_total";
pub(crate) const DEAD_LETTERS: &str = "twinbox_consumer_dead_letters_total";
/// Also by `limit`.
pub(crate) const DELAYED_DEAD_LETTERS: &str = "twinbox_consumer_delayed_dead_letters_total";
pub(crate) const DEAD_LETTER_BYTES: &str = "twinbox_consumer_dead_letter_bytes";
pub(crate) const OVERTAKEN: &str = "twinbox_consumer_overtaken_total";
pub(crate) const FAILED_BATCHES: &str = "twinbox_consumer_failed_batches_total";
pub(crate) const PAYLOAD_CONFLICTS: &str = "twinbox_consumer_payload_conflicts_total";
pub(crate) const CLAIMS_PURGED: &str = "twinbox_consumer_claims_purged_total";
pub(crate) const IN_FLIGHT: &str = "twinbox_consumer_in_flight_deliveries";
pub(crate) const LAG: &str = "twinbox_consumer_lag_messages";

const COUNTERS: [(&str, &str); 9] = [
    (DELIVERIES, "Ended deliveries, by outcome"),
    (DUPLICATES, "Deliveries of settled messages, for which no handler ran"),
    (FAILED_ATTEMPTS, "Failed attempts that counted"),
    (DEAD_LETTERS, "Messages that became dead letters"),
    (DELAYED_DEAD_LETTERS, "Deliveries that wait because there are too many dead letters, by limit"),
    (OVERTAKEN, "Partitions in which the broker dropped messages before they were read"),
    (FAILED_BATCHES, "Failed batches, whose messages were handled one by one"),
    (PAYLOAD_CONFLICTS, "Messages with the id of an earlier message and another payload"),
    (CLAIMS_PURGED, "Claims that were deleted from the inbox"),
];

/// Describes all metrics to the installed recorder.
pub(crate) fn describe() {
    for (name, description) in COUNTERS {
        describe_counter!(name, Unit::Count, description);
    }
    describe_histogram!(PROCESS_TIME, Unit::Seconds, "From the start of a handler to the outcome");
    describe_gauge!(DEAD_LETTER_BYTES, Unit::Bytes, "Bytes of the dead letters, when they were last summed");
    describe_gauge!(IN_FLIGHT, Unit::Count, "Deliveries whose handlers run");
    describe_gauge!(LAG, Unit::Count, "Messages that wait at the broker, as it last reported");
}
