//! The loop of one consumer: receive, handle beside each other, settle.
use crate::{
    Error, InboxRetention, Outcome, attempt,
    handler::{Handler, Run},
    keep_alive::keep_alive,
    memory::Memory,
    ordered,
    start::{OpenStarts, Runtime, given_back},
    status::{ConsumerState, Progress},
    trace,
};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use twinbox_core::{
    Horizon, Message, PartitionedLog, Received, Settle, Source, SourceError, SourceErrorKind, Subscription,
    Transport, crash, reconnect::Reconnect,
};
use twinbox_sql::{Dialect, Fence, Store, inbox::DeadReason};

/// How long deliveries under way may take after `stop`; what is not done then comes again.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// How often the lag is told.
const LAG_INTERVAL: Duration = Duration::from_secs(1);
/// How long a database may take to say that it is back.
const CHECK_MAX: Duration = Duration::from_secs(5);
/// How soon a message comes again that was not handled because the database was away.
const OUTAGE_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct Group<DB: Dialect, S> {
    pub(crate) subscription: Subscription,
    pub(crate) handlers: Vec<Handler<DB, S>>,
}

pub(crate) struct Worker<DB: Dialect, S> {
    shared: Arc<Shared<DB, S>>,
    transport: Arc<dyn Transport>,
}

/// What the deliveries of one consumer have in common.
pub(crate) struct Shared<DB: Dialect, S> {
    pub(crate) store: Store<DB>,
    state: Arc<S>,
    pub(crate) group: Group<DB, S>,
    /// How often each handler may run at a time, by event type.
    turns: HashMap<&'static str, Semaphore>,
    /// The last delivery found the database away.
    away: AtomicBool,
    pub(crate) stop: CancellationToken,
    pub(crate) open: OpenStarts,
    pub(crate) lease: Duration,
    pub(crate) progress: Arc<Progress>,
    memory: Memory,
}

/// How a transport lets a consumer read.
enum Opened {
    Source(Box<dyn Source>),
    Log(Box<dyn PartitionedLog>),
}

impl Opened {
    fn horizon(&self) -> Horizon {
        match self {
            Self::Source(source) => source.horizon(),
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
            stop: common.stop.clone(),
            open: OpenStarts::default(),
            lease: common.options.lease,
            memory: Memory::new(common.options.inbox_retention),
            group,
            progress,
        };
        Self { shared: Arc::new(shared), transport: common.transport.clone() }
    }

