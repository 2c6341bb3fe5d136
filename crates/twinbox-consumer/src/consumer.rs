//! The public entry: handlers, their state and their source.
use crate::{
    error::{Error, ErrorKind},
    group::group_handlers,
    handler::{EventHandler, Handler},
    metrics,
    retention::InboxRetention,
    runtime::{Common, Options, Runtime},
    status::Status,
    worker::Worker,
};
use std::{fmt, sync::Arc, time::Duration};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use twinbox_core::{Manifest, Transport, limits::bounded, task_name::TaskName};
use twinbox_log::{Keeper, LogTransport, run_bulk_actions};
use twinbox_sql::{Dialect, Store, outage::outlast};

/// The default of [`Consumer::lease`].
const LEASE: Duration = Duration::from_secs(5);
/// The default of [`Consumer::drain`].
const DRAIN: Duration = Duration::from_secs(30);
/// The default of [`Consumer::dead_letter_bytes_max`].
const DEAD_LETTER_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Runs event handlers on deliveries, each in a transaction that also claims the message.
///
/// It receives messages, claims each of them in the inbox of its store, and runs the handler in the
/// transaction of the claim. So everything that the handler writes with its `tx` happens once, however often
/// the message is delivered.
///
/// Handlers with the same consumer name share claims, order and progress. `S` is the state that all handlers
/// share; each takes [a part of it](crate::Provide). Without [`transport`](Self::transport) the messages come
/// from the log of the store itself, and no broker is needed.
///
/// # Examples
/// ```
/// use serde::{Deserialize, Serialize};
/// use sqlx::Sqlite;
/// use tokio_util::sync::CancellationToken;
/// use twinbox_consumer::{Consumer, Delivery, Policy, handler_fn};
/// use twinbox_sql::{HandlerResult, Store, Tx, sqlite};
///
/// #[derive(Serialize, Deserialize)] // and `Event` of the crate `twinbox`
/// struct OrderPlaced { order_id: i64 }
/// # impl twinbox_core::Schema for OrderPlaced {
/// #     const TYPE: &'static str = "orders.placed";
/// #     const VERSION: u32 = 1;
/// #     fn decode(_: u32, payload: &[u8]) -> Result<Self, twinbox_core::DecodeError> {
/// #         Ok(serde_json::from_slice(payload)?)
/// #     }
/// #     fn versions() -> Vec<u32> { vec![Self::VERSION] }
/// # }
/// # impl twinbox_core::Event for OrderPlaced {
/// #     fn key(&self) -> Option<String> { Some(self.order_id.to_string()) }
/// # }
///
/// struct App { vat_percent: i64 }
///
/// async fn invoice(app: &App, tx: &mut Tx<'_, Sqlite>, order: Delivery<OrderPlaced>) -> HandlerResult {
///     sqlx::query("INSERT INTO invoices (order_id, vat_percent) VALUES (?, ?)")
///         .bind(order.order_id)
///         .bind(app.vat_percent)
///         .execute(&mut **tx)
///         .await?; // an error rolls everything back, and the message comes again
///     Ok(())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("shop.db");
/// let store = Store::new(sqlite::open(path).await?, "shop")?;
/// store.migrate().await?;
/// # sqlx::query("CREATE TABLE invoices (order_id INTEGER PRIMARY KEY, vat_percent INTEGER)")
/// #     .execute(store.pool()).await?;
///
/// let mut tx = store.begin().await?;
/// store.outbox().publish(&mut tx, &OrderPlaced { order_id: 7 }).await?;
/// tx.commit().await?;
///
/// let app = App { vat_percent: 19 };
/// let consumer = Consumer::new(store.clone(), app)
///     .register(handler_fn(Policy::new("billing.invoice").max_attempts(12), invoice));
/// // With the crate `twinbox` and `#[event_handler]`: `.handler::<invoice>()`.
/// let status = consumer.status();
/// let stop = CancellationToken::new();
/// let running = tokio::spawn(consumer.run(stop.clone()));
/// # while status.consumers().iter().map(|one| one.handled).sum::<u64>() < 1 {
/// #     tokio::time::sleep(std::time::Duration::from_millis(5)).await;
/// # }
/// # let invoices: i64 =
/// #     sqlx::query_scalar("SELECT count(*) FROM invoices").fetch_one(store.pool()).await?;
/// # assert_eq!(invoices, 1);
///
/// stop.cancel(); // for example at Ctrl-C
/// running.await??;
/// # Ok(())
/// # }
/// ```
pub struct Consumer<DB: Dialect, S> {
    pub(crate) store: Store<DB>,
    pub(crate) state: Arc<S>,
    pub(crate) handlers: Vec<Handler<DB, S>>,
    transport: Arc<dyn Transport>,
    options: Options,
    status: Status,
    keeper: Option<Keeper<DB>>,
}

