//! The target of a job: a handler, or an HTTP path.
use super::run::JobRun;
use std::{sync::Arc, time::Duration};
use twinbox_core::BoxFuture;
use twinbox_sql::{Disposition, HandlerResult};

/// The function that makes one attempt.
pub(super) type Target = Arc<dyn Fn(JobRun) -> BoxFuture<'static, AttemptResult> + Send + Sync>;

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AttemptResult {
    pub(super) outcome: Outcome,
    pub(super) http_code: Option<u16>,
    /// The text of the error, without credentials.
    pub(super) error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Another attempt may help, but not before this time from now.
    Retry(Duration),
    /// No attempt can help.
    Failed,
}

impl AttemptResult {
    pub(super) fn done(http_code: Option<u16>) -> Self {
        Self { outcome: Outcome::Done, http_code, error: None }
    }

    pub(super) fn retry(not_before: Option<Duration>, error: impl Into<String>) -> Self {
        let outcome = Outcome::Retry(not_before.unwrap_or_default());
        Self { outcome, http_code: None, error: Some(error.into()) }
    }

    pub(super) fn failed(error: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed, http_code: None, error: Some(error.into()) }
    }
}

pub(super) fn handler_target<F, R>(handler: F) -> Target
where
    F: Fn(JobRun) -> R + Send + Sync + 'static,
    R: Future<Output = HandlerResult> + Send + 'static,
{
    Arc::new(move |run| {
        let running = handler(run);
        Box::pin(async move {
            match running.await {
                Ok(()) => AttemptResult::done(None),
                Err(error) => match error.disposition() {
                    Disposition::Reject => AttemptResult::failed(error.to_string()),
                    Disposition::RetryAfter(delay) => AttemptResult::retry(Some(delay), error.to_string()),
                    _ => AttemptResult::retry(None, error.to_string()),
                },
            }
        })
    })
}
