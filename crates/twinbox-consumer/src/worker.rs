//! The loop of one consumer: receive, handle beside each other, settle.
use crate::{
    Error, InboxRetention,
    handler::{Handler, Run},
    memory::Memory,
    operated, ordered,
    shared::Shared,
    start::OpenStarts,
    status::{ConsumerState, Progress},
    under_way::{Taken, UnderWay},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use twinbox_core::{
    Horizon, PartitionedLog, Received, Source, SourceError, SourceErrorKind, Subscription, Transport,
    reconnect::Reconnect,
};
use twinbox_sql::{ClaimFence, Dialect, Store};

/// How long deliveries under way may take after `stop`; what is not done then comes again.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(30);
/// How often the lag is told.
const LAG_INTERVAL: Duration = Duration::from_secs(1);
/// How long a database may take to say that it is back.
const CHECK_MAX: Duration = Duration::from_secs(5);
pub(crate) struct Group<DB: Dialect, S> {
    pub(crate) subscription: Subscription,
    pub(crate) handlers: Vec<Handler<DB, S>>,
}

pub(crate) struct Worker<DB: Dialect, S> {
    shared: Arc<Shared<DB, S>>,
    transport: Arc<dyn Transport>,
}

/// How a transport lets a consumer read.
enum Opened {
    /// And what the claims of its deliveries are behind.
    Source(Box<dyn Source>, Option<ClaimFence>),
    Log(Box<dyn PartitionedLog>),
}

impl Opened {
    fn horizon(&self) -> Horizon {
        match self {
            Self::Source(source, _) => source.horizon(),
            Self::Log(log) => log.horizon(),
        }
    }
}

/// What all consumers of a process are run with.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) lease: Duration,
    pub(crate) inbox_retention: InboxRetention,
}

/// What all consumers of a process have in common.
pub(crate) struct Common<DB: Dialect, S> {
    pub(crate) store: Store<DB>,
    pub(crate) state: Arc<S>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) stop: CancellationToken,
    pub(crate) options: Options,
}

