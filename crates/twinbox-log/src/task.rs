//! Tasks that go on when the future that waits for them is dropped.
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;
use twinbox_sql::{Error, engine::silent};

/// A task, so that the future that waits for it can be dropped.
pub(crate) trait Task {
    type Output;
    fn poll_task(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<Self::Output, Error>>;
}

/// Waits for the task in the slot and empties the slot. Waits for ever if there is none.
pub(crate) async fn finished<T: Task>(slot: &mut Option<T>) -> Result<T::Output, Error> {
    std::future::poll_fn(|cx| match slot {
        None => std::task::Poll::Pending,
        Some(task) => {
            let result = std::task::ready!(task.poll_task(cx));
            *slot = None;
            std::task::Poll::Ready(result)
        }
    })
    .await
}

/// Fails if the work takes longer.
pub(crate) async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(silent(limit).into()))
}

pub(crate) fn joined<T>(result: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, Error> {
    match result {
        Ok(result) => result,
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
    }
}

impl<T> Task for AbortOnDropHandle<Result<T, Error>> {
    type Output = T;

    fn poll_task(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<T, Error>> {
        std::pin::Pin::new(self).poll(cx).map(joined)
    }
}
