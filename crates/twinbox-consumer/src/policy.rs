use std::time::Duration;
use twinbox_core::RetryPolicy;

/// Whether messages of one key arrive in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// One delivery at a time for each key, in the order of publishing, across all processes. On the log of a store one
    /// process reads for all of them. On NATS they share the partitions of the stream: an attempt may take no longer
    /// than [`Consumer::lease`](crate::Consumer::lease), and a key that fails for longer than 2 s is put aside in the
    /// database, where the rest of it waits. There a longer [`Policy::timeout`] and batches are refused when it starts, and
    /// everywhere an event without a [key](twinbox_core::Event::HAS_KEY). On SQS it is refused.
    Key,
    /// Whatever comes first. Compare [`Message::sequence`](twinbox_core::Message::sequence) where it
    /// matters.
    None,
}

/// Failed attempts where nothing else says when to give up.
const ATTEMPTS: u32 = 20;

/// How a consumer treats its handler. It stands beside the handler, in `#[event_handler(…)]`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct Policy {
    pub(crate) consumer: &'static str,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) order: Order,
    pub(crate) batch: usize,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Duration,
    /// It was asked for.
    pub(crate) has_timeout: bool,
    pub(crate) retry: RetryPolicy,
    pub(crate) crash_limit: u32,
}

impl Policy {
    /// The policy of `consumer`: 20 attempts from 100 ms to a minute apart, 8 deliveries at a time, 30 s for
    /// each. The name is the first half of the inbox key: another name handles everything again.
    pub const fn new(consumer: &'static str) -> Self {
        Self {
            consumer,
            max_attempts: None,
            order: Order::None,
            batch: 100,
            concurrency: 8,
            timeout: Duration::from_secs(30),
            has_timeout: false,
            retry: RetryPolicy::exponential(Duration::from_millis(100), Duration::from_secs(60)),
            crash_limit: 5,
        }
    }

    /// Failed attempts after which the message becomes a dead letter, whatever [`retry`](Self::retry) says of an
    /// end. Deadlocks, lock time-outs and outages of the database do not count.
    pub const fn max_attempts(self, max_attempts: u32) -> Self {
        Self { max_attempts: Some(max_attempts), ..self }
    }

    /// Whether messages of one key arrive in order.
    pub const fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Deliveries in one transaction. Read only by handlers that take a `Vec`.
    pub const fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    /// Deliveries, or batches, that this handler works on at a time in one process. Each holds a connection
    /// of the pool; two of those are left to leases and the like, and if there are too few, handlers wait.
    pub const fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency, ..self }
    }

    /// How long one attempt may take: 30 s, and no longer than [`Consumer::lease`](crate::Consumer::lease) for the order of
    /// keys on NATS. It is then rolled back and counts as failed. A statement that waits in
    /// the database ends there in its own time; the delivery does not wait for it.
    pub const fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, has_timeout: true, ..self }
    }

    /// The delays between attempts, and after how many to give up where
    /// [`max_attempts`](Self::max_attempts) does not say: 20 if the policy has no end.
    pub const fn retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// How many processes may die with this handler running on a message, and on no other beside it, until the
    /// message becomes a dead letter without another run. At least 1; 5 by default. Two processes more may have died
    /// before: on the first delivery, and on the second, which still runs beside others.
    pub const fn crash_limit(self, crash_limit: u32) -> Self {
        let crash_limit = if crash_limit == 0 { 1 } else { crash_limit };
        Self { crash_limit, ..self }
    }

    /// Whether there is no attempt after so many failures.
    pub(crate) fn gives_up(&self, failures: u32) -> bool {
        match self.max_attempts {
            Some(max_attempts) => failures >= max_attempts,
            None if self.retry.is_endless() => failures >= ATTEMPTS,
            None => failures > 0 && self.retry.next(failures, 0.0).is_none(),
        }
    }

    /// The name of the consumer.
    pub const fn consumer(&self) -> &'static str {
        self.consumer
    }
}
