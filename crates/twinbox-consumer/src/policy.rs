//! The policy of a handler.
use std::time::Duration;
use twinbox_core::{RetryPolicy, limits::bounded};

/// Whether a consumer gets the messages of one key in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryOrder {
    /// One delivery at a time for each key, in the order of publishing, across all processes.
    ///
    /// - On the log of a store, one process reads for all of them.
    /// - On NATS, processes share the partitions of the stream by lease. An attempt may take no longer than
    ///   [`Consumer::lease`](crate::Consumer::lease). A message that fails for longer than 2 s is parked in
    ///   the database with the later messages of its key. A longer [`Policy::timeout`] and batches are
    ///   refused at start.
    /// - On SQS this is refused at start.
    ///
    /// An event without a [key](twinbox_core::Event::HAS_KEY) is refused at start everywhere.
    Key,
    /// Messages of one key come in any order, several at a time. Compare
    /// [`Message::sequence`](twinbox_core::Message::sequence) where the order matters.
    None,
}

/// The number of attempts if neither `max_attempts` nor the retry policy sets one.
const ATTEMPTS_DEFAULT: u32 = 20;

/// The name of a handler's consumer, and how its messages are delivered and retried: attempts, delays, order,
/// concurrency and time-out.
///
/// With the macro it is written as `#[event_handler(consumer = "billing.invoice", max_attempts = 12)]`.
/// Without:
///
/// ```
/// use std::time::Duration;
/// use twinbox_consumer::{DeliveryOrder, Policy};
///
/// const INVOICE: Policy = Policy::new("billing.invoice")
///     .max_attempts(12)
///     .order(DeliveryOrder::Key)
///     .concurrency(4)
///     .timeout(Duration::from_secs(3));
/// assert_eq!(INVOICE.consumer(), "billing.invoice");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct Policy {
    pub(crate) consumer: &'static str,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) order: DeliveryOrder,
    pub(crate) batch: usize,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Duration,
    /// Whether `timeout` was set and is not the default.
    pub(crate) has_timeout: bool,
    pub(crate) retry: RetryPolicy,
    pub(crate) crash_limit: u32,
}

impl Policy {
    /// Makes a policy with the defaults: 20 attempts, delays of 100 ms to a minute, 8 deliveries at a time,
    /// 30 s for each attempt, no order.
    ///
    /// The durable name `consumer` is the first half of the inbox key. With another name all messages are
    /// new.
    pub const fn new(consumer: &'static str) -> Self {
        Self {
            consumer,
            max_attempts: None,
            order: DeliveryOrder::None,
            batch: 100,
            concurrency: 8,
            timeout: Duration::from_secs(30),
            has_timeout: false,
            retry: RetryPolicy::exponential(Duration::from_millis(100), Duration::from_secs(60)),
            crash_limit: 5,
        }
    }

    /// Sets the number of failed attempts after which a message becomes a dead letter. It overrides the
    /// number in [`retry`](Self::retry). Deadlocks, lock time-outs and outages of the database do not count.
    /// From the fourth on, a session that the message loses while the database answers does.
    pub const fn max_attempts(self, max_attempts: u32) -> Self {
        Self { max_attempts: Some(max_attempts), ..self }
    }

    /// Sets whether messages of one key come in order. Default: [`DeliveryOrder::None`].
    pub const fn order(self, order: DeliveryOrder) -> Self {
        Self { order, ..self }
    }

    /// Sets the largest number of deliveries in one transaction. Only handlers that take a `Vec` use it.
    /// Default: 100; at least 1.
    pub const fn batch(self, batch: usize) -> Self {
        let batch = if batch == 0 { 1 } else { batch };
        Self { batch, ..self }
    }

    /// Sets how many deliveries, or batches, this handler works on at a time in one process. Default: 8.
    ///
    /// Each uses a connection of the pool. Two connections are reserved for leases and the like; if too few
    /// are left, handlers wait for one.
    pub const fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency, ..self }
    }

    /// Sets how long one attempt may take. Default: 30 s. With [`DeliveryOrder::Key`] on NATS it must not be
    /// longer than [`Consumer::lease`](crate::Consumer::lease).
    ///
    /// An attempt that takes longer is rolled back and counts as failed. Postgres and MariaDB end a
    /// statement that runs for 500 ms longer, and a transaction that is idle for so long, also if the process
    /// is gone or stands still. MySQL ends only the idle one: there a statement that still waits ends in its
    /// own time, without its connection.
    pub const fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: bounded(timeout), has_timeout: true, ..self }
    }

    /// Sets the delays between attempts. Without [`max_attempts`](Self::max_attempts) it also sets the number
    /// of attempts: 20 if the retry policy has no end.
    pub const fn retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// Sets after how many crashes a message becomes a dead letter without another attempt. At least 1;
    /// default: 5.
    ///
    /// It counts crashes of processes in which the handler ran on this message alone. Two more crashes can
    /// happen before: on the first delivery, and on the second one, which still runs beside others.
    pub const fn crash_limit(self, crash_limit: u32) -> Self {
        let crash_limit = if crash_limit == 0 { 1 } else { crash_limit };
        Self { crash_limit, ..self }
    }

    /// Returns whether no attempt is left after this number of failures.
    pub(crate) fn gives_up(&self, failures: u32) -> bool {
        match self.max_attempts {
            Some(max_attempts) => failures >= max_attempts,
            None if self.retry.is_endless() => failures >= ATTEMPTS_DEFAULT,
            None => failures > 0 && self.retry.next(failures, 0.0).is_none(),
        }
    }

    /// Returns the durable name of the consumer.
    pub const fn consumer(&self) -> &'static str {
        self.consumer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_zero_stops_no_consumer() {
        let policy = Policy::new("billing").batch(0).crash_limit(0);
        assert_eq!((policy.batch, policy.crash_limit), (1, 1));
    }
}
