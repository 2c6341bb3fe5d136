//! The log as a source of deliveries: a consumer without a broker.
use super::{Reader, ReaderOptions, Start, driver::Driver, replays::Replays};
use crate::{Dialect, Error, Store};
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use twinbox_core::{
    BoxFuture, Horizon, Received, Source, SourceError, SourceErrorKind, Subscription, Transport,
};
use uuid::Uuid;

/// Of the deliveries under way, and of those that are asked for, one in so many may be a replay's.
const REPLAY_SHARE: usize = 4;

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
            let Some(reader) = opened? else {
                return Err(SourceError::new(
                    SourceErrorKind::OwnedByAnother,
                    format!("another process runs the consumer {:?}", subscription.consumer),
                ));
            };
            let (deliveries, received) = mpsc::channel(subscription.concurrency.max(1));
            // Of their own, so that what is new never waits behind them.
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
            let task = AbortOnDropHandle::new(tokio::spawn(async move {
                // Dropped with the driver if that fails: whoever reads for the consumer executes its replays.
                let replays = AbortOnDropHandle::new(tokio::spawn(replays.run()));
                driver.run().await?;
                let _ = replays.await;
                Ok(())
            }));
            let task = Some(task);
            Ok(Box::new(LogSource { received, replayed, asked: 0, task, stop }) as Box<dyn Source>)
        })
    }
}

/// The name of the cursor of a consumer.
pub(crate) fn reads_as(consumer: &str) -> String {
    format!("consumer:{consumer}")
}

struct LogSource {
    received: mpsc::Receiver<Received>,
    replayed: mpsc::Receiver<Received>,
    /// How often it was asked.
    asked: usize,
    task: Option<AbortOnDropHandle<Result<(), Error>>>,
    stop: CancellationToken,
}

impl Source for LogSource {
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<Received>, SourceError>> {
        Box::pin(async move {
            let mut batch = Vec::new();
            self.asked = self.asked.wrapping_add(1);
            if self.asked.is_multiple_of(REPLAY_SHARE) {
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

    fn horizon(&self) -> Horizon {
        Horizon::Settled
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            self.stop.cancel();
            // Unhandled deliveries go back before the driver looks for the last time.
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

impl From<Error> for SourceError {
    fn from(error: Error) -> Self {
        let kind =
            if error.is_transient() { SourceErrorKind::Unavailable } else { SourceErrorKind::Misconfigured };
        Self::new(kind, format!("reading the store failed: {error}")).with_source(error)
    }
}

impl<DB: Dialect> fmt::Debug for LogTransport<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTransport").field("store", &self.store).finish_non_exhaustive()
    }
}
