//! Destinations: the brokers that a relay publishes to.
//!
//! A relay has one [`Destination`] and, while it owns the destination's lease, one [`Publisher`] of it. When
//! it loses the lease, it drops the publisher with all messages that a client library still buffers.
mod secret;

pub use secret::DestinationSecret;

use crate::{
    boxed::{BoxError, BoxFuture},
    message::Message,
};
use futures::{FutureExt as _, Stream, stream::FuturesUnordered};
use std::{error::Error, fmt, pin::Pin, sync::Arc, time::Duration};

/// A named place to publish to.
///
/// This one stores messages in memory:
///
/// ```
/// use std::{
///     sync::{Arc, Mutex},
///     time::Duration,
/// };
/// use twinbox_core::{
///     BoxFuture, Destination, Message, PublishError, Publisher,
///     destination::{
///         Acknowledgement, Acknowledgements, DestinationSecret, Outgoing, Receipt, acknowledgements,
///     },
/// };
///
/// #[derive(Clone, Default)]
/// struct Memory(Arc<Mutex<Vec<Message>>>);
///
/// impl Destination for Memory {
///     fn id(&self) -> &str {
///         "memory"
///     }
///
///     fn connect<'a>(
///         &'a self,
///         _: &'a DestinationSecret,
///     ) -> BoxFuture<'a, Result<Box<dyn Publisher>, PublishError>> {
///         Box::pin(async { Ok(Box::new(self.clone()) as Box<dyn Publisher>) })
///     }
/// }
///
/// impl Publisher for Memory {
///     fn send<'a>(&'a mut self, batch: &'a [Outgoing<'a>]) -> BoxFuture<'a, Acknowledgements> {
///         Box::pin(async move {
///             self.0.lock().unwrap().extend(batch.iter().map(|one| one.message.clone()));
///             let stored = || Box::pin(async { Ok(Receipt { is_duplicate: false }) }) as Acknowledgement;
///             acknowledgements(batch.iter().map(|_| stored()).collect())
///         })
///     }
///
///     fn timeout(&self) -> Duration {
///         Duration::from_secs(5)
///     }
///
///     fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
///         Box::pin(async { Ok(()) })
///     }
/// }
/// ```
pub trait Destination: Send + Sync + 'static {
    /// Returns the stable id under which the cursor is stored. Another id starts another cursor.
    fn id(&self) -> &str;

    /// Returns the name of the messaging system for traces: `messaging.system` of OpenTelemetry.
    fn system(&self) -> &'static str {
        "twinbox"
    }

    /// Returns the number of partitions that keys are spread over, if the destination has partitions.
    ///
    /// It is stored with the cursor: another number would move keys between partitions and break their order.
    fn partitions(&self) -> Option<u32> {
        None
    }

    /// Returns the place of the messages at the broker, such as a stream, for tools that look at it. The text
    /// has a format of the broker's own, and holds no server and no secret. A relay stores it with
    /// the cursor.
    fn address(&self) -> Option<String> {
        None
    }

    /// Connects and checks that the destination can take messages. `secret`: all relays of this destination
    /// have the same one, and nobody else has it.
    ///
    /// # Errors
    /// After [`PublishErrorKind::Unavailable`] the relay tries again. Every other kind needs an operator.
    fn connect<'a>(
        &'a self,
        secret: &'a DestinationSecret,
    ) -> BoxFuture<'a, Result<Box<dyn Publisher>, PublishError>>;

    /// Looks whether [`connect`](Self::connect) would work, and creates nothing. By default it connects with
    /// another secret and drops the publisher: a destination that creates something when it connects has to
    /// do otherwise.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    fn check(&self) -> BoxFuture<'_, Result<DestinationCheck, PublishError>> {
        Box::pin(async {
            let none = DestinationSecret::from_bytes([0; 32]);
            Ok(DestinationCheck::new(self.connect(&none).await?.timeout()))
        })
    }
}

