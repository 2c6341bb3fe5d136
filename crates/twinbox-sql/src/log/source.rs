//! The log as a source of deliveries: a consumer without a broker.
use super::{Entry, Reader, ReaderOptions, Start};
use crate::{Dialect, Error, Store};
use std::{collections::HashMap, fmt, time::Duration};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use twinbox_core::{
    BoxFuture, Horizon, Received, Settle, Source, SourceError, SourceErrorKind, Subscription, Transport,
};
use uuid::Uuid;

/// Consumers that read the log of their own database, each with its own cursor: nothing is published
/// anywhere, nothing is lost while no consumer runs, and one slow consumer stalls no other. Of several
/// processes with the same consumer one reads at a time; another takes over when its lease ends.
#[derive(Clone)]
pub struct LogTransport<DB: Dialect> {
    store: Store<DB>,
    options: ReaderOptions,
    owner: Uuid,
}

impl<DB: Dialect> Store<DB> {
    /// The log of this store as a transport for consumers.
    pub fn log(&self) -> LogTransport<DB> {
        LogTransport { store: self.clone(), options: ReaderOptions::new(), owner: Uuid::now_v7() }
    }
}

impl<DB: Dialect> LogTransport<DB> {
    /// Where a consumer that never ran before starts. Default: at the beginning.
    #[must_use]
    pub fn start(self, start: Start) -> Self {
        Self { options: self.options.start(start), ..self }
    }

    /// For how long a consumer that is not heard of keeps others out. Default 4 s.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { options: self.options.lease(lease), ..self }
    }
}

impl<DB: Dialect> Transport for LogTransport<DB> {
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>> {
        Box::pin(async move {
            let destination = reads_as(&subscription.consumer);
            let opened = Reader::open(&self.store, &destination, self.owner, self.options.clone()).await;
            let Some(reader) = opened.map_err(source_error)? else {
                return Err(SourceError::new(
                    SourceErrorKind::OwnedByAnother,
                    format!("another process runs the consumer {:?}", subscription.consumer),
                ));
            };
            let (deliveries, received) = mpsc::channel(subscription.concurrency.max(1));
            let stop = CancellationToken::new();
            let driver = Driver {
                reader,
                types: subscription.types.clone(),
                deliveries,
                held: HashMap::new(),
                next: 0,
                stop: stop.clone(),
            };
            let task = AbortOnDropHandle::new(tokio::spawn(driver.run()));
            Ok(Box::new(LogSource { received, task: Some(task), stop }) as Box<dyn Source>)
        })
    }
}

/// The name of the cursor of a consumer.
pub(crate) fn reads_as(consumer: &str) -> String {
    format!("consumer:{consumer}")
}

struct LogSource {
    received: mpsc::Receiver<Received>,
    task: Option<AbortOnDropHandle<Result<(), Error>>>,
    stop: CancellationToken,
}

impl Source for LogSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<Received>, SourceError>> {
        Box::pin(async move {
            let mut batch = Vec::new();
            if self.received.recv_many(&mut batch, max.max(1)).await > 0 {
                return Ok(batch);
            }
            let ended = match &mut self.task {
                Some(task) => flatten(task.await),
                None => Ok(()),
            };
            self.task = None;
            Err(match ended {
                Err(error) => source_error(error),
                Ok(()) => SourceError::new(SourceErrorKind::Unavailable, "the log source is closed"),
            })
        })
    }

    fn horizon(&self) -> Horizon {
        Horizon::Settled
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            self.stop.cancel();
            // Unhandled deliveries go back before the driver looks for the last time.
            self.received.close();
            while self.received.recv().await.is_some() {}
            match self.task.take() {
                Some(task) => flatten(task.await).map_err(source_error),
                None => Ok(()),
            }
        })
    }
}

fn flatten(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    ended.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))
}

fn source_error(error: Error) -> SourceError {
    let kind =
        if error.is_transient() { SourceErrorKind::Unavailable } else { SourceErrorKind::Misconfigured };
    SourceError::new(kind, format!("reading the log failed: {error}")).with_source(error)
}

/// What became of a delivery: settled, or to be delivered again after a delay.
type Answer = (u64, Option<Duration>);

struct Driver<DB: Dialect> {
    reader: Reader<DB>,
    types: Vec<String>,
    deliveries: mpsc::Sender<Received>,
    held: HashMap<u64, Entry>,
    next: u64,
    stop: CancellationToken,
}

impl<DB: Dialect> Driver<DB> {
    async fn run(mut self) -> Result<(), Error> {
        // Holds at most one answer for each delivery, and those are bounded.
        let (answer, mut answers) = mpsc::unbounded_channel();
        let deliveries = self.deliveries.clone();
        loop {
            let room = deliveries.capacity();
            tokio::select! {
                biased;
                Some(answered) = answers.recv() => self.take_in(answered),
                () = self.stop.cancelled() => break,
                _ = deliveries.reserve(), if room == 0 => {}
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
                nothing = self.reader.next(0) => drop(nothing?),
            }
        }
        self.reader.close().await
    }

    fn deliver(&mut self, entries: Vec<Entry>, answer: &mpsc::UnboundedSender<Answer>) {
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
            Some(delay) => self.reader.retry(entry, delay),
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

impl<DB: Dialect> fmt::Debug for LogTransport<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTransport").field("store", &self.store).finish_non_exhaustive()
    }
}
