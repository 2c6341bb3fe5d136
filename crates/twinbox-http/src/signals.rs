//! What a request says of itself in logs and metrics.
use crate::outcome::Call;
use axum::http::StatusCode;
use std::time::Duration;
use twinbox_sql::Dialect;

impl<DB: Dialect> Call<DB> {
    /// A handler has not answered in time.
    pub(crate) fn took_too_long(&self) {
        self.count("idempotent.timeout");
        tracing::error!(
            scope = self.scope,
            idempotency_key = self.key,
            limit = ?self.settings.time_limit,
            "a handler took longer than its time limit, and was given up"
        );
    }

    pub(crate) fn say(
        &self,
        outcome: &'static str,
        status: Option<StatusCode>,
        error_code: Option<&'static str>,
    ) {
        let status = status.map(|status| status.as_u16());
        let Self { scope, key, payload_hash, .. } = self;
        tracing::info!(
            idempotency_key = key,
            scope,
            payload_hash,
            outcome,
            status,
            error_code,
            "idempotent request"
        );
    }

    pub(crate) fn waited(&self, wait: Duration) {
        let millis = wait.as_secs_f64() * 1000.0;
        metrics::histogram!("idempotent.wait_ms", "scope" => self.scope.clone()).record(millis);
    }

    pub(crate) fn count(&self, name: &'static str) {
        let count = |name: &'static str| metrics::counter!(name, "scope" => self.scope.clone()).increment(1);
        count(name);
        match name {
            "idempotent.replayed" if self.settings.alias_names => count("idempotent.replays"),
            "idempotent.conflict" if self.settings.alias_names => count("idempotent.conflicts"),
            _ => {}
        }
    }
}
