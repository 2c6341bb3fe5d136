use crate::{
    Error, ErrorKind, EventHandler, Handler, InboxRetention, Order, Outcome, Status, attempt,
    start::{OpenStarts, Runtime},
    worker::{Common, Group, Options, Worker},
};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use twinbox_core::{Manifest, Message, Subscription, Transport, limits};
use twinbox_sql::{Dialect, HandlerError, HandlerResult, Store, inbox::Attempt};

/// The default of [`Consumer::lease`].
const LEASE: Duration = Duration::from_secs(5);

/// Runs handlers. `S` is the state they share; each takes from it what it asks for.
///
/// ```text
/// // `invoice` is a function marked with #[event_handler]; see the crate `twinbox`.
/// Consumer::new(store, App { vat: 19 }).handler::<invoice>().run(stop).await?;
/// ```
///
/// Without [`transport`](Self::transport) it reads the log of its own store: no broker.
pub struct Consumer<DB: Dialect, S> {
    pub(crate) store: Store<DB>,
    pub(crate) state: Arc<S>,
    pub(crate) handlers: Vec<Handler<DB, S>>,
    transport: Arc<dyn Transport>,
    options: Options,
    status: Status,
}

impl<DB: Dialect, S: Send + Sync + 'static> Consumer<DB, S> {
    /// A consumer whose claims are in `store`.
    pub fn new(store: Store<DB>, state: S) -> Self {
        let transport = Arc::new(store.log());
        let (state, status) = (Arc::new(state), Status::default());
        let options = Options { lease: LEASE, inbox_retention: InboxRetention::Automatic };
        Self { store, state, handlers: Vec::new(), transport, options, status }
    }

    /// Where messages come from. Default: the log of the store.
    #[must_use]
    pub fn transport(self, transport: impl Transport) -> Self {
        Self { transport: Arc::new(transport), ..self }
    }

    /// For how long a process that is not heard of keeps its partitions of a broker's log, where `order = "key"` is asked
    /// for. Also how long one attempt may take there, because its transaction keeps a successor out. At least 1 s.
    /// Default 5 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease.max(Duration::from_secs(1));
        self
    }

    /// For how long the inbox remembers what was handled; what is older is deleted while the consumers
    /// [`run`](Self::run). Default: [`InboxRetention::Automatic`].
    #[must_use]
    pub fn inbox_retention(mut self, retention: InboxRetention) -> Self {
        self.options.inbox_retention = retention;
        self
    }

    /// Adds a function marked with `#[event_handler]`: `.handler::<invoice>()`.
    #[must_use]
    pub fn handler<H: EventHandler<DB, S>>(self) -> Self {
        self.register(H::handler())
    }

    /// Adds a handler made by [`handler_fn`](crate::handler_fn).
    #[must_use]
    pub fn register(mut self, handler: Handler<DB, S>) -> Self {
        self.handlers.push(handler);
        self
    }

    /// What these consumers can read, for `twinbox check` in a pipeline that deploys them: have the program print it as
    /// [JSON](Manifest::to_json). Does no I/O, and neither does a pool that connects lazily.
    pub fn manifest(&self) -> Manifest {
        let none = Manifest::new(self.store.codecs().map(str::to_owned));
        self.handlers.iter().fold(none, |manifest, handler| {
            manifest.reads(handler.policy.consumer, handler.event_type, handler.versions.clone())
        })
    }

    /// What the consumers are doing, for the application's own probes: ask it while they [`run`](Self::run).
    pub fn status(&self) -> Status {
        self.status.clone()
    }

    /// Runs every consumer until `stop` is cancelled, then lets the handlers that run finish, for up to 30 s. What waited
    /// for its turn is given back.
    ///
    /// Outages of database or transport are waited out; they count as nobody's attempt. A process that is
    /// killed leaves nothing behind: what it had not committed is delivered again. Dropping this future in the middle is
    /// like a death for the handlers that run, see [`Policy::crash_limit`](crate::Policy::crash_limit).
    ///
    /// # Errors
    /// What needs a person: contradicting handlers, tables that are not fit, a transport that is not set up
    /// as asked, an inbox that would forget too early. The other consumers are stopped as well.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let Self { store, state, handlers, transport, options, status } = self;
        let groups = groups(handlers)?;
        store.check().await?;
        let stop = stop.child_token();
        let at_once =
            groups.iter().flat_map(|group| &group.handlers).map(|h| h.policy.concurrency.max(1)).sum();
        check_room(&store, at_once);
        let common = Common { store, state, transport, stop: stop.clone(), options };
        let mut workers = tokio::task::JoinSet::new();
        for group in groups {
            let progress = status.add(&group.subscription.consumer);
            workers.spawn(Worker::new(&common, group, progress).run());
        }
        let mut result = Ok(());
        while let Some(ended) = workers.join_next().await {
            let ended = ended.unwrap_or_else(|e| match e.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(()),
            });
            if ended.is_err() {
                stop.cancel();
                result = result.and(ended);
            }
        }
        result
    }
}

