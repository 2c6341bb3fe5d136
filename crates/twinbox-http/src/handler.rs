//! Runs a handler until it responds, panics or exceeds its time-out.
use crate::problem::Problem;
use axum::{extract::Request, response::Response};
use futures::FutureExt as _;
use std::{convert::Infallible, panic::AssertUnwindSafe, time::Duration};
use tokio::time::{Instant, timeout_at};
use tower::{Service, ServiceExt as _};

/// A handler, or a route with its inner layers.
pub(crate) trait Handler:
    Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> Handler for S where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

/// The end of a time-out that begins now.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    Instant::now() + timeout
}

/// # Errors
/// The handler panicked, or did not respond before the deadline and was dropped.
pub(crate) async fn run(
    handler: impl Handler,
    request: Request,
    deadline: Instant,
) -> Result<Response, Problem> {
    let running = AssertUnwindSafe(handler.oneshot(request)).catch_unwind();
    match timeout_at(deadline, running).await {
        Ok(Ok(Ok(response))) => Ok(response),
        Ok(Ok(Err(never))) => match never {},
        Ok(Err(_)) => Err(Problem::Failed),
        Err(_) => Err(Problem::TimedOut),
    }
}
