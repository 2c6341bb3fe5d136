//! One request, as logs, metrics and problem responses describe it.
use crate::{
    begin::KeyedRequest,
    metrics::{self, Counter},
    problem::Problem,
    request::original_uri,
    settings::Settings,
};
use axum::{
    body::Body,
    http::{Response, StatusCode, request::Parts},
};
use std::{sync::Arc, time::Duration};
use tracing::Span;
use twinbox_sql::{Dialect, Error, ErrorKind};

/// One request.
pub(crate) struct Call<DB: Dialect> {
    pub(crate) settings: Arc<Settings<DB>>,
    path: String,
    pub(crate) scope: String,
    /// For logs. It is a digest, because a key may name a person and a payment.
    key: String,
    payload_hash: String,
}

impl<DB: Dialect> Call<DB> {
    pub(crate) fn new(settings: &Arc<Settings<DB>>, parts: &Parts) -> Self {
        Self {
            settings: settings.clone(),
            path: original_uri(parts).path().to_owned(),
            scope: settings.scope_of(parts).unwrap_or_default(),
            key: String::new(),
            payload_hash: String::new(),
        }
    }

    pub(crate) fn with_key(self, request: &KeyedRequest) -> Self {
        Self { key: short_hex(&request.key.slot()), payload_hash: short_hex(&request.fingerprint), ..self }
    }

    pub(crate) fn span(&self) -> Span {
        let Self { scope, key, payload_hash, .. } = self;
        tracing::info_span!(
            "idempotency",
            idempotency_key = key,
            scope,
            payload_hash,
            attempt = tracing::field::Empty
        )
    }

    pub(crate) fn log_outcome(
        &self,
        outcome: &'static str,
        status: StatusCode,
        error_code: Option<&'static str>,
    ) {
        let status = status.as_u16();
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

    pub(crate) fn count(&self, counter: &Counter) {
        counter.count_request(&self.scope, self.settings.counts_aliases);
    }

    pub(crate) fn record_key_wait(&self, wait: Duration) {
        metrics::record_key_wait(&self.scope, wait);
    }

    pub(crate) fn report_timeout(&self) {
        self.count(&metrics::HANDLER_TIMEOUTS);
        tracing::error!(
            scope = self.scope,
            idempotency_key = self.key,
            timeout = ?self.settings.handler_timeout,
            "a handler took longer than its time-out and was dropped"
        );
    }

    pub(crate) fn report_exhausted(&self) {
        self.count(&metrics::ATTEMPTS_EXHAUSTED);
        tracing::error!(
            scope = self.scope,
            idempotency_key = self.key,
            "a request has used all its attempts and is not tried again: check what it has already done"
        );
    }

    /// Renders, counts and logs a problem.
    pub(crate) fn refuse(&self, problem: &Problem) -> Response<Body> {
        match problem {
            Problem::Mismatch => self.count(&metrics::KEY_MISMATCHES),
            Problem::InProgress => self.count(&metrics::IN_PROGRESS_REFUSALS),
            Problem::StoreUnavailable => self.count(&metrics::STORE_ERRORS),
            Problem::TooManyKeys => self.count(&metrics::KEY_LIMIT_REFUSALS),
            Problem::TimedOut => self.report_timeout(),
            _ => {}
        }
        let code = problem.code(self.settings.problem_style.codes);
        let response = self.render(problem);
        self.log_outcome("refused", response.status(), Some(code));
        response
    }

    /// Renders a problem in the style of the route.
    pub(crate) fn render(&self, problem: &Problem) -> Response<Body> {
        problem.response(&self.settings.problem_style, Some(&self.path))
    }

    pub(crate) fn store_failed(&self, error: &Error) -> Response<Body> {
        let problem = match error.kind() {
            ErrorKind::Configuration | ErrorKind::Codec => Problem::Misconfigured,
            ErrorKind::PartlyCommitted => Problem::UnknownOutcome,
            _ => Problem::StoreUnavailable,
        };
        let error = error as &dyn std::error::Error;
        tracing::error!(error, scope = self.scope, "the database of the keys is away or refused");
        self.refuse(&problem)
    }

    /// `may_have_written`: perhaps it has written something all the same.
    pub(crate) fn commit_failed(&self, error: &Error, may_have_written: bool) -> Response<Body> {
        let problem = if may_have_written { Problem::UnknownOutcome } else { Problem::Failed };
        let error = error as &dyn std::error::Error;
        tracing::error!(error, scope = self.scope, "the writes of a handler were not committed");
        self.refuse(&problem)
    }
}

fn short_hex(digest: &[u8; 32]) -> String {
    String::from_iter(digest[..4].iter().map(|byte| format!("{byte:02x}")))
}
