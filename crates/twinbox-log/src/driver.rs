//! Passes the messages of a reader to a consumer, and the results back.
use crate::Reader;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use twinbox_core::{
    BoxFuture, ReceivedMessage, Settle, SourceError, SourceErrorKind, Timestamp,
    lanes::{Budget, Entry},
    rate_limit::RateLimit,
};
use twinbox_sql::{Dialect, Error};

/// The result of a delivery: settled, or to be delivered again after a delay.
type Outcome = (u64, Option<Duration>);

/// Hands out the messages of a reader.
pub(crate) struct Driver<DB: Dialect> {
    reader: Reader<DB>,
    types: Arc<[String]>,
    deliveries: mpsc::Sender<ReceivedMessage>,
    /// The most messages a second.
    rate: Option<u32>,
    stop: CancellationToken,
    in_flight: HashMap<u64, Entry>,
    next: u64,
    pace: RateLimit,
}

impl<DB: Dialect> Driver<DB> {
    pub(crate) fn new(
        reader: Reader<DB>,
        types: Arc<[String]>,
        deliveries: mpsc::Sender<ReceivedMessage>,
        rate: Option<u32>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            reader,
            types,
            deliveries,
            rate,
            stop,
            in_flight: HashMap::new(),
            next: 0,
            pace: RateLimit::default(),
        }
    }

    /// Runs until it is stopped, or a replay has ended or is paused. True: the replay has ended.
    pub(crate) async fn run(mut self) -> Result<bool, Error> {
        // Holds at most one outcome for each delivery, and deliveries are bounded.
        let (outcome, mut outcomes) = mpsc::unbounded_channel();
        let deliveries = self.deliveries.clone();
        let is_replay = self.reader.is_replay();
        while !(self.reader.has_ended() || is_replay && self.reader.pause_reason().is_some()) {
            let free = deliveries.capacity();
            let (room, wait) = match self.pace.allowance(self.rate, Instant::now()) {
                Ok(allowed) => (allowed.min(free), None),
                Err(wait) => (0, Some(wait)),
            };
            tokio::select! {
                biased;
                Some(outcome) = outcomes.recv() => self.take_in(outcome),
                () = self.stop.cancelled() => break,
                _ = deliveries.reserve(), if free == 0 => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                entries = self.reader.next(room) => self.deliver(entries?, &outcome),
            }
        }
        drop(outcome);
        // Deliveries in flight keep the lease.
        loop {
            tokio::select! {
                biased;
                outcome = outcomes.recv() => match outcome {
                    Some(outcome) => self.take_in(outcome),
                    None => break,
                },
                nothing = self.reader.next(Budget::NONE) => drop(nothing?),
            }
        }
        let ended = self.reader.has_ended();
        self.reader.close().await?;
        Ok(ended)
    }

    fn deliver(&mut self, entries: Vec<Entry>, outcome: &mpsc::UnboundedSender<Outcome>) {
        self.pace.pay(self.rate, entries.len());
        for entry in entries {
            if self.types.binary_search(&entry.message.event_type).is_err() {
                self.reader.settle(entry.ticket);
                continue;
            }
            self.next += 1;
            let mut message = (*entry.message).clone();
            let defect = (!message.time.fits_rfc3339()).then(|| {
                // A dead letter needs a time that its table takes.
                message.time = Timestamp::from_micros(0);
                "its row has no time, or one outside of the years 0 to 9999".to_owned()
            });
            let received = ReceivedMessage {
                message,
                defect,
                redelivered: entry.ticket.may_be_repeated,
                settle: Box::new(Settlement { number: self.next, outcome: Some(outcome.clone()) }),
            };
            self.in_flight.insert(self.next, entry);
            // There is room. If the receiver is gone, dropping the delivery sends an outcome.
            let _ = self.deliveries.try_send(received);
        }
    }

    fn take_in(&mut self, (number, again): Outcome) {
        let Some(entry) = self.in_flight.remove(&number) else { return };
        match again {
            None => self.reader.settle(entry.ticket),
            Some(delay) => self.reader.retry(entry, delay, true),
        }
    }
}

/// Sends an outcome once, at the latest when it is dropped.
struct Settlement {
    number: u64,
    outcome: Option<mpsc::UnboundedSender<Outcome>>,
}

impl Settlement {
    fn send(&mut self, again: Option<Duration>) -> Result<(), SourceError> {
        let is_sent = self.outcome.take().is_some_and(|outcome| outcome.send((self.number, again)).is_ok());
        is_sent
            .then_some(())
            .ok_or_else(|| SourceError::new(SourceErrorKind::NotConfirmed, "the log source is gone"))
    }
}

impl Settle for Settlement {
    fn ack(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move { self.send(None) })
    }

    fn nak(mut self: Box<Self>, delay: Duration) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move { self.send(Some(delay)) })
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
        if self.outcome.is_some() {
            let _ = self.send(Some(Duration::ZERO));
        }
    }
}
