//! The seam to what is published to.
//!
//! A relay holds one [`Destination`] and, while it owns the destination's lease, one [`Publisher`] of it.
//! When the lease is lost it drops the publisher, and with it whatever a client library still buffers.
use crate::{BoxError, BoxFuture, Message};
use std::{error::Error, fmt, time::Duration};

/// A named place to publish to.
pub trait Destination: Send + Sync + 'static {
    /// The stable id under which the cursor is kept. Another id starts another cursor.
    fn id(&self) -> &str;

    /// Over how many partitions keys are spread, if the destination has partitions. Kept with the cursor,
    /// because changing it moves keys between partitions and so breaks their order.
    fn partitions(&self) -> Option<u32> {
        None
    }

    /// Connects and checks that the destination can take messages.
    ///
    /// # Errors
    /// [`PublishErrorKind::Unavailable`] is worth another try; every other kind needs a person.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, PublishError>>;
}

impl Destination for std::sync::Arc<dyn Destination> {
    fn id(&self) -> &str {
        (**self).id()
    }

    fn partitions(&self) -> Option<u32> {
        (**self).partitions()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, PublishError>> {
        (**self).connect()
    }
}

/// The order in which a destination stores the messages that are sent to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Each message for itself: of a key one at a time is sent.
    #[default]
    PerMessage,
    /// The order of sending: behind the first message that fails none is stored. Messages of a key may be sent one after
    /// the other without waiting.
    Ordered,
}

/// A connection to a destination.
pub trait Publisher: Send {
    /// The order in which the messages of [`send`](Self::send) are stored. Does not change.
    fn order(&self) -> Order {
        Order::PerMessage
    }

    /// Sends a batch, in order, and answers for each message with what will become of it. The
    /// acknowledgements may be awaited in any order, and beside those of later batches.
    ///
    /// Never two messages of one key in a batch, nor a key of which an acknowledgement is outstanding, unless
    /// [`order`](Self::order) says otherwise.
    fn send<'a>(&'a mut self, batch: &'a [&'a Message]) -> BoxFuture<'a, Vec<Acknowledgement>>;

    /// How long a message that was sent can stay without an answer. Bounds how long before the end of a
    /// lease the last message is sent.
    fn timeout(&self) -> Duration;

    /// Asks the destination, and not some message, whether it is there.
    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>>;
}

/// What will become of a message that was sent.
pub type Acknowledgement = BoxFuture<'static, Result<Receipt, PublishError>>;

/// The destination has the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The destination had it before and kept one copy.
    pub duplicate: bool,
}

/// What a failed publish says about the destination and about the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// Nothing can be published there now: no connection, no credentials. Says nothing about the message.
    Unavailable,
    /// Too much is published there: the same is welcome after [`PublishError::retry_after`], or more slowly.
    /// Says nothing about the message.
    Throttled,
    /// Sent, and the connection was lost before the answer: it may or may not have arrived. Sending the same message again
    /// is safe.
    InDoubt,
    /// Sent, and no answer within the time-out on a connection that is there, or one that cannot be read: it may or may not
    /// have arrived. Whether that is the message's affair is told by what becomes of others.
    Unanswered,
    /// This message is refused now and may be taken later.
    RefusedForNow,
    /// This message will never be taken: too large, malformed, forbidden.
    RefusedForGood,
    /// The destination is there and has no place for this type.
    NoHome,
    /// The destination is not set up as it was asked for. Needs a person.
    Misconfigured,
}

/// A publish that failed.
///
/// Carries a code, never the words of a broker's error, which can hold credentials; those are in
/// [`source`](Error::source) for a log that is trusted with them.
#[derive(Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    code: String,
    retry_after: Option<Duration>,
    source: Option<BoxError>,
}

impl PublishError {
    /// An error of `kind`; `code` is short, stable and free of data.
    pub fn new(kind: PublishErrorKind, code: impl Into<String>) -> Self {
        Self { kind, code: code.into(), retry_after: None, source: None }
    }

    /// The same with what caused it.
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The same with how long the destination asks to be left alone.
    pub fn with_retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// How long the destination asks to be left alone, if it does.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// What it says about destination and message.
    pub fn kind(&self) -> PublishErrorKind {
        self.kind
    }

    /// A short stable code, fit to be stored and counted.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Whether the same publish may work later without anybody's doing.
    pub fn is_transient(&self) -> bool {
        use PublishErrorKind as K;
        matches!(self.kind, K::Unavailable | K::Throttled | K::InDoubt | K::Unanswered | K::RefusedForNow)
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use PublishErrorKind as K;
        let what = match self.kind {
            K::Unavailable => "the destination is unavailable",
            K::Throttled => "the destination takes no more for now",
            K::InDoubt => "the connection was lost, the message may have arrived",
            K::Unanswered => "no answer in time, the message may have arrived",
            K::RefusedForNow => "the message is refused for now",
            K::RefusedForGood => "the message is refused for good",
            K::NoHome => "the destination has no place for this type",
            K::Misconfigured => "the destination is not set up as asked",
        };
        write!(f, "{what} ({})", self.code)
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
