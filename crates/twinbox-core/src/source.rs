//! Sources: the brokers, or the log, that consumers read from.
mod error;
mod max_age;
mod partitioned;

pub use error::{SourceError, SourceErrorKind};
pub use max_age::MaxAge;
pub use partitioned::{Checkpoint, PartitionMessage, PartitionReader, PartitionedLog};

use crate::{boxed::BoxFuture, message::Message};
use std::time::Duration;

/// The broker, or the log, that delivers messages to consumers.
///
/// This one delivers messages from a list in memory:
///
/// ```
/// use std::{
///     collections::VecDeque,
///     sync::{Arc, Mutex},
///     time::Duration,
/// };
/// use twinbox_core::{
///     BoxFuture, Message, ReceivedMessage, Settle, Source, SourceError, SourceErrorKind, Subscription,
///     Transport,
/// };
///
/// #[derive(Clone, Default)]
/// struct Memory(Arc<Mutex<VecDeque<Message>>>);
///
/// impl Transport for Memory {
///     fn subscribe<'a>(
///         &'a self,
///         subscription: &'a Subscription,
///     ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>> {
///         Box::pin(async move {
///             if subscription.is_ordered {
///                 let what = "a list in memory has no order per key: set `order = \"none\"`";
///                 return Err(SourceError::new(SourceErrorKind::Misconfigured, what));
///             }
///             Ok(Box::new(self.clone()) as Box<dyn Source>)
///         })
///     }
/// }
///
/// impl Source for Memory {
///     fn receive(&mut self, _max: usize) -> BoxFuture<'_, Result<Vec<ReceivedMessage>, SourceError>> {
///         Box::pin(async move {
///             let first = self.0.lock().unwrap().pop_front();
///             let Some(message) = first else { return std::future::pending().await };
///             let settle = Box::new(Delivered { list: self.clone(), message: message.clone() });
///             Ok(vec![ReceivedMessage { message, defect: None, redelivered: false, settle }])
///         })
///     }
///
///     fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
///         Box::pin(async { Ok(()) })
///     }
/// }
///
/// /// One delivery. A real source also delivers it again when it is dropped.
/// struct Delivered {
///     list: Memory,
///     message: Message,
/// }
///
/// impl Settle for Delivered {
///     fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
///         Box::pin(async { Ok(()) })
///     }
///
///     fn nak(self: Box<Self>, _delay: Duration) -> BoxFuture<'static, Result<(), SourceError>> {
///         self.list.0.lock().unwrap().push_back(self.message);
///         Box::pin(async { Ok(()) })
///     }
///
///     fn progress(&self) -> BoxFuture<'_, Result<(), SourceError>> {
///         Box::pin(async { Ok(()) })
///     }
///
///     fn progress_interval(&self) -> Option<Duration> {
///         None
///     }
/// }
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Returns the name of the messaging system for traces: `messaging.system` of OpenTelemetry.
    fn system(&self) -> &'static str {
        "twinbox"
    }

    /// Returns the place of the messages at the broker, such as a stream, for tools that look at it. The text
    /// has a format of the broker's own, and holds no server and no secret. A consumer stores it
    /// with its heartbeat.
    fn address(&self) -> Option<String> {
        None
    }

    /// Opens the source of one consumer.
    ///
    /// The transport stores the progress under [`Subscription::consumer`]. A process that restarts continues
    /// there.
    ///
    /// # Errors
    /// After [`SourceErrorKind::Unavailable`] the consumer tries again. [`SourceErrorKind::Misconfigured`]
    /// needs an operator.
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>>;

    /// Opens the broker's log for a consumer that needs order per key and stores its own checkpoints.
    ///
    /// Returns `None` if the transport has no such log. Then [`subscribe`](Self::subscribe) keeps the order,
    /// or refuses the subscription.
    ///
    /// # Errors
    /// The same as of [`subscribe`](Self::subscribe).
    fn open_log<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Option<Box<dyn PartitionedLog>>, SourceError>> {
        let _ = subscription;
        Box::pin(async { Ok(None) })
    }
}

/// The request of a consumer to a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The durable name of the consumer.
    pub consumer: String,
    /// The event types that the consumer handles, sorted.
    pub types: Vec<String>,
    /// The number of deliveries that may be in flight.
    pub concurrency: usize,
    /// Whether messages of one key must arrive in order, across all processes that run the consumer. A
    /// transport that cannot do this refuses the subscription.
    pub is_ordered: bool,
}

/// The stream of deliveries to one consumer.
pub trait Source: Send {
    /// Waits for at least one delivery and returns at most `max`.
    ///
    /// # Cancel safety
    /// If the future is dropped, no delivery is lost.
    ///
    /// # Errors
    /// After an error the source is unusable: subscribe again. Deliveries that were not settled come again.
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<ReceivedMessage>, SourceError>>;

    /// Returns the number of messages that wait at the broker, if the broker reported it.
    fn lag(&self) -> Option<u64> {
        None
    }

    /// Returns the age up to which messages are delivered, as the broker reported at the subscription.
    fn max_age(&self) -> MaxAge {
        MaxAge::unknown()
    }

    /// Closes the source and records settled deliveries, so that another process can take over at once.
    ///
    /// Dropping the source instead loses nothing, but another process then waits until the lease ends.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>>;
}

/// One delivery of a message. If it is dropped before it is settled, the message comes again.
#[expect(missing_debug_implementations, reason = "`Settle` has no `Debug`")]
pub struct ReceivedMessage {
    /// The message that was delivered. If [`defect`](Self::defect) is set, it holds only the readable parts.
    pub message: Message,
    /// The reason why the message cannot be read, now or later.
    pub defect: Option<String>,
    /// Whether the message may have been delivered before.
    pub redelivered: bool,
    /// The handle that acknowledges the delivery or returns it to the source.
    pub settle: Box<dyn Settle>,
}

/// Settles one delivery: with an ack, a nak, or a sign of progress.
pub trait Settle: Send + Sync {
    /// Acknowledges the delivery: the message is done. Returns when the source confirmed it.
    ///
    /// # Errors
    /// The source did not confirm it: the message may come again, and the inbox removes that duplicate.
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>>;

    /// Asks the source to deliver the message again, not before `delay`.
    ///
    /// # Errors
    /// The source did not confirm it: the message comes again, perhaps earlier or later.
    fn nak(self: Box<Self>, delay: Duration) -> BoxFuture<'static, Result<(), SourceError>>;

    /// Extends the delivery while the handler runs, so that no copy is delivered yet.
    ///
    /// # Errors
    /// The source did not confirm it: the message may come again while the handler runs, and the inbox keeps
    /// that duplicate from running.
    fn progress(&self) -> BoxFuture<'_, Result<(), SourceError>>;

    /// Returns the interval in which [`progress`](Self::progress) must be called. `None`: never.
    fn progress_interval(&self) -> Option<Duration>;
}
