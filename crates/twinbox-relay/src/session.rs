//! A session: the time during which a relay owns the cursor of its destination.
use crate::{
    decision::{Decision, FailedPublish},
    destination_state::DestinationState,
    error::Error,
    in_flight::{InFlight, PublishResult},
    link::Link,
    storm_guard::StormGuard,
    trace::SendSpans,
};
use std::{
    collections::HashSet,
    time::{Duration, Instant, SystemTime},
};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;
use twinbox_core::{PublishError, PublishErrorKind, Publisher, crash, destination::Receipt};
use twinbox_log::{Budget, Entry, Reader, ReaderOptions, parking::ParkedState};
use twinbox_sql::Dialect;

/// The relay checks the health of a destination that it sent nothing to for this long.
const HEALTH_INTERVAL: Duration = Duration::from_secs(60);
/// When a message is sent again that the destination has begun to store.
const IN_PROCESS_DELAY: Duration = Duration::from_secs(1);

/// The way in which a session ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The relay was stopped, or the replay is paused.
    Interrupted,
    /// Another process, with fewer destinations, is to have this one.
    HandedOver,
    /// Every message of the replay is settled.
    ReplayDone,
}

/// Owns a cursor, and the connection to the destination that the cursor is for.
pub(crate) struct Session<'a, DB: Dialect> {
    link: &'a Link<DB>,
    state: &'a mut DestinationState,
    in_flight: InFlight,
    publisher: Box<dyn Publisher>,
    reader: Reader<DB>,
    /// Is cancelled when another process is to have the destination.
    leave: CancellationToken,
}

impl<'a, DB: Dialect> Session<'a, DB> {
    /// Takes the lease of a cursor and connects to the destination. `None`: the relay was stopped first.
    pub(crate) async fn open(
        link: &'a Link<DB>,
        cursor: &str,
        options: &ReaderOptions,
        state: &'a mut DestinationState,
        stop: &CancellationToken,
    ) -> Result<Option<Self>, Error> {
        let opened = tokio::select! {
            opened = Reader::open(&link.store, cursor, link.owner, options.clone()) => opened?,
            () = stop.cancelled() => return Ok(None),
        };
        let Some(mut reader) = opened else { return Err(Error::OwnedByAnother) };
        state.breaker.probe();
        let connected = tokio::select! {
            connected = link.connect() => connected.map(Some),
            () = stop.cancelled() => Ok(None),
        };
        let publisher = match connected {
            Ok(Some(publisher)) => publisher,
            other => {
                reader.close().await?;
                return other.map(|_| None);
            }
        };
        let timeout = publisher.timeout();
        if let Err(too_short) = link.options.check_lease(timeout) {
            reader.close().await?;
            return Err(too_short);
        }
        state.breaker.close(cursor);
        reader.stop_before_lease_end(timeout);
        reader.order(publisher.order());
        let in_flight = InFlight::new(link.options.in_flight);
        // A destination that cannot be reached is in nobody's share, and neither is a replay.
        let leave = if reader.is_replay() { CancellationToken::new() } else { reader.join(&link.shares) };
        Ok(Some(Self { link, state, in_flight, publisher, reader, leave }))
    }

    /// Relays until `stop` is cancelled, another process is to have the destination, or something fails. The
    /// session of a replay also ends when the replay is done or paused. Gives the lease back, unless the
    /// store failed.
    pub(crate) async fn run(mut self, stop: &CancellationToken) -> Result<SessionEnd, Error> {
        let Err(error) = self.relay(stop).await else {
            self.finish_in_flight().await;
            let end = if self.reader.has_ended() {
                SessionEnd::ReplayDone
            } else if self.leave.is_cancelled() {
                SessionEnd::HandedOver
            } else {
                SessionEnd::Interrupted
            };
            self.reader.close().await?;
            return Ok(end);
        };
        if error.is_destination_failure() {
            // The messages in flight will probably fail too, but some may have arrived. Recording what is
            // settled leaves less to send again.
            self.finish_in_flight().await;
            let _ = self.reader.close().await;
        }
        // After an error of the store another relay may own the destination. Dropping the publisher then also
        // drops the messages that the client still buffers.
        Err(error)
    }

