//! A write of the cursor in a task of its own.
use crate::{
    owned_cursor::CursorWrite,
    task::{Task, joined},
};
use std::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use twinbox_sql::{Error, engine::Cursor};

/// A write of the cursor that is in flight.
pub(crate) struct WriteTask {
    pub(crate) to: Cursor,
    pub(crate) sent_at: Instant,
    pub(crate) task: AbortOnDropHandle<Result<CursorWrite, Error>>,
}

/// The cursor, when its write was sent, and the result.
pub(crate) type FinishedWrite = (Cursor, Instant, CursorWrite);

impl Task for WriteTask {
    type Output = FinishedWrite;

    fn poll_task(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<Self::Output, Error>> {
        let write = std::task::ready!(std::pin::Pin::new(&mut self.task).poll(cx));
        std::task::Poll::Ready(joined(write).map(|write| (self.to, self.sent_at, write)))
    }
}
