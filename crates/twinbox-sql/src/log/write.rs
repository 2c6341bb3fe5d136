//! A write of the cursor on its way.
use super::{
    Cursor,
    cursor::Advanced,
    task::{Task, joined},
};
use crate::Error;
use std::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// How far it is to say that all is settled, and since when.
pub(super) struct Write {
    pub(super) to: Cursor,
    pub(super) sent_at: Instant,
    pub(super) task: AbortOnDropHandle<Result<Advanced, Error>>,
}

pub(super) type Written = (Cursor, Instant, Advanced);

impl Task for Write {
    type Output = Written;

    fn poll_task(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<Self::Output, Error>> {
        let advanced = std::task::ready!(std::pin::Pin::new(&mut self.task).poll(cx));
        std::task::Poll::Ready(joined(advanced).map(|advanced| (self.to, self.sent_at, advanced)))
    }
}
