//! The names and descriptions of this crate's metrics.
use crate::{
    dispatcher::Settled,
    side_effect::EffectState,
    vendor::{Applied, ErrorCode, VendorError},
};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use std::{collections::BTreeMap, sync::LazyLock, time::Duration};
use twinbox_core::labels::BoundedLabel;

const SENDS: &str = "twinbox_effects_sends_total";
const SEND_TIME: &str = "twinbox_effects_send_seconds";
const ERRORS: &str = "twinbox_effects_errors_total";
const DUPLICATES: &str = "twinbox_effects_provider_duplicates_total";
const LOOK_UPS: &str = "twinbox_effects_look_ups_total";
const CONFIRMED: &str = "twinbox_effects_confirmed_total";
const FAILED: &str = "twinbox_effects_failed_total";
const UNKNOWN: &str = "twinbox_effects_unknown_total";
const COMPENSATED: &str = "twinbox_effects_compensated_total";
const BACKLOG_AGE: &str = "twinbox_effects_backlog_age_seconds";
const CLIENT_CALLS: &str = "twinbox_effects_client_calls_total";
const CLIENT_RETRIES: &str = "twinbox_effects_client_retries_total";
const CLIENT_RETRY_DELAY: &str = "twinbox_effects_client_retry_delay_seconds";
const OPEN_BREAKERS: &str = "twinbox_effects_open_breakers";

const DRIFT_FINDINGS: &str = "twinbox_drift_findings";
const OLDEST_EXPIRED: &str = "twinbox_drift_oldest_expired_seconds";

const COUNTERS: [(&str, &str); 8] = [
    (SENDS, "Sends of effects to vendors"),
    (ERRORS, "Sends without a confirmation, by error code"),
    (DUPLICATES, "Effects of which the vendor says that an earlier send had done them"),
    (LOOK_UPS, "Questions to vendors whether they have acted"),
    (CONFIRMED, "Effects that were confirmed"),
    (FAILED, "Effects that were given up"),
    (UNKNOWN, "Effects that a person has to resolve"),
    (COMPENSATED, "Confirmed effects that undo another one"),
];

pub(crate) fn describe() {
    for (name, description) in COUNTERS {
        describe_counter!(name, Unit::Count, description);
    }
    describe_histogram!(SEND_TIME, Unit::Seconds, "How long a send takes");
    describe_gauge!(BACKLOG_AGE, Unit::Seconds, "How long the oldest due effect waits");
    describe_gauge!(OPEN_BREAKERS, Unit::Count, "Operations whose circuit breaker is not closed");
}

pub(crate) fn describe_client() {
    describe_counter!(CLIENT_CALLS, Unit::Count, "Calls of a client, by code");
    describe_counter!(CLIENT_RETRIES, Unit::Count, "Tries of a client after the first");
    describe_histogram!(CLIENT_RETRY_DELAY, Unit::Seconds, "How long a client waits before a retry");
}

/// The most kinds that are labels of their own. Whoever plans effects chooses their kinds, and a series for
/// each would have no bound.
const KINDS_MAX: usize = 100;

static KINDS: LazyLock<BoundedLabel> = LazyLock::new(|| BoundedLabel::new(KINDS_MAX));