/// The result of [`Destination::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DestinationCheck {
    /// The time-out of a publisher: see [`Publisher::timeout`].
    pub timeout: Duration,
    /// A missing thing that [`connect`](Destination::connect) creates, such as "the stream `EVENTS`".
    pub creates: Option<String>,
    /// Texts for an operator about what works and is a risk, such as a connection without TLS.
    pub warnings: Vec<String>,
}

impl DestinationCheck {
    /// Nothing is missing at a destination whose publisher has this time-out.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, creates: None, warnings: Vec::new() }
    }

    /// Names what is missing and what [`connect`](Destination::connect) creates.
    #[must_use]
    pub fn creates(self, what: impl Into<String>) -> Self {
        Self { creates: Some(what.into()), ..self }
    }

    /// Sets the warnings for an operator.
    #[must_use]
    pub fn warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }
}

impl Destination for Arc<dyn Destination> {
    fn id(&self) -> &str {
        (**self).id()
    }

    fn system(&self) -> &'static str {
        (**self).system()
    }

    fn partitions(&self) -> Option<u32> {
        (**self).partitions()
    }

    fn address(&self) -> Option<String> {
        (**self).address()
    }

    fn connect<'a>(
        &'a self,
        secret: &'a DestinationSecret,
    ) -> BoxFuture<'a, Result<Box<dyn Publisher>, PublishError>> {
        (**self).connect(secret)
    }

    fn check(&self) -> BoxFuture<'_, Result<DestinationCheck, PublishError>> {
        (**self).check()
    }
}

/// The order in which a destination stores the messages that are sent to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SendOrder {
    /// Each message is stored independently of the others. So the relay sends one message of a key at a time.
    #[default]
    PerMessage,
    /// Messages are stored in the order of sending: after the first one that fails, none is stored. So the
    /// relay may send the messages of a key one after another, without waiting for acknowledgements.
    Ordered,
}

/// A message that is to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The message.
    pub message: &'a Message,
    /// Whether it may have been sent before, by this relay or an earlier one.
    pub may_be_repeated: bool,
    /// Under which of its names it goes, from 0, at a destination that drops duplicates by a name. Others
    /// were given up: see [`PublishErrorKind::NameTaken`] and [`PublishErrorKind::InProcess`].
    pub name: u32,
}

impl<'a> Outgoing<'a> {
    /// A message that was never sent before.
    pub fn first(message: &'a Message) -> Self {
        Self { message, may_be_repeated: false, name: 0 }
    }
}

/// A connection to a destination.
pub trait Publisher: Send {
    /// Returns the order in which the destination stores the messages of [`send`](Self::send). It never
    /// changes.
    fn order(&self) -> SendOrder {
        SendOrder::PerMessage
    }

    /// Sends a batch in order and returns a stream with the result of each message.
    ///
    /// The caller awaits results together with those of later batches. With [`SendOrder::PerMessage`] a batch
    /// never has two messages of one key, nor a message of a key whose acknowledgement is outstanding. With
    /// [`SendOrder::Ordered`] a message of a key whose earlier one failed is not stored before the caller
    /// knows the results of all that it has sent of that key: those in between fail with
    /// [`PublishErrorKind::BehindFailure`].
    fn send<'a>(&'a mut self, batch: &'a [Outgoing<'a>]) -> BoxFuture<'a, Acknowledgements>;

    /// Returns the time after which a message without an acknowledgement has failed.
    ///
    /// The relay sends no message later than this before the end of its lease.
    fn timeout(&self) -> Duration;

    /// Checks that the destination is available, without sending a message.
    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>>;
}

/// The future result of a message that was sent.
pub type Acknowledgement = BoxFuture<'static, Result<Receipt, PublishError>>;

/// The results of the messages of one [`send`](Publisher::send), in the order in which they become known: the
/// place of a message in the batch, and its result. It ends after the last one. A message without a result at
/// its end is in doubt.
pub type Acknowledgements = Pin<Box<dyn Stream<Item = (usize, Result<Receipt, PublishError>)> + Send>>;

