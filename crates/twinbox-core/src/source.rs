//! The seam to what is consumed from.
use crate::{BoxError, BoxFuture, Message, PartitionedLog};
use std::{error::Error, fmt, time::Duration};

/// Where consumers get their messages: a broker, or the log itself.
pub trait Transport: Send + Sync + 'static {
    /// Opens the source of one consumer. Its progress is kept under [`Subscription::consumer`], so that a
    /// process that comes back goes on where it was.
    ///
    /// # Errors
    /// [`SourceErrorKind::Unavailable`] is worth another try; [`SourceErrorKind::Misconfigured`] needs a
    /// person.
    fn subscribe<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Source>, SourceError>>;

    /// Opens the log of a consumer that asks for the order of keys and keeps its place itself. None: this transport
    /// keeps order and place in [`subscribe`](Self::subscribe), or refuses there.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    fn open_log<'a>(
        &'a self,
        subscription: &'a Subscription,
    ) -> BoxFuture<'a, Result<Option<Box<dyn PartitionedLog>>, SourceError>> {
        let _ = subscription;
        Box::pin(async { Ok(None) })
    }
}

/// What a consumer asks of a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The durable name.
    pub consumer: String,
    /// The event types that it handles, sorted.
    pub types: Vec<String>,
    /// How many deliveries it may hold at a time.
    pub concurrency: usize,
    /// Whether messages of one key must arrive in order, across every process that runs the consumer. A
    /// transport that cannot do so refuses.
    pub ordered: bool,
}

/// How long after it was published a message may still be delivered, be it again. An inbox has to remember for longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Horizon {
    /// What is settled never comes again.
    Settled,
    /// Not after this age.
    Within {
        /// Since it was published.
        age: Duration,
        /// What says so, for whoever has to change it.
        because: String,
    },
    /// For ever, or nobody knows.
    Unlimited {
        /// What says so, or why nobody knows.
        because: String,
    },
}

impl Horizon {
    pub(crate) fn unknown() -> Self {
        Self::Unlimited { because: "its transport does not say how old a delivery may be".to_owned() }
    }
}

/// Deliveries of one consumer.
pub trait Source: Send {
    /// Waits for at least one delivery and answers with at most `max`. Cancel safe: what is not returned is
    /// not lost.
    ///
    /// # Errors
    /// After an error the source is of no use; subscribe again. Deliveries that were not settled come again.
    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<Received>, SourceError>>;

    /// Messages that wait at the broker, as far as it has said so.
    fn lag(&self) -> Option<u64> {
        None
    }

    /// How old what it delivers may be, as the broker has said when it was subscribed.
    fn horizon(&self) -> Horizon {
        Horizon::unknown()
    }

    /// Lets go in good order: what is settled is recorded, and another process can take over at once.
    /// Dropping the source instead loses nothing and costs the time of a lease.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>>;
}

/// One delivery of a message. Dropped without being settled, it comes again.
#[expect(missing_debug_implementations, reason = "holds what settles it")]
pub struct Received {
    /// The message. Where [`defect`](Self::defect) is set it is as much of it as could be read.
    pub message: Message,
    /// Why the message cannot be read, if it cannot. It will never be readable.
    pub defect: Option<String>,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
    /// How to settle it.
    pub settle: Box<dyn Settle>,
}

/// Settles one delivery.
pub trait Settle: Send + Sync {
    /// It is done. Resolves when the source has taken note.
    ///
    /// # Errors
    /// The acknowledgement was not confirmed: the message may come again, and the inbox will know it.
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>>;

    /// Deliver it again, not before `delay`.
    ///
    /// # Errors
    /// Not confirmed: it comes again, perhaps earlier or later.
    fn nak(self: Box<Self>, delay: Duration) -> BoxFuture<'static, Result<(), SourceError>>;

    /// It is still being worked on: do not deliver it again yet.
    ///
    /// # Errors
    /// Not confirmed: it may come again while it is worked on, and the inbox will hold the copy back.
    fn progress(&self) -> BoxFuture<'_, Result<(), SourceError>>;

    /// How often [`progress`](Self::progress) has to be called. None: never.
    fn progress_interval(&self) -> Option<Duration>;
}

/// What went wrong with a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// Not there now; try again.
    Unavailable,
    /// Another process owns what this one asked for; try again.
    OwnedByAnother,
    /// Not set up as it was asked for. Needs a person.
    Misconfigured,
    /// An acknowledgement was not confirmed.
    NotConfirmed,
}

/// A source that failed.
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    what: String,
    source: Option<BoxError>,
}

impl SourceError {
    /// An error of `kind`; `what` says what was being done and, if a person is needed, what to change.
    pub fn new(kind: SourceErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// The same with what caused it.
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// What went wrong.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// Whether subscribing again may help without anybody's doing.
    pub fn is_transient(&self) -> bool {
        self.kind != SourceErrorKind::Misconfigured
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
