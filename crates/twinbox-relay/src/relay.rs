use crate::{
    Counters,
    flight::{Ended, Flight},
};
use std::{fmt, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use twinbox_core::{
    Destination, PublishError, PublishErrorKind, Publisher, RetryPolicy, crash, reconnect::Reconnect, retry,
};
use twinbox_sql::{
    Dialect, ErrorKind, Store,
    log::{Reader, ReaderOptions, Start},
};
use uuid::Uuid;

/// How a relay treats its destination.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct RelayOptions {
    start: Start,
    lease: Duration,
    in_flight: usize,
    page: usize,
    retry: RetryPolicy,
}

impl RelayOptions {
    /// From the beginning of the log, a lease of 4 s, 2,000 messages on their way.
    pub const fn new() -> Self {
        Self {
            start: Start::Beginning,
            lease: Duration::from_secs(4),
            in_flight: 2000,
            page: twinbox_sql::log::PAGE_MAX,
            retry: RetryPolicy::exponential(Duration::from_millis(100), Duration::from_secs(30)),
        }
    }

    /// Where a destination starts that was never published to.
    pub const fn start(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// For how long a relay that is not heard of keeps others out.
    pub const fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Messages that are sent and not yet acknowledged, at most.
    pub const fn in_flight(self, in_flight: usize) -> Self {
        Self { in_flight, ..self }
    }

    /// Messages that are read in one statement, at most.
    pub const fn page(self, page: usize) -> Self {
        Self { page, ..self }
    }
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Moves the outbox of one store to one destination. Any number of processes may run the same relay: one
/// owns the destination at a time, and another takes over when its lease ends.
///
/// ```no_run
/// # async fn run<DB: twinbox_sql::Dialect>(store: twinbox_sql::Store<DB>,
/// #     nats: impl twinbox_core::Destination, stop: tokio_util::sync::CancellationToken)
/// #     -> Result<(), twinbox_relay::Error> {
/// twinbox_relay::Relay::new(store, nats).run(stop).await
/// # }
/// ```
pub struct Relay<DB: Dialect> {
    store: Store<DB>,
    destination: Arc<dyn Destination>,
    options: RelayOptions,
    owner: Uuid,
    counters: Counters,
}

/// The part of the messages in flight, as its denominator, that has to be free before more are sent.
const SENT_TOGETHER: usize = 8;

/// Why the relay let go of the destination.
enum Released {
    Stopped,
    /// Worth another try.
    Failed(Error),
}

impl<DB: Dialect> Relay<DB> {
    /// A relay with the default options.
    pub fn new(store: Store<DB>, destination: impl Destination) -> Self {
        Self::with_options(store, destination, RelayOptions::new())
    }

    /// A relay with options of one's own.
    pub fn with_options(store: Store<DB>, destination: impl Destination, options: RelayOptions) -> Self {
        let (destination, owner) = (Arc::new(destination), Uuid::now_v7());
        Self { store, destination, options, owner, counters: Counters::default() }
    }

    /// What it counts.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// Runs until `stop` is cancelled, then waits for what is on its way, records it and gives the lease
    /// back. Outages of database and destination are waited out.
    ///
    /// # Errors
    /// What needs a person: tables that are not fit to be read, a destination that is not set up as asked.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let mut reconnect = Reconnect::new();
        while !stop.is_cancelled() {
            let error = match self.own(&stop, &mut reconnect).await {
                Ok(Released::Stopped) => break,
                Ok(Released::Failed(Error::Store(error))) if !error.is_transient() => {
                    return Err(error.into());
                }
                Ok(Released::Failed(error)) => error,
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            let destination = self.destination.id();
            let pause = reconnect.pause();
            match error {
                Error::OwnedByAnother => tracing::debug!(destination, "another relay owns the destination"),
                error => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::warn!(destination, ?pause, error = cause, "the relay starts over");
                }
            }
            // A standby looks again within a lease, so that a takeover does not wait for a long pause.
            pause_or_stop(pause.min(self.options.lease / 4), &stop).await;
        }
        Ok(())
    }

    /// Owns the destination for as long as nothing fails.
    async fn own(&self, stop: &CancellationToken, reconnect: &mut Reconnect) -> Result<Released, Error> {
        let options = ReaderOptions::new()
            .start(self.options.start)
            .lease(self.options.lease)
            .partitions(self.destination.partitions())
            .page(self.options.page);
        let reader = Reader::open(&self.store, self.destination.id(), self.owner, options).await?;
        let Some(mut reader) = reader else { return Err(Error::OwnedByAnother) };
        let connected = tokio::select! {
            connected = self.destination.connect() => connected.map(Some),
            () = stop.cancelled() => Ok(None),
        };
        let mut publisher = match connected {
            Ok(Some(publisher)) => publisher,
            other => {
                reader.close().await?;
                return other.map(|_| Released::Stopped).map_err(Error::from);
            }
        };
        reader.hold(publisher.timeout());
        tracing::info!(destination = self.destination.id(), "relaying");
        let mut flight = Flight::default();
        let released = self.relay(&mut reader, &mut *publisher, &mut flight, stop, reconnect).await;
        match released {
            Released::Stopped => {
                land(&mut reader, &mut flight).await;
                reader.close().await?;
                tracing::info!(destination = self.destination.id(), "stopped");
            }
            Released::Failed(ref error) if error.is_destination() => {
                // What is settled is worth recording, so that less is sent again.
                let _ = reader.close().await;
            }
            // Another relay may own the destination now: what the client still buffers dies with it.
            Released::Failed(_) => drop(publisher),
        }
        Ok(released)
    }

    async fn relay(
        &self,
        reader: &mut Reader<DB>,
        publisher: &mut dyn Publisher,
        flight: &mut Flight,
        stop: &CancellationToken,
        reconnect: &mut Reconnect,
    ) -> Released {
        loop {
            let room = self.room(flight);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Released::Stopped,
                Some(ended) = flight.next() => {
                    let mut next = Some(ended);
                    while let Some(ended) = next {
                        if let Err(error) = self.settle(reader, ended) {
                            // What is on its way will fail as well, but some of it may have arrived.
                            land(reader, flight).await;
                            return Released::Failed(error.into());
                        }
                        next = flight.ready();
                    }
                    reconnect.reset();
                }
                entries = reader.next(room) => match entries {
                    Ok(entries) => {
                        crash::point("relay.after_read");
                        flight.send(publisher, entries).await;
                        crash::point("relay.after_send");
                    }
                    Err(error) => return Released::Failed(error.into()),
                },
            }
        }
    }

