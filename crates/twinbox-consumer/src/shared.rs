//! What the deliveries of one consumer have in common, and what becomes of each.
use crate::{
    Outcome, attempt,
    handler::Handler,
    keep_alive::keep_alive,
    memory::Memory,
    start::{OpenStarts, Runtime, given_back},
    status::Progress,
    trace,
    worker::Group,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use twinbox_core::{Message, PartitionedLog, Received, Settle, crash};
use twinbox_sql::{
    ClaimFence, Dialect, Store,
    inbox::{DeadReason, Superseded},
};

/// How soon a message comes again that was not handled because the database was away.
const OUTAGE_DELAY: Duration = Duration::from_secs(1);

/// What the deliveries of one consumer have in common.
pub(crate) struct Shared<DB: Dialect, S> {
    pub(crate) store: Store<DB>,
    pub(crate) state: Arc<S>,
    pub(crate) group: Group<DB, S>,
    /// How often each handler may run at a time, by event type.
    pub(crate) turns: HashMap<&'static str, Semaphore>,
    /// The last delivery found the database away.
    pub(crate) away: AtomicBool,
    /// The server has started anew since the source was opened.
    pub(crate) stale: AtomicBool,
    pub(crate) stop: CancellationToken,
    pub(crate) open: OpenStarts,
    pub(crate) lease: Duration,
    pub(crate) progress: Arc<Progress>,
    /// Whether somebody holds the consumer back.
    pub(crate) paused: watch::Sender<bool>,
    pub(crate) memory: Memory,
    /// The log that it reads in partitions, if it does.
    pub(crate) log: Mutex<Option<Arc<dyn PartitionedLog>>>,
}

impl<DB: Dialect, S> Shared<DB, S> {
    pub(crate) fn log(&self) -> Option<Arc<dyn PartitionedLog>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        fence: Option<ClaimFence>,
    ) -> Runtime<'a, DB, S> {
        Runtime { store: &self.store, state: &self.state, stop, open: &self.open, fence }
    }

    pub(crate) async fn each(&self, fence: Option<ClaimFence>, received: Received) {
        let Received { message, defect, redelivered, settle } = received;
        let outcome = self.outcome(&self.stop, fence, &message, defect, redelivered);
        let outcome = keep_alive(&[&*settle], outcome).await;
        self.settle(settle, &message, outcome).await;
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

    /// Handles a delivery when it is its turn, and says what became of it. The claim is made behind the `fence`.
    pub(crate) async fn outcome(
        &self,
        stop: &CancellationToken,
        fence: Option<ClaimFence>,
        message: &Message,
        defect: Option<String>,
        redelivered: bool,
    ) -> Outcome {
        let consumer = self.group.subscription.consumer.as_str();
        if let Some(defect) = defect {
            return attempt::give_up(&self.store, consumer, message, DeadReason::Undecodable, &defect).await;
        }
        let replay = match message.reprocess() {
            Some((for_whom, _)) if for_whom != consumer => return Outcome::PassedBy,
            Some((_, replay)) => replay,
            None => return self.handle(stop, fence, message, redelivered).await,
        };
        let taken = match self.store.supersede(consumer, message, replay).await {
            Ok(taken) => taken,
            Err(error) => return attempt::store_error(&error).in_a_second(),
        };
        tracing::info!(consumer, message_id = %message.message_id(), %replay, ?taken, "to run again for a replay");
        let outcome = self.handle(stop, fence, message, redelivered).await;
        if outcome != Outcome::Duplicate || taken != Superseded::Unclaimed {
            return outcome;
        }
        // Somebody was at it, and has committed since.
        match self.store.supersede_late(consumer, message, replay).await {
            Ok(true) => self.handle(stop, fence, message, redelivered).await,
            Ok(false) => outcome,
            Err(error) => attempt::store_error(&error).in_a_second(),
        }
    }

    async fn handle(
        &self,
        stop: &CancellationToken,
        fence: Option<ClaimFence>,
        message: &Message,
        redelivered: bool,
    ) -> Outcome {
        let consumer = self.group.subscription.consumer.as_str();
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
            Outcome::Handled
            | Outcome::Duplicate
            | Outcome::Redacted
            | Outcome::PassedBy
            | Outcome::DeadLettered { .. } => {
                crash::point("consumer.before_ack");
                settle.ack().await
            }
            Outcome::Retried { delay, .. } => settle.nak(delay).await,
            // A delivery of a partition does not come here: its place settles it.
            Outcome::NotOwned => {
                self.stale.store(true, Relaxed);
                settle.nak(OUTAGE_DELAY).await
            }
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
