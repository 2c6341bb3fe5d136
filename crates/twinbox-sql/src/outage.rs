//! The beginning of a program, which may be in an outage.
use crate::{Dialect, Error, Store};
use tokio_util::sync::CancellationToken;
use twinbox_core::backoff::Backoff;

/// Does the first work of a program again until no outage hinders it. None: it was stopped before.
///
/// # Errors
/// An error of the work that needs a person, or any once the pool of the store is closed.
pub async fn outlast<DB: Dialect, T, F: Future<Output = Result<T, Error>>>(
    store: &Store<DB>,
    stop: &CancellationToken,
    mut work: impl FnMut() -> F,
) -> Result<Option<T>, Error> {
    let mut back_off = Backoff::new();
    loop {
        match stop.run_until_cancelled(work()).await {
            None => return Ok(None),
            Some(Err(error)) if error.is_transient() && !store.pool().is_closed() => {
                let pause = back_off.pause();
                tracing::warn!(
                    ?pause,
                    error = &error as &dyn std::error::Error,
                    "the program cannot begin yet"
                );
                let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            }
            Some(done) => return done.map(Some),
        }
    }
}
