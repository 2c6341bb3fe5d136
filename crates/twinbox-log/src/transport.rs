//! The log as the transport of a consumer, without a broker.
use crate::{Reader, ReaderOptions, StartPosition, driver::Driver, replays::Replays};
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use twinbox_core::{
    BoxFuture, MaxAge, ReceivedMessage, Source, SourceError, SourceErrorKind, Subscription, Transport,
    task_name::TaskName,
};
use twinbox_sql::{Dialect, Error, ReaderName, Store};
use uuid::Uuid;

/// One in so many deliveries in flight, and of the requests for deliveries, may be of a replay.
const REPLAY_SHARE: usize = 4;

/// The log of a store as the transport of its consumers, each with its own cursor. No broker is needed, no
/// message is lost while a consumer is stopped, and a slow consumer stalls no other. Of several processes
/// with the same consumer one reads at a time; another takes over when its lease ends.
#[derive(Clone)]
pub struct LogTransport<DB: Dialect> {
    store: Store<DB>,
    options: ReaderOptions,
    owner: Uuid,
}

impl<DB: Dialect> LogTransport<DB> {
    /// Creates the transport that reads the log of a store.
    pub fn new(store: &Store<DB>) -> Self {
        Self { store: store.clone(), options: ReaderOptions::new(), owner: Uuid::now_v7() }
    }

    /// Sets where a consumer that never ran before starts in the log. Default: at the beginning.
    #[must_use]
    pub fn start(self, start: StartPosition) -> Self {
        Self { options: self.options.start(start), ..self }
    }

    /// Sets how long a process keeps its lease on a consumer without renewing it. Default: 4 s.
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
            let destination = ReaderName::Consumer(subscription.consumer.clone()).to_string();
            let opened = Reader::open(&self.store, &destination, self.owner, self.options.clone()).await;
            let Some(reader) = opened? else {
                return Err(SourceError::new(
                    SourceErrorKind::OwnedByAnother,
                    format!("another process runs the consumer {:?}", subscription.consumer),
                ));
            };
            let (deliveries, received) = mpsc::channel(subscription.concurrency.max(1));
            // A queue of their own, so that new messages never wait behind them.
            let (replays, replayed) = mpsc::channel(subscription.concurrency.div_ceil(REPLAY_SHARE).max(1));
            let stop = CancellationToken::new();
            let types: Arc<[String]> = subscription.types.clone().into();
            let replays = Replays {
                store: self.store.clone(),
                destination,
                owner: self.owner,
                options: self.options.clone(),
                types: types.clone(),
                deliveries: replays,
                stop: stop.clone(),
            };
            let driver = Driver::new(reader, types, deliveries, None, stop.clone());
            let task = AbortOnDropHandle::new(tokio::spawn(TaskName::LogDriver.of(async move {
                // Dropped with the driver if that fails: the owner of the cursor executes the replays.
                let replays = AbortOnDropHandle::new(tokio::spawn(TaskName::LogReplays.of(replays.run())));
                driver.run().await?;
                let _ = replays.await;
                Ok(())
            })));
            let task = Some(task);
            Ok(Box::new(LogSource { received, replayed, requests: 0, task, stop }) as Box<dyn Source>)
        })
    }
}

struct LogSource {
    received: mpsc::Receiver<ReceivedMessage>,
    replayed: mpsc::Receiver<ReceivedMessage>,
    /// How many times deliveries were requested.
    requests: usize,
    task: Option<AbortOnDropHandle<Result<(), Error>>>,
    stop: CancellationToken,
}

impl Source for LogSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<ReceivedMessage>, SourceError>> {
        Box::pin(async move {
            let mut batch = Vec::new();
            self.requests = self.requests.wrapping_add(1);
            if self.requests.is_multiple_of(REPLAY_SHARE) {
                batch.extend(self.replayed.try_recv());
            }
            if !batch.is_empty() {
                return Ok(batch);
            }
            let mut ended = false;
            while !ended {
                tokio::select! {
                    biased;
                    some = self.received.recv_many(&mut batch, max.max(1)) => ended = some == 0,
                    Some(one) = self.replayed.recv() => batch.push(one),
                }
                if !batch.is_empty() {
                    return Ok(batch);
                }
            }
            let ended = match &mut self.task {
                Some(task) => flatten(task.await),
                None => Ok(()),
            };
            self.task = None;
            Err(match ended {
                Err(error) => error.into(),
                Ok(()) => SourceError::new(SourceErrorKind::Unavailable, "the log source is closed"),
            })
        })
    }

    fn max_age(&self) -> MaxAge {
        MaxAge::Settled
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            self.stop.cancel();
            // Unhandled deliveries go back before the driver collects outcomes for the last time.
            self.received.close();
            self.replayed.close();
            while self.received.recv().await.is_some() {}
            while self.replayed.recv().await.is_some() {}
            match self.task.take() {
                Some(task) => flatten(task.await).map_err(SourceError::from),
                None => Ok(()),
            }
        })
    }
}

fn flatten(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    ended.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))
}

impl<DB: Dialect> fmt::Debug for LogTransport<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTransport").field("store", &self.store).finish_non_exhaustive()
    }
}
