//! From a reader to deliveries, and from their settlements back.
use super::{Entry, Reader, Room};
use crate::{Dialect, Error};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use twinbox_core::{BoxFuture, Received, Settle, SourceError, SourceErrorKind, pace::Pace};

/// What became of a delivery: settled, or to be delivered again after a delay.
type Answer = (u64, Option<Duration>);

/// Hands out what a reader reads.
pub(super) struct Driver<DB: Dialect> {
    pub(super) reader: Reader<DB>,
    pub(super) types: Arc<[String]>,
    pub(super) deliveries: mpsc::Sender<Received>,
    /// Messages a second, at most.
    pub(super) rate: Option<u32>,
    pub(super) stop: CancellationToken,
    held: HashMap<u64, Entry>,
    next: u64,
    pace: Pace,
}

impl<DB: Dialect> Driver<DB> {
    pub(super) fn new(
        reader: Reader<DB>,
        types: Arc<[String]>,
        deliveries: mpsc::Sender<Received>,
        rate: Option<u32>,
        stop: CancellationToken,
    ) -> Self {
        Self { reader, types, deliveries, rate, stop, held: HashMap::new(), next: 0, pace: Pace::default() }
    }

    /// Until it is stopped, or a replay is at its end, or held back. True: it is at its end.
    pub(super) async fn run(mut self) -> Result<bool, Error> {
        // Holds at most one answer for each delivery, and those are bounded.
        let (answer, mut answers) = mpsc::unbounded_channel();
        let deliveries = self.deliveries.clone();
        let is_replay = self.reader.is_replay();
        while !(self.reader.has_ended() || is_replay && self.reader.held().is_some()) {
            let free = deliveries.capacity();
            let (room, wait) = match self.pace.allowance(self.rate, Instant::now()) {
                Ok(allowed) => (allowed.min(free), None),
                Err(wait) => (0, Some(wait)),
            };
            tokio::select! {
                biased;
                Some(answered) = answers.recv() => self.take_in(answered),
                () = self.stop.cancelled() => break,
                _ = deliveries.reserve(), if free == 0 => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                entries = self.reader.next(room) => self.deliver(entries?, &answer),
            }
        }
        drop(answer);
        // Deliveries that are still worked on keep the lease.
        loop {
            tokio::select! {
                biased;
                answered = answers.recv() => match answered {
                    Some(answered) => self.take_in(answered),
                    None => break,
                },
                nothing = self.reader.next(Room::NONE) => drop(nothing?),
            }
        }
        let ended = self.reader.has_ended();
        self.reader.close().await?;
        Ok(ended)
    }

    fn deliver(&mut self, entries: Vec<Entry>, answer: &mpsc::UnboundedSender<Answer>) {
        self.pace.pay(self.rate, entries.len());
        for entry in entries {
            if self.types.binary_search(&entry.message.event_type).is_err() {
                self.reader.settle(entry.ticket);
                continue;
            }
            self.next += 1;
            let received = Received {
                message: (*entry.message).clone(),
                defect: None,
                redelivered: entry.ticket.repeated,
                settle: Box::new(Settlement { number: self.next, answer: Some(answer.clone()) }),
            };
            self.held.insert(self.next, entry);
            // There is room, and if nobody listens any more, dropping it is an answer.
            let _ = self.deliveries.try_send(received);
        }
    }

    fn take_in(&mut self, (number, again): Answer) {
        let Some(entry) = self.held.remove(&number) else { return };
        match again {
            None => self.reader.settle(entry.ticket),
            Some(delay) => self.reader.retry(entry, delay, true),
        }
    }
}

/// Answers once, at the latest when it is dropped.
struct Settlement {
    number: u64,
    answer: Option<mpsc::UnboundedSender<Answer>>,
}

impl Settlement {
    fn answer(&mut self, again: Option<Duration>) -> Result<(), SourceError> {
        let sent = self.answer.take().is_some_and(|answer| answer.send((self.number, again)).is_ok());
        sent.then_some(())
            .ok_or_else(|| SourceError::new(SourceErrorKind::NotConfirmed, "the log source is gone"))
    }
}

impl Settle for Settlement {
    fn ack(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move { self.answer(None) })
    }

    fn nak(mut self: Box<Self>, delay: Duration) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move { self.answer(Some(delay)) })
    }

    fn progress(&self) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    fn progress_interval(&self) -> Option<Duration> {
        None
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        if self.answer.is_some() {
            let _ = self.answer(Some(Duration::ZERO));
        }
    }
}