    /// Subscribes again whenever the source fails, until `stop`.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let Shared { store, group, memory, progress, .. } = &*self.shared;
        let forgetting = memory.forget(store, &group.subscription.consumer, progress);
        let ended = tokio::select! {
            ended = self.until_stopped() => ended,
            () = forgetting => unreachable!("forgetting has no end"),
        };
        progress.is(ConsumerState::Stopped);
        ended
    }

    async fn until_stopped(&self) -> Result<(), Error> {
        let (subscription, stop) = (&self.shared.group.subscription, &self.shared.stop);
        let mut reconnect = Reconnect::new();
        while !stop.is_cancelled() {
            let opened = tokio::select! {
                opened = self.open() => opened,
                () = stop.cancelled() => break,
            };
            if let Ok(opened) = &opened {
                self.shared.memory.reach(&subscription.consumer, opened.horizon())?;
            }
            let consumed = match opened {
                Ok(Opened::Source(source)) => self.consume(source, &mut reconnect).await,
                Ok(Opened::Log(log)) => ordered::consume(&self.shared, log, &mut reconnect).await,
                Err(error) => Err(error),
            };
            let Err(error) = consumed else { break };
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
        Ok(Opened::Source(self.transport.subscribe(subscription).await?))
    }

    async fn consume(
        &self,
        mut source: Box<dyn Source>,
        reconnect: &mut Reconnect,
    ) -> Result<(), SourceError> {
        let (limit, stop) = (self.shared.group.subscription.concurrency, &self.shared.stop);
        // Asking costs the source as much for one as for many.
        let room = limit.div_ceil(4);
        self.shared.progress.is(ConsumerState::Consuming);
        tracing::info!(consumer = self.shared.group.subscription.consumer, "consuming");
        let mut running: JoinSet<usize> = JoinSet::new();
        let mut held = 0;
        let mut outage = Reconnect::new();
        let mut asking = true;
        let mut looks = tokio::time::interval(LAG_INTERVAL);
        let failed = loop {
            // Until there is no room at all: what was asked for may come at any time.
            asking = held < limit && (asking || held <= limit - room);
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
                Some(done) = running.join_next() => {
                    held -= done.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                    if !self.shared.away.load(Relaxed) {
                        outage.reset();
                    }
                }
                _ = looks.tick() => self.shared.progress.set_lag(0, source.lag()),
                received = source.receive(limit.saturating_sub(held)), if asking => match received {
                    Ok(received) => {
                        reconnect.reset();
                        held += received.len();
                        self.start(received, &mut running);
                    }
                    Err(error) => break Some(error),
                }
            }
        };
        let closed = async {
            match failed {
                Some(error) => Err(error),
                None => source.close().await,
            }
        };
        // At the same time, so that what is given back goes to another process.
        let ((), closed) = tokio::join!(self.drain(running), closed);
        closed
    }

    /// Lets finish what is under way.
    async fn drain(&self, mut running: JoinSet<usize>) {
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
    fn start(&self, received: Vec<Received>, running: &mut JoinSet<usize>) {
        let shared = &self.shared;
        let (mut single, mut batches) = (Vec::new(), Vec::<(&str, Vec<Received>)>::new());
        for one in received {
            match shared.handler(&one.message.event_type) {
                Some(Handler { run: Run::Batch(_), event_type, policy, .. })
                    if one.defect.is_none() && !one.message.is_redacted() =>
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
            running.spawn(async move { shared.each(one).await }.instrument(span));
        }
        for (_, batch) in batches {
            let (shared, span) = (shared.clone(), shared.span(batch.iter().map(|one| &one.message)));
            running.spawn(async move { shared.batch(batch).await }.instrument(span));
        }
    }
}

impl<DB: Dialect, S: Send + Sync + 'static> Shared<DB, S> {
    pub(crate) fn handler(&self, event_type: &str) -> Option<&Handler<DB, S>> {
        self.group.handlers.iter().find(|h| h.event_type == event_type)
    }

    pub(crate) fn span<'a>(&self, messages: impl ExactSizeIterator<Item = &'a Message>) -> tracing::Span {
        trace::span(&self.group.subscription.consumer, messages)
    }

    pub(crate) fn runtime<'a>(
        &'a self,
        stop: &'a CancellationToken,
        fence: Option<Fence>,
    ) -> Runtime<'a, DB, S> {
        Runtime { store: &self.store, state: &self.state, stop, open: &self.open, fence }
    }

    async fn each(&self, received: Received) -> usize {
        let Received { message, defect, redelivered, settle } = received;
        let outcome = self.outcome(&self.stop, None, &message, defect, redelivered);
        let outcome = keep_alive(&[&*settle], outcome).await;
        self.settle(settle, &message, outcome).await;
        1
    }

    /// Waits until the handler of this type may run once more, and until there is a connection for it. None: it may not,
    /// because this process stops.
    pub(crate) async fn turn(
        &self,
        stop: &CancellationToken,
        event_type: &str,
    ) -> Option<[SemaphorePermit<'_>; 2]> {
        let turn = async {
            let turn = self.turns.get(event_type)?.acquire().await.ok()?;
            Some([turn, self.store.handlers().acquire().await.ok()?])
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            turn = turn => turn,
        }
    }

    /// What becomes of a delivery, when it is its turn. `fence`: of the partition that it is of.
    pub(crate) async fn outcome(
        &self,
        stop: &CancellationToken,
        fence: Option<Fence>,
        message: &Message,
        defect: Option<String>,
        redelivered: bool,
    ) -> Outcome {
        let consumer = self.group.subscription.consumer.as_str();
        if let Some(defect) = defect {
            return attempt::give_up(&self.store, consumer, message, DeadReason::Undecodable, &defect).await;
        }
        match self.handler(&message.event_type) {
            Some(handler) => {
                let Some(_turn) = self.turn(stop, handler.event_type).await else { return given_back() };
                let running = self.progress.begin();
                let outcome =
                    attempt::process(&self.runtime(stop, fence), handler, message, redelivered).await;
                running.end(&outcome);
                outcome
            }
            None if message.is_redacted() => attempt::redacted(&self.store, consumer, message).await,
            None => {
                let error = format!("{consumer} has no handler for {:?}", message.event_type);
                attempt::give_up(&self.store, consumer, message, DeadReason::NoHandler, &error).await
            }
        }
    }

    pub(crate) fn note(&self, message: &Message, outcome: &Outcome) {
        self.progress.note(outcome);
        trace::ended(outcome);
        let message_id = message.message_id();
        tracing::debug!(%message_id, ?outcome, "delivery done");
        if let Outcome::Retried { delay, counted: true, error } = outcome {
            tracing::info!(%message_id, ?delay, error, "the attempt failed, the message comes again");
        }
    }

    pub(crate) async fn settle(&self, settle: Box<dyn Settle>, message: &Message, outcome: Outcome) {
        self.note(message, &outcome);
        let settled = match outcome {
            Outcome::Handled | Outcome::Duplicate | Outcome::Redacted | Outcome::DeadLettered { .. } => {
                crash::point("consumer.before_ack");
                settle.ack().await
            }
            Outcome::Retried { delay, .. } => settle.nak(delay).await,
            Outcome::Unavailable => {
                self.away.store(true, Relaxed);
                settle.nak(OUTAGE_DELAY).await
            }
        };
        if let Err(error) = settled {
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(message_id = %message.message_id(), error = cause, "not confirmed, the message may come again");
        }
        crash::point("consumer.after_ack");
    }
}