impl<DB: Dialect, S: Send + Sync + 'static> Consumer<DB, S> {
    /// Makes a consumer without handlers. Its claims are in `store`, and it reads the log of `store`.
    pub fn new(store: Store<DB>, state: S) -> Self {
        let transport = Arc::new(LogTransport::new(&store));
        let (state, status) = (Arc::new(state), Status::default());
        let options = Options {
            lease: LEASE,
            drain: DRAIN,
            inbox_retention: InboxRetention::Automatic,
            dead_letter_bytes_max: DEAD_LETTER_BYTES_MAX,
            keep_connections: true,
        };
        let keeper = Some(Keeper::new(&store));
        Self { store, state, handlers: Vec::new(), transport, options, status, keeper }
    }

    /// Sets the transport that delivers messages: such as a broker. Default: the log
    /// of the store.
    #[must_use]
    pub fn transport(self, transport: impl Transport) -> Self {
        Self { transport: Arc::new(transport), ..self }
    }

    /// Sets the lease on partitions of a broker's log, for handlers with `order = "key"`. At least 1 s;
    /// default: 5 s.
    ///
    /// A process that does not respond for this long loses its partitions to another process. It is also the
    /// longest time for one attempt, because the transaction of an attempt keeps the new owner waiting. After
    /// six leases without a lock that its handler needs, a message is parked.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = bounded(lease.max(Duration::from_secs(1)));
        self
    }

    /// Sets how long a stopped consumer waits for running handlers. Those that take longer are cut off, and
    /// their messages are delivered again. Default: 30 s.
    ///
    /// Let systemd or Kubernetes wait for longer than that before it kills the process.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.options.drain = bounded(drain);
        self
    }

    /// Sets whether a consumer keeps the connections of its handlers for the next ones, each for about 10 ms
    /// without work and 100 ms in all, so that others of the pool get it too. Default: yes, unless the pool
    /// has one connection. It saves round trips while there is much to do.
    ///
    /// The pool's hooks `before_acquire` and `after_release` do not run between two handlers then. If one of
    /// them clears what a handler may leave in its session, such as a role, say no.
    #[must_use]
    pub fn keep_connections(mut self, keep_connections: bool) -> Self {
        self.options.keep_connections = keep_connections;
        self
    }

    /// Sets how long the inbox keeps the claims of handled messages. Older claims are deleted while the
    /// consumer [runs](Self::run). Default: [`InboxRetention::Automatic`].
    #[must_use]
    pub fn inbox_retention(mut self, retention: InboxRetention) -> Self {
        self.options.inbox_retention = retention;
        self
    }

    /// Sets how many bytes the payloads and headers of the dead letters of each consumer may have. The last
    /// one may exceed them. Default: 1 GiB.
    ///
    /// At the bound no message is given up, and nothing is lost. A message that would be a dead letter is
    /// delivered again each minute, until redriven ones were handled or an operator has discarded some.
    /// Others continue, as long as the broker delivers more: NATS stops at `max_ack_pending`, and with
    /// `order = "key"` the partition of such a message waits.
    ///
    /// A process that makes dead letters reads their sum from the database once a minute, and at the bound
    /// every 5 s. So several processes exceed the bound by what they write within a minute.
    #[must_use]
    pub fn dead_letter_bytes_max(mut self, bytes: u64) -> Self {
        self.options.dead_letter_bytes_max = bytes;
        self
    }

    /// Sets the keeper, which deletes old rows while the consumer runs: with other times, or with a store
    /// whose role may delete them. Default: [`Keeper::new`] of the store.
    #[must_use]
    pub fn keeper(self, keeper: Keeper<DB>) -> Self {
        Self { keeper: Some(keeper), ..self }
    }

    /// Runs no keeper. Tables grow then until another process deletes old rows.
    #[must_use]
    pub fn without_keeper(self) -> Self {
        Self { keeper: None, ..self }
    }

    /// Adds a function that is marked with `#[event_handler]`: `.handler::<invoice>()`.
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

    /// Returns the event types, versions and codecs that the handlers of this build can read.
    ///
    /// Print it as [JSON](Manifest::to_json) and give it to `twinbox schemas check` before a deployment. It
    /// does no I/O, so a pool that connects lazily is enough.
    pub fn manifest(&self) -> Manifest {
        let none = Manifest::new(self.store.codecs().map(str::to_owned))
            .with_required_codec(self.store.engine().catalog().codecs.is_required);
        self.handlers.iter().fold(none, |manifest, handler| {
            manifest.with_type(handler.policy.consumer, handler.event_type, handler.versions.clone())
        })
    }

    /// Returns a handle to the state and the counters of the consumers, for probes of the application.
    pub fn status(&self) -> Status {
        self.status.clone()
    }

    /// Runs every handler that was added until `stop` is cancelled. Then it waits for running handlers, as
    /// [`drain`](Self::drain) says, and returns waiting deliveries to their source.
    ///
    /// It waits for the end of every outage of database or transport, also of one in which it starts, and
    /// counts no attempt for it. Each wait is a warning in the log. After a crash the uncommitted messages
    /// are delivered again. Dropping this future counts as a crash for the handlers that run, see
    /// [`Policy::crash_limit`](crate::Policy::crash_limit).
    ///
    /// # Errors
    /// Something that needs a person: handlers that contradict each other, unfit tables, a transport that is
    /// not set up as asked, or an inbox retention that is too short. All consumers are stopped then.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let Self { store, state, handlers, transport, options, status, keeper } = self;
        let groups = group_handlers(handlers)?;
        let checked = outlast(&store, &stop, || store.check()).await.map_err(|error| {
            Error::new(ErrorKind::Store, "the store cannot be used by a consumer").with_source(error)
        })?;
        if checked.is_none() {
            return Ok(());
        }
        let concurrency = groups.iter().flat_map(|group| &group.handlers);
        warn_of_small_pool(&store, concurrency.map(|handler| handler.policy.concurrency.max(1)).sum());
        metrics::describe();
        let (stop, system, address) = (stop.child_token(), transport.system(), transport.address());
        let common = Common { store, state, stop, options, system, address };
        let keeper = keeper.map(|keeper| {
            AbortOnDropHandle::new(tokio::spawn(TaskName::ConsumerKeeper.of(keeper.run(common.stop.clone()))))
        });
        let acting = run_bulk_actions(common.store.clone(), Duration::ZERO, common.stop.clone());
        let acting = AbortOnDropHandle::new(tokio::spawn(TaskName::ConsumerBulkActions.of(acting)));
        let mut workers = tokio::task::JoinSet::new();
        for group in groups {
            let stats = status.add(&group.subscription.consumer);
            workers.spawn(
                TaskName::ConsumerWorker.of(Worker::new(
                    Runtime::new(&common, group, stats),
                    transport.clone(),
                )
                .run()),
            );
        }
        let mut result = Ok(());
        while let Some(ended) = workers.join_next().await {
            let ended = ended.unwrap_or_else(|e| match e.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(()),
            });
            if ended.is_err() {
                common.stop.cancel();
                result = result.and(ended);
            }
        }
        drop((keeper, acting));
        result
    }
}

/// Warns if handlers will wait for connections.
fn warn_of_small_pool<DB: Dialect>(store: &Store<DB>, concurrency: usize) {
    let permits = store.engine().handler_permits().available_permits();
    // On SQLite transactions run one after another, whatever the pool.
    if concurrency > permits && !DB::ONE_WRITER {
        let connections = store.pool().options().get_max_connections();
        tracing::warn!(
            concurrency,
            permits,
            connections,
            "the pool is smaller than the concurrency of the handlers: give it more connections"
        );
    }
}

impl<DB: Dialect, S> fmt::Debug for Consumer<DB, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("store", &self.store)
            .field("handlers", &self.handlers)
            .finish_non_exhaustive()
    }
}
