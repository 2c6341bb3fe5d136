//! Errors of a handler that are nobody's answer.
use crate::problem::Problem;
use axum::{body::Body, http::Response, response::IntoResponse};
use std::fmt;
use twinbox_sql::HandlerError;

/// An error of which the caller is told only whether to try again: every error converts with `?`. What the handler wrote is
/// undone and the key is free. It is logged here, and not shown to the caller.
///
/// `503` with `Retry-After` when the database was away or busy, else `500`.
pub struct Fault(HandlerError);

impl<E: Into<HandlerError>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response<Body> {
        tracing::error!(error = %self.0, "a handler failed");
        let passes = self.0.is_outage() || self.0.is_contention();
        let problem = if passes { Problem::StoreAway } else { Problem::Failed };
        problem.into_response()
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
