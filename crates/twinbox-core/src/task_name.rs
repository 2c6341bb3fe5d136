//! The background tasks of Twinbox. None is started without a name, so that a test can ask whether each of
//! them outlasts a database that does not answer.
#[cfg(feature = "test-signals")]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! task_names {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The name of a background task.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum TaskName {
            $($(#[$doc])* $name,)*
        }

        impl TaskName {
            /// All names.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

task_names! {
    /// Serves the admin page of the relay.
    AdminServer,
    /// Finds the bus of EventBridge.
    BusCheck,
    /// Carries out bulk actions for a consumer.
    ConsumerBulkActions,
    /// The keeper of a consumer.
    ConsumerKeeper,
    /// Runs the handlers of one consumer.
    ConsumerWorker,
    /// A change that an operator made on the console.
    ConsoleChange,
    /// Takes samples for the graphs of the console.
    ConsoleSampling,
    /// Writes a cursor of the log.
    CursorWrite,
    /// Exports metrics of databases.
    DatabaseMetrics,
    /// One delivery to a handler, or one batch.
    Delivery,
    /// One side effect at its vendor.
    EffectCall,
    /// Ends starts that could not be ended with their messages.
    EndStarts,
    /// One request to EventBridge.
    EventBridgeRequest,
    /// Makes the fingerprint of a large body.
    Fingerprint,
    /// Follows the file with the URL of a database.
    FollowUrlFile,
    /// One attempt of a job.
    JobAttempt,
    /// One request with an idempotency key.
    KeyedRequest,
    /// Renews the lease of an idempotency key.
    KeyRenewal,
    /// Reads the log for a consumer.
    LogDriver,
    /// Executes replays for a consumer of the log.
    LogReplays,
    /// Upkeep of the metrics of the relay.
    MetricsUpkeep,
    /// The check of a consumer of NATS.
    NatsConsumerCheck,
    /// Receives deliveries of NATS.
    NatsDeliveries,
    /// Sends to NATS, in order.
    NatsSender,
    /// Reads certificates for NATS.
    NatsTls,
    /// Sends telemetry.
    OtlpRequest,
    /// One delivery of an ordered consumer.
    OrderedDelivery,
    /// Begins a transaction, whose BEGIN must not be dropped half-way.
    OwnedBegin,
    /// Reads a page of the log.
    Page,
    /// Looks at and writes parked messages.
    ParkedQueue,
    /// Reads one partition.
    PartitionReader,
    /// Releases a partition that this process does not read.
    PartitionRelease,
    /// One redriven dead letter of a consumer.
    RedriveAttempt,
    /// Carries out bulk actions for a relay.
    RelayBulkActions,
    /// The keeper of a relay.
    RelayKeeper,
    /// Executes replays for a relay.
    RelayReplays,
    /// Relays, movers and dispatchers of the program `twinbox-relay`.
    RelayWorker,
    /// Gives a connection back to its pool.
    ReturnConnection,
    /// Gives connections back that were kept for the next transaction.
    ReturnSpares,
    /// Rolls a transaction back.
    Rollback,
    /// Hears signals of the operating system.
    Signals,
    /// One request for messages of SQS.
    SqsReceive,
    /// Settles messages of SQS.
    SqsSettle,
    /// Tells systemd that the program runs.
    Systemd,
    /// Deletes ticks that nobody needs.
    ThinTicks,
    /// One webhook.
    Webhook,
}

#[cfg(feature = "test-signals")]
static STARTED: [AtomicU64; TaskName::ALL.len()] = [const { AtomicU64::new(0) }; TaskName::ALL.len()];

impl TaskName {
    /// Names the work of a task that is started with it.
    #[inline]
    pub fn of<F>(self, work: F) -> F {
        #[cfg(feature = "test-signals")]
        STARTED[self as usize].fetch_add(1, Relaxed);
        work
    }

    /// Returns how often this process has started the task, for tests.
    #[cfg(feature = "test-signals")]
    pub fn started(self) -> u64 {
        STARTED[self as usize].load(Relaxed)
    }
}