impl<DB: Dialect, S: Send + Sync + 'static> Worker<DB, S> {
    pub(crate) fn new(common: &Common<DB, S>, group: Group<DB, S>, progress: Arc<Progress>) -> Self {
        let turns =
            group.handlers.iter().map(|h| (h.event_type, Semaphore::new(h.policy.concurrency.max(1))));
        let shared = Shared {
            store: common.store.clone(),
            state: common.state.clone(),
            turns: turns.collect(),
            away: AtomicBool::new(false),
            stale: AtomicBool::new(false),
            stop: common.stop.clone(),
            open: OpenStarts::default(),
            lease: common.options.lease,
            memory: Memory::new(common.options.inbox_retention),
            group,
            progress,
            paused: watch::Sender::new(false),
            log: Mutex::default(),
        };
        Self { shared: Arc::new(shared), transport: common.transport.clone() }
    }

    /// Subscribes again whenever the source fails, until `stop`.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let Shared { store, group, memory, progress, .. } = &*self.shared;
        let forgetting = memory.forget(store, &group.subscription.consumer, progress);
        let over = self.shared.stop.child_token();
        let consuming = async {
            // Whether it is held back is known before the first delivery.
            let _ = self.shared.stop.run_until_cancelled(operated::look(&self.shared)).await;
            let ended = self.until_stopped().await;
            over.cancel();
            ended
        };
        let consuming = async { tokio::join!(consuming, operated::redrive(&self.shared, &over)).0 };
        let ended = tokio::select! {
            ended = consuming => ended,
            () = forgetting => unreachable!("forgetting has no end"),
            () = operated::keep_looking(&self.shared) => unreachable!("looking has no end"),
        };
        progress.is(ConsumerState::Stopped);
        ended
    }

    async fn until_stopped(&self) -> Result<(), Error> {
        let mut running = UnderWay::new(&self.shared.group.handlers);
        let ended = self.subscribe_again(&mut running).await;
        self.drain(running.tasks).await;
        ended
    }

    /// Subscribes anew. Deliveries that were under way when a source failed live on beside those of the next one.
    async fn subscribe_again(&self, running: &mut UnderWay) -> Result<(), Error> {
        let (subscription, stop) = (&self.shared.group.subscription, &self.shared.stop);
        let mut reconnect = Reconnect::new();
        let mut paused = self.shared.paused.subscribe();
        while !stop.is_cancelled() {
            if *paused.borrow_and_update() {
                self.shared.progress.is(ConsumerState::Paused);
                tokio::select! {
                    _ = paused.changed() => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
            let opened = tokio::select! {
                opened = self.open() => opened,
                () = stop.cancelled() => break,
            };
            if let Ok(opened) = &opened {
                self.shared.memory.reach(&subscription.consumer, opened.horizon())?;
                if let Opened::Log(_) = opened {
                    let mut handlers = self.shared.group.handlers.iter();
                    handlers.try_for_each(|handler| handler.check_lease(self.shared.lease))?;
                }
            }
            let session = stop.child_token();
            let consumed = async {
                match opened {
                    Ok(Opened::Source(source, fence)) => {
                        self.consume(source, fence, running, &mut reconnect, &session).await
                    }
                    Ok(Opened::Log(log)) => {
                        ordered::consume(&self.shared, log, &mut reconnect, &session).await
                    }
                    Err(error) => Err(error),
                }
            };
            let held_back = async {
                let _ = paused.wait_for(|paused| *paused).await;
                session.cancel();
                std::future::pending().await
            };
            let consumed = tokio::select! {
                consumed = consumed => consumed,
                () = held_back => unreachable!("it only ends the session"),
            };
            let Err(error) = consumed else { continue };
            if !error.is_transient() {
                return Err(error.into());
            }
            let consumer = subscription.consumer.as_str();
            if error.kind() == SourceErrorKind::OwnedByAnother {
                self.shared.progress.is(ConsumerState::Standby);
                tracing::debug!(consumer, "{error}");
            } else {
                self.shared.progress.is(ConsumerState::Waiting);
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(consumer, error = cause, "the source failed, subscribing again");
            }
            tokio::select! {
                () = tokio::time::sleep(reconnect.pause().min(Duration::from_secs(1))) => {}
                () = stop.cancelled() => {}
            }
        }
        Ok(())
    }

    async fn open(&self) -> Result<Opened, SourceError> {
        let subscription = &self.shared.group.subscription;
        if subscription.ordered
            && let Some(log) = self.transport.open_log(subscription).await?
        {
            return Ok(Opened::Log(log));
        }
        // Before anything of it is handled, and kept in order by what is remembered of that.
        let fence = match subscription.ordered && DB::BEGIN_RUN.is_some() {
            true => Some(ClaimFence::Run(self.shared.store.server_run().await?)),
            false => None,
        };
        Ok(Opened::Source(self.transport.subscribe(subscription).await?, fence))
    }

    async fn consume(
        &self,
        mut source: Box<dyn Source>,
        fence: Option<ClaimFence>,
        running: &mut UnderWay,
        reconnect: &mut Reconnect,
        stop: &CancellationToken,
    ) -> Result<(), SourceError> {
        let limit = self.shared.group.subscription.concurrency;
        // Asking costs the source as much for one as for many.
        let room = running.least_share().div_ceil(4);
        self.shared.progress.is(ConsumerState::Consuming);
        tracing::info!(consumer = self.shared.group.subscription.consumer, "consuming");
        let mut outage = Reconnect::new();
        let mut asking = true;
        let mut looks = tokio::time::interval(LAG_INTERVAL);
        let failed = loop {
            // Until there is no room at all: what was asked for may come at any time.
            let free = running.room(limit);
            asking = free > 0 && (asking || free >= room);
            if self.shared.stale.swap(false, Relaxed) {
                let what =
                    "the server started anew: what was handled may be forgotten, and is asked for again";
                break Some(SourceError::new(SourceErrorKind::Unavailable, what));
            }
            if self.shared.away.swap(false, Relaxed) {
                let pause = outage.pause();
                tracing::warn!(?pause, "the database is away, fetching pauses");
                let is_back = async {
                    tokio::time::sleep(pause).await;
                    tokio::time::timeout(CHECK_MAX, self.shared.store.check()).await
                };
                tokio::select! {
                    back = is_back => match back {
                        Ok(Ok(())) => self.shared.progress.is(ConsumerState::Consuming),
                        _ => self.shared.away.store(true, Relaxed),
                    },
                    () = stop.cancelled() => {}
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break None,
                Some(done) = running.tasks.join_next() => {
                    running.done(&done.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())));
                    if !self.shared.away.load(Relaxed) {
                        outage.reset();
                    }
                }
                _ = looks.tick() => self.shared.progress.set_lag(0, source.lag()),
                received = source.receive(free), if asking => match received {
                    Ok(received) => {
                        reconnect.reset();
                        self.start(received, fence, running);
                    }
                    Err(error) => break Some(error),
                }
            }
        };
        if let Some(error) = failed {
            return Err(error);
        }
        let mut closing = source.close();
        tokio::select! {
            biased;
            closed = &mut closing => closed,
            // At the same time, so that what is given back goes to another process.
            () = self.shared.stop.cancelled() => {
                tokio::join!(self.drain(std::mem::take(&mut running.tasks)), closing).1
            }
        }
    }

    /// Lets finish what is under way.
    async fn drain(&self, mut running: JoinSet<Taken>) {
        let done = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_MAX, done).await.is_err() {
            tracing::warn!(deliveries = running.len(), "not done in time, they will come again");
            running.shutdown().await;
            let open = self.shared.open.take();
            self.shared
                .runtime(&self.shared.stop, None)
                .end(&self.shared.group.subscription.consumer, open)
                .await;
        }
    }

    /// Spawns what was received: one task for each delivery, or for each batch.
    fn start(&self, received: Vec<Received>, fence: Option<ClaimFence>, running: &mut UnderWay) {
        let shared = &self.shared;
        let (mut single, mut batches) = (Vec::new(), Vec::<(&str, Vec<Received>)>::new());
        for one in received {
            match shared.handler(&one.message.event_type) {
                Some(Handler { run: Run::Batch(_), event_type, policy, .. })
                    if one.defect.is_none()
                        && !one.message.is_redacted()
                        && one.message.reprocess().is_none() =>
                {
                    match batches.iter_mut().find(|(t, batch)| t == event_type && batch.len() < policy.batch)
                    {
                        Some((_, batch)) => batch.push(one),
                        None => batches.push((event_type, vec![one])),
                    }
                }
                _ => single.push(one),
            }
        }
        for one in single {
            let (shared, span) = (shared.clone(), shared.span(std::iter::once(&one.message)));
            let taken = Taken::of(&shared.group.handlers, std::slice::from_ref(&one));
            running.took(&taken);
            let each = async move {
                shared.each(fence, one).await;
                taken
            };
            running.tasks.spawn(each.instrument(span));
        }
        for (_, batch) in batches {
            let (shared, span) = (shared.clone(), shared.span(batch.iter().map(|one| &one.message)));
            let taken = Taken::of(&shared.group.handlers, &batch);
            running.took(&taken);
            let batch = async move {
                shared.batch(batch).await;
                taken
            };
            running.tasks.spawn(batch.instrument(span));
        }
    }
}