    async fn relay(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let mut last_contact = Instant::now();
        while !(self.reader.has_ended() || self.reader.is_replay() && self.reader.pause_reason().is_some()) {
            let (room, wait) = self.room();
            let health_due = last_contact + HEALTH_INTERVAL;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = self.leave.cancelled() => return Ok(()),
                Some(first) = self.in_flight.next() => {
                    self.handle_results(first).await?;
                    last_contact = Instant::now();
                    // Other tasks send and read meanwhile. With all results at once, the destination would
                    // run dry.
                    yield_now().await;
                }
                () = tokio::time::sleep(wait), if !wait.is_zero() => {}
                () = tokio::time::sleep_until(health_due.into()), if self.in_flight.is_empty() => {
                    self.check_health().await?;
                    last_contact = Instant::now();
                }
                entries = self.reader.next(room) => {
                    let entries = entries?;
                    crash::point("relay.after_read");
                    let entries = self.skip_other_types(entries);
                    let entries = self.give_up_unreadable(entries)?;
                    self.state.pace.pay(self.link.options.rate, entries.len());
                    let spans = SendSpans::start(&*self.link.destination, &entries);
                    self.in_flight.send(&mut *self.publisher, entries, spans).await;
                    crash::point("relay.after_send");
                }
            }
        }
        Ok(())
    }

    /// Returns how much may be sent now, and how long throttle and rate forbid to send anything.
    fn room(&mut self) -> (Budget, Duration) {
        let wait = self.state.throttle.wait();
        let (allowed, wait) = match self.state.pace.allowance(self.link.options.rate, Instant::now()) {
            Ok(allowed) => (allowed, wait),
            Err(until_next_group) => (0, wait.max(until_next_group)),
        };
        let room = if wait.is_zero() { self.in_flight.limit.room() } else { Budget::NONE };
        (Budget { messages: room.messages.min(allowed), ..room }, wait)
    }

    async fn handle_results(&mut self, first: Vec<PublishResult>) -> Result<(), Error> {
        let (mut unanswered, mut behind, now) = (Vec::new(), Vec::new(), SystemTime::now());
        // Accepted messages come first: an error that ends the session leaves less to send again.
        let mut results = self.in_flight.take_ready(first);
        results.sort_by_key(|result| result.result.is_err());
        for PublishResult { mut entry, result, sent } in results {
            let error = match result {
                Ok(receipt) => {
                    self.accept(entry, receipt, now);
                    continue;
                }
                Err(error) if error.kind() == PublishErrorKind::BehindFailure => {
                    behind.push(entry);
                    continue;
                }
                // The destination refused it on its own, and the one before it may fail yet.
                Err(error) if self.reader.is_behind(entry.ticket) => {
                    if error.kind() == PublishErrorKind::NameTaken {
                        entry.ticket.rename();
                    }
                    self.reader.retry(entry, Duration::ZERO, false);
                    continue;
                }
                Err(error) => error,
            };
            self.link.counters.note_failure(&error);
            let failed =
                FailedPublish { destination: self.link.destination.id(), entry: &entry, error: &error };
            let decision = failed.decide(sent, &self.link.options, &mut self.in_flight, self.state);
            if decision == Decision::CheckHealth {
                unanswered.push((entry, error));
            } else {
                self.apply(decision, entry, error)?;
            }
        }
        self.reader.give_back(behind);
        if !unanswered.is_empty() {
            self.check_health().await?;
            // The destination is there, so these messages are at fault.
            for (entry, error) in unanswered {
                let failed =
                    FailedPublish { destination: self.link.destination.id(), entry: &entry, error: &error };
                let decision = failed.refused(&self.link.options, self.state);
                self.apply(decision, entry, error)?;
            }
        }
        self.state.breaker.note_result();
        Ok(())
    }

    fn accept(&mut self, entry: Entry, receipt: Receipt, now: SystemTime) {
        crash::point("relay.after_ack");
        let (message, ticket) = (&entry.message, entry.ticket);
        self.link.counters.note_published(message, receipt.is_duplicate, now);
        self.state.note_accepted(&message.event_type);
        self.reader.settle(ticket);
    }

    fn apply(
        &mut self,
        decision: Decision,
        mut entry: Entry,
        error: PublishError,
    ) -> Result<(), PublishError> {
        match decision {
            Decision::Rename => {
                entry.ticket.rename();
                self.reader.retry(entry, Duration::ZERO, false);
            }
            Decision::InProcess => {
                entry.ticket.note_in_process();
                self.reader.retry(entry, IN_PROCESS_DELAY, false);
            }
            Decision::Retry { delay, counted } => self.reader.retry(entry, delay, counted),
            Decision::Park { parked, attempts } => self.park(entry, parked, attempts, &error),
            Decision::CheckHealth | Decision::DestinationDown => return Err(error),
            Decision::Storm => return Err(StormGuard::error()),
        }
        Ok(())
    }

    fn park(&mut self, entry: Entry, parked: ParkedState, attempts: u32, error: &PublishError) {
        self.link.counters.note_parked();
        let (destination, message_id, code) =
            (self.link.destination.id(), entry.message.message_id(), error.code());
        if matches!(parked, ParkedState::Waiting(_)) {
            // Not at `info`: thousands of messages may be parked.
            tracing::debug!(destination, %message_id, code, attempts, "the message is parked");
        } else {
            self.link.counters.note_dead();
            let event_type = &entry.message.event_type;
            tracing::error!(
                destination, %message_id, event_type, code, attempts, ?parked,
                "{error}: the message is a dead letter"
            );
        }
        self.reader.park(entry, parked, attempts, error.code());
    }

    /// Checks the health of the destination, and keeps the lease meanwhile.
    async fn check_health(&mut self) -> Result<(), Error> {
        tokio::select! {
            health = self.publisher.health() => Ok(health?),
            // Without room the reader hands out nothing.
            kept = self.reader.next(Budget::NONE) => kept.map(drop).map_err(Error::from),
        }
    }

    /// Settles the messages of types that the destination does not take. Returns the others.
    fn skip_other_types(&mut self, mut entries: Vec<Entry>) -> Vec<Entry> {
        let options = &self.link.options;
        for entry in entries.extract_if(.., |entry| !options.takes(&entry.message.event_type)) {
            let event_type = &entry.message.event_type;
            if options.is_unrouted(event_type) {
                self.link.counters.note_unrouted();
                if self.state.type_faults.should_log(event_type) {
                    let service = self.link.store.service();
                    tracing::error!(
                        service,
                        event_type,
                        "no destination takes this type: its messages are sent nowhere"
                    );
                }
            }
            self.reader.settle(entry.ticket);
        }
        entries
    }

    /// Gives up the messages whose time no program can read: a destination has no form for it. Returns the
    /// others, without those that come behind one of their key.
    fn give_up_unreadable(&mut self, entries: Vec<Entry>) -> Result<Vec<Entry>, Error> {
        if entries.iter().all(|entry| entry.message.time.fits_rfc3339()) {
            return Ok(entries);
        }
        let (mut readable, mut behind, mut keys) = (Vec::new(), Vec::new(), HashSet::new());
        for entry in entries {
            let key = entry.message.key.clone();
            if key.as_ref().is_some_and(|key| keys.contains(key)) {
                behind.push(entry);
            } else if entry.message.time.fits_rfc3339() {
                readable.push(entry);
            } else {
                keys.extend(key);
                self.give_up(entry)?;
            }
        }
        self.reader.give_back(behind);
        Ok(readable)
    }

    fn give_up(&mut self, entry: Entry) -> Result<(), PublishError> {
        // The one before it may fail yet.
        if self.reader.is_behind(entry.ticket) {
            self.reader.retry(entry, Duration::ZERO, false);
            return Ok(());
        }
        let error = PublishError::new(PublishErrorKind::RefusedForGood, "relay.time");
        self.link.counters.note_failure(&error);
        let failed = FailedPublish { destination: self.link.destination.id(), entry: &entry, error: &error };
        let decision = failed.give_up(&self.link.options, self.state);
        self.apply(decision, entry, error)
    }

    /// Waits until nothing is in flight. Each message gets a response or runs into the publish time-out.
    async fn finish_in_flight(&mut self) {
        while let Some(results) = self.in_flight.next().await {
            let now = SystemTime::now();
            for PublishResult { entry, result, .. } in results {
                let Ok(receipt) = result else { continue };
                self.link.counters.note_published(&entry.message, receipt.is_duplicate, now);
                self.reader.settle(entry.ticket);
            }
        }
    }
}
