//! Writing the cursor of a reader.
use crate::{
    Reader,
    cursor::{self, Renewal},
    log::lease_lost,
    options::{CURSOR_INTERVAL, NAMING_INTERVAL},
    owned_cursor::CursorWrite,
    shares::Share,
    task::finished,
    write_task::{FinishedWrite, WriteTask},
};
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::task_name::TaskName;
use twinbox_sql::{Dialect, Error, engine::Cursor};

impl<DB: Dialect> Reader<DB> {
    pub(super) async fn record_and_release(mut self) -> Result<(), Error> {
        self.queue.finish().await?;
        if self.writing.is_some() {
            let written = finished(&mut self.writing).await?;
            self.written(written)?;
        }
        let to = *self.queue.settled();
        if to != self.recorded {
            let written = self.write(to, self.reading.newest()).await?;
            let CursorWrite::Written { .. } = written else { return Err(lease_lost()) };
        }
        cursor::release(&self.engine, &self.destination, self.ownership).await
    }

    /// A cursor that messages have moved is written soon, one that is to name a newer tick within a second,
    /// and another one in time for the lease.
    pub(super) fn write_interval(&self) -> Duration {
        let renewal = self.options.lease / 4;
        if self.queue.settle_count() > self.settles_written {
            CURSOR_INTERVAL
        } else if self.reading.newest() > self.named {
            NAMING_INTERVAL.min(renewal)
        } else {
            renewal
        }
    }

    pub(super) fn start_writing(&mut self, now: Instant) {
        if self.writing.is_none() && now >= self.wrote_at + self.write_interval() {
            let to = *self.queue.settled();
            let ahead = self.reading.newest();
            let task = AbortOnDropHandle::new(tokio::spawn(TaskName::CursorWrite.of(self.write(to, ahead))));
            (self.wrote_at, self.settles_written) = (now, self.queue.settle_count());
            self.named = ahead;
            self.writing = Some(WriteTask { to, sent_at: now, task });
        }
    }

    fn write(
        &self,
        to: Cursor,
        ahead: i64,
    ) -> impl Future<Output = Result<CursorWrite, Error>> + Send + 'static {
        let (engine, destination) = (self.engine.clone(), self.destination.clone());
        let (lease, ownership, replay) = (self.options.lease, self.ownership, self.options.replay.clone());
        let renewal = Renewal {
            from: self.recorded,
            to,
            ahead: (self.reading.p, ahead),
            owned: self.share.as_ref().map_or(0, Share::owned),
        };
        async move {
            let replayed = replay.as_ref().map(|replay| &*replay.destination);
            cursor::advance(&engine, &destination, lease, ownership, renewal, replayed).await
        }
    }

    pub(super) fn note_pause(&mut self, pause_reason: Option<String>) {
        if pause_reason != self.pause_reason {
            let destination = &*self.destination;
            match &pause_reason {
                Some(reason) => tracing::warn!(destination, reason, "an operator paused the destination"),
                None => tracing::info!(destination, "an operator resumed the destination"),
            }
            self.pause_reason = pause_reason;
        }
    }

    fn note_wish(&self, wisher_owned: Option<i64>) {
        if let (Some(share), Some(theirs)) = (&self.share, wisher_owned)
            && share.give(theirs)
        {
            let destination = &*self.destination;
            tracing::info!(destination, theirs, "handing the destination over to a process with fewer");
        }
    }

    pub(super) fn written(&mut self, (to, sent_at, write): FinishedWrite) -> Result<(), Error> {
        let CursorWrite::Written { pause_reason, wisher_owned } = write else { return Err(lease_lost()) };
        self.note_pause(pause_reason);
        self.note_wish(wisher_owned);
        self.recorded = to;
        self.lease_end = sent_at + self.options.lease;
        Ok(())
    }
}