/// The labels of a vendor and an operation.
fn labels(vendor: &str, operation: &str) -> [(&'static str, String); 2] {
    [("vendor", vendor.to_owned()), ("kind", KINDS.of(operation).to_owned())]
}

fn count(name: &'static str, vendor: &str, operation: &str) {
    counter!(name, &labels(vendor, operation)).increment(1);
}

pub(crate) fn sent(vendor: &str, operation: &str, result: Result<&Applied, &VendorError>, took: Duration) {
    count(SENDS, vendor, operation);
    histogram!(SEND_TIME, &labels(vendor, operation)).record(took.as_secs_f64());
    match result {
        Ok(applied) if applied.is_duplicate => count(DUPLICATES, vendor, operation),
        Ok(_) => {}
        Err(error) => {
            let [vendor, kind] = labels(vendor, operation);
            counter!(ERRORS, &[vendor, kind, ("code", error.code().as_str().to_owned())]).increment(1);
        }
    }
}

pub(crate) fn looked_up(vendor: &str, operation: &str) {
    count(LOOK_UPS, vendor, operation);
}

/// Counts an effect that has ended, or that waits for a person.
pub(crate) fn settled(vendor: &str, operation: &str, settled: &Settled, compensates: bool) {
    match settled.state {
        EffectState::Confirmed => {
            count(CONFIRMED, vendor, operation);
            if compensates {
                count(COMPENSATED, vendor, operation);
            }
        }
        EffectState::Failed => count(FAILED, vendor, operation),
        EffectState::Unknown => count(UNKNOWN, vendor, operation),
        EffectState::Pending | EffectState::Fired | EffectState::Compensated => {}
    }
}

/// Counts a call of a client that has ended. `None`: it succeeded.
pub(crate) fn client_called(vendor: &str, operation: &str, code: Option<ErrorCode>) {
    let code = code.map_or("OK", ErrorCode::as_str);
    let [vendor, kind] = labels(vendor, operation);
    counter!(CLIENT_CALLS, &[vendor, kind, ("code", code.to_owned())]).increment(1);
}

pub(crate) fn client_retried(vendor: &str, operation: &str, delay: Duration) {
    count(CLIENT_RETRIES, vendor, operation);
    histogram!(CLIENT_RETRY_DELAY, &labels(vendor, operation)).record(delay.as_secs_f64());
}

pub(crate) fn backlog_age(vendor: &str, age: Duration) {
    gauge!(BACKLOG_AGE, "vendor" => vendor.to_owned()).set(age.as_secs_f64());
}

pub(crate) fn open_breakers(vendor: &str, open: usize) {
    gauge!(OPEN_BREAKERS, "vendor" => vendor.to_owned()).set(open as f64);
}

/// Sets how many findings of each check are open. Of checks with the same labels: their sum.
pub(crate) fn drift<'a>(checks: impl Iterator<Item = (&'a str, &'a str, u64)>) {
    describe_gauge!(DRIFT_FINDINGS, Unit::Count, "Findings of drift that hold, by check");
    let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (check, kind, open) in checks {
        *sums.entry((check, kind)).or_default() += open;
    }
    for ((check, kind), open) in sums {
        gauge!(DRIFT_FINDINGS, "check" => check.to_owned(), "kind" => kind.to_owned()).set(open as f64);
    }
}

pub(crate) fn oldest_expired(age: Duration) {
    describe_gauge!(OLDEST_EXPIRED, Unit::Seconds, "How long the oldest expired key waits for its purge");
    gauge!(OLDEST_EXPIRED).set(age.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_exporter_prometheus::PrometheusBuilder;

    /// R72
    #[test]
    fn compensations_and_drift_are_counted_with_the_kind_alone() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let confirmed = Settled::new(EffectState::Confirmed, None);
            settled("stripe", "payment.refund", &confirmed, true);
            settled("stripe", "payment.charge", &confirmed, false);
            settled("stripe", "payment.refund", &Settled::new(EffectState::Failed, None), true);
            drift([("missing", "a.b", 2), ("missing", "a.b", 1), ("unknown", "", 0)].into_iter());
            oldest_expired(Duration::from_secs(90));
        });
        let rendered = recorder.handle().render();
        for line in [
            r#"twinbox_effects_compensated_total{vendor="stripe",kind="payment.refund"} 1"#,
            r#"twinbox_effects_confirmed_total{vendor="stripe",kind="payment.charge"} 1"#,
            r#"twinbox_drift_findings{check="missing",kind="a.b"} 3"#,
            r#"twinbox_drift_findings{check="unknown",kind=""} 0"#,
            "twinbox_drift_oldest_expired_seconds 90",
        ] {
            assert!(rendered.lines().any(|found| found == line), "{line}: {rendered}");
        }
        assert_eq!(rendered.matches("twinbox_effects_compensated_total{").count(), 1, "{rendered}");
    }
}
