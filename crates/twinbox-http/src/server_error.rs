//! The error type of handlers.
use crate::problem::Problem;
use axum::{body::Body, http::Response, response::IntoResponse};
use std::fmt;
use twinbox_sql::HandlerError;

/// Turns any error into a `500` or `503` response; handlers return it with `?`.
///
/// The handler's writes are rolled back and the key is free. The error is logged and not shown to the caller.
/// The status is `503` with `Retry-After` if the database was away or busy, else `500`.
///
/// ```
/// use axum::{body::Body, http::{Response, StatusCode}, response::IntoResponse as _};
/// use twinbox_http::ServerError;
///
/// fn parse(cents: &str) -> Result<i64, ServerError> {
///     Ok(cents.parse()?)
/// }
///
/// assert_eq!(parse("12").unwrap(), 12);
/// let response: Response<Body> = parse("twelve").unwrap_err().into_response();
/// assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
/// ```
pub struct ServerError(HandlerError);

impl<E: Into<HandlerError>> From<E> for ServerError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for ServerError {
    fn into_response(self) -> Response<Body> {
        tracing::error!(error = %self.0, "a handler failed");
        let is_temporary = self.0.is_outage() || self.0.is_contention();
        let problem = if is_temporary { Problem::StoreUnavailable } else { Problem::Failed };
        problem.handler_response()
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
