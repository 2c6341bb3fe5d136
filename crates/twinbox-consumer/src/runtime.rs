//! One running consumer: the state that all its deliveries share.
use crate::{
    context::Context,
    dead_letter_guard::DeadLetterGuard,
    group::Group,
    handler::Handler,
    lost_sessions::LostSessions,
    retention::{InboxPurge, InboxRetention},
    starts::Starts,
    status::ConsumerStats,
    trace,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use tracing::Span;
use twinbox_core::{Message, PartitionedLog};
use twinbox_sql::{ClaimFence, Dialect, Inbox, PartitionLeases, Store};

/// The delay of a message that was not handled because the database was away.
pub(crate) const OUTAGE_DELAY: Duration = Duration::from_secs(1);

/// The store, the state and the options that the consumers of one process share.
pub(crate) struct Common<DB: Dialect, S> {
    pub(crate) store: Store<DB>,
    pub(crate) state: Arc<S>,
    pub(crate) stop: CancellationToken,
    pub(crate) options: Options,
    /// The messaging system, for traces.
    pub(crate) system: &'static str,
    /// Where at the broker the messages are.
    pub(crate) address: Option<String>,
}

/// The options of [`Consumer`](crate::Consumer).
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) lease: Duration,
    pub(crate) drain: Duration,
    pub(crate) inbox_retention: InboxRetention,
    pub(crate) dead_letter_bytes_max: u64,
    pub(crate) keep_connections: bool,
}

/// One running consumer.
pub(crate) struct Runtime<DB: Dialect, S> {
    pub(crate) store: Store<DB>,
    pub(crate) inbox: Inbox<DB>,
    pub(crate) partition_leases: PartitionLeases<DB>,
    pub(crate) state: Arc<S>,
    pub(crate) group: Group<DB, S>,
    /// The concurrency of each handler, by event type.
    permits: HashMap<&'static str, Semaphore>,
    pub(crate) stop: CancellationToken,
    pub(crate) lease: Duration,
    /// How long deliveries in flight may take at a shutdown. The rest is delivered again.
    pub(crate) drain: Duration,
    pub(crate) starts: Starts,
    pub(crate) lost_sessions: LostSessions,
    dead_letters: DeadLetterGuard,
    pub(crate) stats: Arc<ConsumerStats>,
    system: &'static str,
    /// Where at the broker the messages are.
    pub(crate) address: Option<String>,
    pub(crate) inbox_purge: InboxPurge,
    /// Whether an operator paused the consumer.
    pub(crate) is_paused: watch::Sender<bool>,
    /// Whether the last delivery found the database away.
    pub(crate) is_database_away: AtomicBool,
    /// Whether the database server restarted after the source was opened.
    pub(crate) is_server_restarted: AtomicBool,
    /// The log that the consumer reads by partition, if it does.
    partitioned_log: Mutex<Option<Arc<dyn PartitionedLog>>>,
}

impl<DB: Dialect, S> Runtime<DB, S> {
    pub(crate) fn new(common: &Common<DB, S>, group: Group<DB, S>, stats: Arc<ConsumerStats>) -> Self {
        let permits = |handler: &Handler<DB, S>| {
            (handler.event_type, Semaphore::new(handler.policy.concurrency.max(1)))
        };
        let mut inbox = common.store.inbox(&group.subscription.consumer);
        if common.options.keep_connections {
            inbox = inbox.keep_connections();
        }
        let (bytes_max, is_ordered) = (common.options.dead_letter_bytes_max, group.subscription.is_ordered);
        Self {
            store: common.store.clone(),
            inbox,
            partition_leases: common.store.partition_leases(&group.subscription.consumer),
            state: common.state.clone(),
            permits: group.handlers.iter().map(permits).collect(),
            group,
            stop: common.stop.clone(),
            lease: common.options.lease,
            drain: common.options.drain,
            starts: Starts::default(),
            lost_sessions: LostSessions::default(),
            dead_letters: DeadLetterGuard::new(bytes_max, is_ordered),
            stats,
            system: common.system,
            address: common.address.clone(),
            inbox_purge: InboxPurge::new(common.options.inbox_retention),
            is_paused: watch::Sender::new(false),
            is_database_away: AtomicBool::new(false),
            is_server_restarted: AtomicBool::new(false),
            partitioned_log: Mutex::default(),
        }
    }

    /// Returns the durable name of the consumer.
    pub(crate) fn consumer(&self) -> &str {
        &self.group.subscription.consumer
    }

    /// Returns the span for all work on these messages. Log lines of handlers have its fields.
    pub(crate) fn span<'a>(&self, messages: impl ExactSizeIterator<Item = &'a Message>) -> Span {
        trace::span(self.system, self.consumer(), messages)
    }

    /// Returns the context of an attempt. `stop` ends its wait for a turn, `fence` is the condition of its
    /// claim.
    pub(crate) fn context<'a>(
        &'a self,
        stop: &'a CancellationToken,
        fence: Option<ClaimFence>,
    ) -> Context<'a, DB, S> {
        Context {
            store: &self.store,
            inbox: &self.inbox,
            state: &self.state,
            stop,
            starts: &self.starts,
            lost_sessions: &self.lost_sessions,
            dead_letters: &self.dead_letters,
            fence,
            waiting_since: None,
        }
    }

    /// Waits for a permit of the handler and for a permit to use a connection. None: the process is shutting
    /// down.
    pub(crate) async fn handler_permits(
        &self,
        stop: &CancellationToken,
        event_type: &str,
    ) -> Option<[SemaphorePermit<'_>; 2]> {
        let permits = async {
            let of_handler = self.permits.get(event_type)?.acquire().await.ok()?;
            Some([of_handler, self.store.engine().handler_permits().acquire().await.ok()?])
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            permits = permits => permits,
        }
    }

    pub(crate) fn partitioned_log(&self) -> Option<Arc<dyn PartitionedLog>> {
        self.partitioned_log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_partitioned_log(&self, log: Arc<dyn PartitionedLog>) {
        *self.partitioned_log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
    }
}