/// Says so if handlers will wait for each other.
fn check_room<DB: Dialect>(store: &Store<DB>, asked: usize) {
    let room = store.handlers().available_permits();
    // On SQLite they take turns anyway.
    if asked > room && !DB::ONE_WRITER {
        let connections = store.pool().options().get_max_connections();
        tracing::warn!(
            asked,
            room,
            connections,
            "fewer handlers run at a time than their policies say: give the pool more connections"
        );
    }
}

/// One attempt at one message by the handler `H`, as [`Consumer::run`] makes it, without a transport: for
/// tests and tools. Nobody is acknowledged. `redelivered`: it may have failed before.
pub async fn deliver<DB: Dialect, S, H: EventHandler<DB, S>>(
    store: &Store<DB>,
    state: &S,
    message: &Message,
    redelivered: bool,
) -> Outcome {
    let (stop, open) = (CancellationToken::new(), OpenStarts::default());
    let runtime = Runtime { store, state, stop: &stop, open: &open, fence: None };
    attempt::process(&runtime, &H::handler(), message, redelivered).await
}

/// The transaction of `H` after its run and before COMMIT, for the harness.
#[doc(hidden)]
pub async fn unfinished<DB: Dialect, S, H: EventHandler<DB, S>>(
    store: &Store<DB>,
    state: &S,
    message: &Message,
) -> Result<Attempt<DB>, String> {
    let (stop, open) = (CancellationToken::new(), OpenStarts::default());
    let runtime = Runtime { store, state, stop: &stop, open: &open, fence: None };
    attempt::unfinished(&runtime, &H::handler(), message).await
}

/// Runs `H` in a transaction that others run in as well, for the harness.
#[doc(hidden)]
pub async fn run_within<DB: Dialect, S, H: EventHandler<DB, S>>(
    store: &Store<DB>,
    state: &S,
    attempt: &mut Attempt<DB>,
    message: &Message,
) -> HandlerResult {
    let (stop, open) = (CancellationToken::new(), OpenStarts::default());
    let runtime = Runtime { store, state, stop: &stop, open: &open, fence: None };
    attempt::run(&runtime, &H::handler(), attempt, &[message])
        .await
        .unwrap_or_else(|e| Err(HandlerError::reject(e)))
}

/// Handlers by consumer: each has its own claims, order and progress.
fn groups<DB: Dialect, S>(handlers: Vec<Handler<DB, S>>) -> Result<Vec<Group<DB, S>>, Error> {
    let mut groups: BTreeMap<&'static str, Group<DB, S>> = BTreeMap::new();
    if handlers.is_empty() {
        return Err(Error::new(
            ErrorKind::Configuration,
            "no handler is registered: add one with `.handler::<…>()`",
        ));
    }
    for handler in handlers {
        let policy = handler.policy;
        if policy.consumer.is_empty() || policy.consumer.len() > limits::NAME_BYTES_MAX {
            let what = format!("the consumer name {:?} must have 1 to 120 bytes", policy.consumer);
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        let group = groups.entry(policy.consumer).or_insert_with(|| Group {
            subscription: Subscription {
                consumer: policy.consumer.to_owned(),
                types: Vec::new(),
                concurrency: 1,
                ordered: policy.order == Order::Key,
            },
            handlers: Vec::new(),
        });
        let subscription = &mut group.subscription;
        if subscription.types.iter().any(|t| t == handler.event_type) {
            let what =
                format!("two handlers of the consumer {:?} take {:?}", policy.consumer, handler.event_type);
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        if subscription.ordered != (policy.order == Order::Key) {
            let what = format!("the handlers of the consumer {:?} disagree on `order`", policy.consumer);
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        if subscription.ordered && !handler.has_key {
            let what = format!(
                "the consumer {:?} asks for the order of keys, and its event {:?} has none: write `key = FIELD` in its \
                 `#[event(…)]`, or `order = \"none\"` at its handler",
                policy.consumer, handler.event_type
            );
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        subscription.types.push(handler.event_type.to_owned());
        subscription.types.sort();
        // Each has its own, so that one that is slow leaves room for the others.
        subscription.concurrency = match group.handlers.is_empty() {
            true => handler.under_way(),
            false => subscription.concurrency.saturating_add(handler.under_way()),
        };
        group.handlers.push(handler);
    }
    Ok(groups.into_values().collect())
}

impl<DB: Dialect, S> fmt::Debug for Consumer<DB, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("store", &self.store)
            .field("handlers", &self.handlers)
            .finish_non_exhaustive()
    }
}