/// Combines the acknowledgements of a batch, one for each message in order.
pub fn acknowledgements(each: Vec<Acknowledgement>) -> Acknowledgements {
    let each = each.into_iter().enumerate();
    let each = each.map(|(place, one)| one.map(move |result| (place, result)));
    Box::pin(each.collect::<FuturesUnordered<_>>())
}

/// The proof that the destination stored a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Whether the destination already had the message, and kept one copy. That proves something only of a
    /// message that [may be repeated](Outgoing::may_be_repeated): see [`PublishErrorKind::NameTaken`].
    pub is_duplicate: bool,
}

/// The kind of a publish error: whether it concerns the destination or the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// The destination cannot be reached now: no connection, no valid credentials. The message is not the
    /// cause.
    Unavailable,
    /// The destination gets more messages than it allows and asks to slow down. It takes them after
    /// [`PublishError::retry_after`], or at a lower rate. The message is not the cause.
    Throttled,
    /// The message was sent and the connection was lost before the acknowledgement. It may have arrived.
    /// Sending it again is safe.
    InDoubt,
    /// The message was sent over a connection that still works, but no readable acknowledgement came in time.
    /// It may have arrived. If other messages are acknowledged, the message itself is the cause.
    Unanswered,
    /// The destination did not store this message, or nobody knows whether it did, because one that was sent
    /// earlier failed. The message is not the cause. It has to be sent again, after earlier ones of its key.
    BehindFailure,
    /// The destination has another message under the name by which it drops duplicates, and did not store
    /// this one, which was sent for the first time. It has to be sent again under the next
    /// [name](Outgoing::name). A destination that stores many messages together may not see it.
    NameTaken,
    /// The destination has begun to store a message under this name, and does not say whether it will end: a
    /// leader that was lost may have begun. It has to be sent again. If it stays so, under the next
    /// [name](Outgoing::name).
    InProcess,
    /// The destination refuses this message now and may take it later.
    RefusedForNow,
    /// The destination will never take this message: it is too large, malformed or forbidden.
    RefusedForGood,
    /// The destination is available, but takes no events of this type: no stream has the subject.
    Unroutable,
    /// The destination is not configured as its options require. An operator must change one of them.
    Misconfigured,
}

/// The error of a publish or of a connection to a destination.
///
/// Its text holds a code and never the text of a broker's error, which can contain credentials. That error is
/// the [`source`](Error::source), for a log that may hold them.
#[derive(Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    code: String,
    retry_after: Option<Duration>,
    source: Option<BoxError>,
}

impl PublishError {
    /// Creates a publish error of a kind. The code is short and stable and contains no data.
    pub fn new(kind: PublishErrorKind, code: impl Into<String>) -> Self {
        Self { kind, code: code.into(), retry_after: None, source: None }
    }

    /// Adds the error that caused this one.
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Adds the time that the destination asks to wait before the next message.
    pub fn with_retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Returns the time that the destination asks to wait before the next message.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the kind of this publish error.
    pub fn kind(&self) -> PublishErrorKind {
        self.kind
    }

    /// Returns the short and stable code of this error, for tables and metrics.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns whether the same publish may work later without a change by an operator.
    pub fn is_transient(&self) -> bool {
        use PublishErrorKind as K;
        matches!(
            self.kind,
            K::Unavailable
                | K::Throttled
                | K::InDoubt
                | K::Unanswered
                | K::NameTaken
                | K::InProcess
                | K::RefusedForNow
        )
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use PublishErrorKind as K;
        let what = match self.kind {
            K::Unavailable => "the destination is unavailable",
            K::Throttled => "the destination takes no more messages for now",
            K::InDoubt => "the connection was lost, and the message may have arrived",
            K::Unanswered => "no acknowledgement came in time, and the message may have arrived",
            K::NameTaken => "the destination has another message under its name",
            K::InProcess => "the destination has begun to store the message",
            K::RefusedForNow => "the destination refuses the message for now",
            K::RefusedForGood => "the destination refuses the message for good",
            K::BehindFailure => "a message before it failed",
            K::Unroutable => "the destination does not take this event type",
            K::Misconfigured => "the destination is not configured as its options require",
        };
        write!(f, "{what} ({})", self.code)
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