    /// How many messages may go. None until a good part may: sent one by one, each costs a system call.
    fn room(&self, flight: &Flight) -> usize {
        let free = self.options.in_flight.saturating_sub(flight.len());
        if free < self.options.in_flight / SENT_TOGETHER { 0 } else { free }
    }

    /// Takes note of an answer. An error says that the destination is down.
    fn settle(&self, reader: &mut Reader<DB>, ended: Ended) -> Result<(), PublishError> {
        use PublishErrorKind as K;
        let (destination, Ended { entry, result }) = (self.destination.id(), ended);
        let message = &entry.message;
        let error = match result {
            Ok(receipt) => {
                crash::point("relay.after_ack");
                self.counters.note_published(receipt.duplicate, entry.ticket.repeated);
                if receipt.duplicate && !entry.ticket.repeated {
                    tracing::warn!(
                        destination,
                        message_id = %message.message_id(),
                        event_id = message.id,
                        "a duplicate at its first sending: two messages have one id, or the log was restored"
                    );
                }
                reader.settle(entry.ticket);
                return Ok(());
            }
            Err(error) => error,
        };
        match error.kind() {
            K::RefusedForNow | K::RefusedForGood | K::NoHome => {
                // Nothing is skipped: the message holds its key, and at the read-ahead bound everything,
                // until the destination takes it.
                self.counters.note_refused();
                let delay = self.options.retry.delay(entry.ticket.attempt, retry::random());
                tracing::error!(
                    destination,
                    message_id = %message.message_id(),
                    event_type = message.event_type,
                    code = error.code(),
                    ?delay,
                    "{error}; the message holds its key and is sent again"
                );
                reader.retry(entry, delay);
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Waits for every answer: each arrives or runs into the publisher's time-out.
async fn land<DB: Dialect>(reader: &mut Reader<DB>, flight: &mut Flight) {
    while let Some(ended) = flight.next().await {
        if ended.result.is_ok() {
            reader.settle(ended.entry.ticket);
        }
    }
}

async fn pause_or_stop(pause: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = stop.cancelled() => {}
    }
}

/// Why a relay stopped, or started over.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The destination failed.
    Destination(PublishError),
    /// The store failed.
    Store(twinbox_sql::Error),
    /// Another relay owns the destination.
    OwnedByAnother,
}

impl Error {
    /// Whether starting over may help without anybody's doing.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Destination(e) => e.is_transient(),
            Self::Store(e) => e.is_transient(),
            Self::OwnedByAnother => true,
        }
    }

    fn is_destination(&self) -> bool {
        matches!(self, Self::Destination(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destination(e) => e.fmt(f),
            Self::Store(e) if e.kind() == ErrorKind::LeaseLost => write!(f, "the lease was lost: {e}"),
            Self::Store(e) => write!(f, "the store failed: {e}"),
            Self::OwnedByAnother => f.write_str("another relay owns the destination"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Destination(e) => e.source(),
            Self::Store(e) => e.source(),
            Self::OwnedByAnother => None,
        }
    }
}

impl From<PublishError> for Error {
    fn from(e: PublishError) -> Self {
        Self::Destination(e)
    }
}

impl From<twinbox_sql::Error> for Error {
    fn from(e: twinbox_sql::Error) -> Self {
        Self::Store(e)
    }
}

impl<DB: Dialect> fmt::Debug for Relay<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("store", &self.store)
            .field("destination", &self.destination.id())
            .finish_non_exhaustive()
    }
}
