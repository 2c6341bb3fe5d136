//! The names and descriptions of this crate's metrics.
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};
use std::time::Duration;

const KEY_WAIT: &str = "twinbox_http_key_wait_seconds";

/// A counter of requests with a key, or of webhooks.
#[derive(Debug)]
pub(crate) struct Counter {
    name: &'static str,
    description: &'static str,
    /// Names that dashboards of other systems use; counted only with `Idempotency::alias_names`.
    aliases: &'static [&'static str],
}

pub(crate) const RESPONSES_STORED: Counter = Counter {
    name: "twinbox_http_responses_stored_total",
    description: "Responses stored with their key",
    aliases: &["idempotent.created"],
};
pub(crate) const RESPONSES_REPLAYED: Counter = Counter {
    name: "twinbox_http_responses_replayed_total",
    description: "Stored responses sent again",
    aliases: &["idempotent.replayed", "idempotent.replays"],
};
pub(crate) const KEY_MISMATCHES: Counter = Counter {
    name: "twinbox_http_key_mismatches_total",
    description: "Requests whose key was used for another request",
    aliases: &["idempotent.conflict", "idempotent.conflicts"],
};
pub(crate) const IN_PROGRESS_REFUSALS: Counter = Counter::new(
    "twinbox_http_in_progress_refusals_total",
    "Requests refused because one with their key was running",
);
pub(crate) const LEASES_LOST: Counter =
    Counter::new("twinbox_http_leases_lost_total", "Requests that ran longer than their lease");
pub(crate) const ATTEMPTS_EXHAUSTED: Counter =
    Counter::new("twinbox_http_attempts_exhausted_total", "Requests that used all their attempts");
pub(crate) const KEY_LIMIT_REFUSALS: Counter =
    Counter::new("twinbox_http_key_limit_refusals_total", "Requests of callers that have too many keys");
pub(crate) const HANDLER_TIMEOUTS: Counter =
    Counter::new("twinbox_http_handler_timeouts_total", "Handlers that did not finish in time");
pub(crate) const STORE_ERRORS: Counter =
    Counter::new("twinbox_http_store_errors_total", "Requests that the database could not handle");
pub(crate) const UNUSED_TRANSACTIONS: Counter = Counter::new(
    "twinbox_http_unused_transactions_total",
    "Successes of handlers that did not use their transaction",
);

pub(crate) const WEBHOOKS_RECEIVED: Counter =
    Counter::new("twinbox_http_webhooks_received_total", "Webhooks received for the first time");
pub(crate) const WEBHOOK_DUPLICATES: Counter =
    Counter::new("twinbox_http_webhook_duplicates_total", "Webhooks received before");
pub(crate) const WEBHOOK_MISMATCHES: Counter =
    Counter::new("twinbox_http_webhook_mismatches_total", "Webhooks received before with another payload");
pub(crate) const WEBHOOKS_UNVERIFIED: Counter =
    Counter::new("twinbox_http_webhooks_unverified_total", "Webhooks refused because of their signature");
pub(crate) const WEBHOOKS_WITHOUT_ID: Counter = Counter::new(
    "twinbox_http_webhooks_without_id_total",
    "Webhooks without an id where the body should have one",
);

const REQUESTS: [Counter; 10] = [
    RESPONSES_STORED,
    RESPONSES_REPLAYED,
    KEY_MISMATCHES,
    IN_PROGRESS_REFUSALS,
    LEASES_LOST,
    ATTEMPTS_EXHAUSTED,
    KEY_LIMIT_REFUSALS,
    HANDLER_TIMEOUTS,
    STORE_ERRORS,
    UNUSED_TRANSACTIONS,
];
const WEBHOOKS: [Counter; 5] =
    [WEBHOOKS_RECEIVED, WEBHOOK_DUPLICATES, WEBHOOK_MISMATCHES, WEBHOOKS_UNVERIFIED, WEBHOOKS_WITHOUT_ID];

impl Counter {
    const fn new(name: &'static str, description: &'static str) -> Self {
        Self { name, description, aliases: &[] }
    }

    pub(crate) fn count_request(&self, scope: &str, with_aliases: bool) {
        let aliases = if with_aliases { self.aliases } else { &[] };
        for name in [self.name].iter().chain(aliases) {
            counter!(*name, "scope" => scope.to_owned()).increment(1);
        }
    }

    pub(crate) fn count_webhook(&self, provider: &str) {
        counter!(self.name, "provider" => provider.to_owned()).increment(1);
    }
}

pub(crate) fn record_key_wait(scope: &str, wait: Duration) {
    histogram!(KEY_WAIT, "scope" => scope.to_owned()).record(wait.as_secs_f64());
}

pub(crate) fn describe_requests() {
    for Counter { name, description, .. } in REQUESTS {
        describe_counter!(name, Unit::Count, description);
    }
    describe_histogram!(KEY_WAIT, Unit::Seconds, "How long a request waits before its handler may run");
}

pub(crate) fn describe_aliases() {
    for Counter { description, aliases, .. } in REQUESTS {
        for alias in aliases {
            describe_counter!(*alias, Unit::Count, description);
        }
    }
}

pub(crate) fn describe_webhooks() {
    for Counter { name, description, .. } in WEBHOOKS {
        describe_counter!(name, Unit::Count, description);
    }
}
