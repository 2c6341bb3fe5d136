use crate::{
    Counters, Error, RelayOptions,
    breaker::{Breaker, Circuit},
    flight::{Ended, Flight},
    gate::Gate,
    replays,
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use twinbox_core::{Destination, PublishError, PublishErrorKind, Publisher, crash, retry};
use twinbox_sql::{
    Dialect, ErrorKind, Store,
    log::{Entry, Parked, Reader, ReaderOptions},
};
use uuid::Uuid;

/// Delays up to this are waited for in place; for longer ones a message is put aside.
const IN_PLACE_MAX: Duration = Duration::from_secs(1);
/// A destination that nothing was sent to for this long is asked whether it is there.
const HEALTH_INTERVAL: Duration = Duration::from_secs(60);
/// How long a message waits for a place for its type.
const NO_HOME_DELAY: Duration = Duration::from_secs(5);

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
    pub(crate) store: Store<DB>,
    pub(crate) destination: Arc<dyn Destination>,
    pub(crate) options: RelayOptions,
    pub(crate) owner: Uuid,
    pub(crate) counters: Counters,
    pub(crate) breaker: Breaker,
}

/// The part of the messages in flight, as its denominator, that has to be free before more are sent.
const SENT_TOGETHER: usize = 8;

impl<DB: Dialect> Relay<DB> {
    /// A relay with the default options.
    pub fn new(store: Store<DB>, destination: impl Destination) -> Self {
        Self::with_options(store, destination, RelayOptions::new())
    }

    /// A relay with options of one's own.
    pub fn with_options(store: Store<DB>, destination: impl Destination, options: RelayOptions) -> Self {
        let (counters, breaker) = (Counters::new(destination.id()), Breaker::new(destination.id()));
        let (destination, owner) = (Arc::new(destination), Uuid::now_v7());
        Self { store, destination, options, owner, counters, breaker }
    }

    /// What it counts.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// Whether it tries the destination.
    pub fn breaker(&self) -> Breaker {
        self.breaker.clone()
    }

    /// Runs until `stop` is cancelled, then waits for what is on its way, records it and gives the lease
    /// back. Outages of database and destination are waited out. Replays to the destination run beside what is new.
    ///
    /// # Errors
    /// What needs a person: tables that are not fit to be read, a destination that is not set up as asked. If it
    /// was in order before, that is an outage as any other.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let (relay, stop) = (Arc::new(self), stop.child_token());
        let replays = AbortOnDropHandle::new(tokio::spawn(replays::run(relay.clone(), stop.clone())));
        let ended = relay.run_live(&stop).await;
        stop.cancel();
        let _ = replays.await;
        ended
    }

    async fn run_live(&self, stop: &CancellationToken) -> Result<(), Error> {
        let (mut circuit, mut gate) = (Circuit::new(self.breaker.clone()), Gate::default());
        let (id, options) = (self.destination.id(), self.reader_options());
        while !stop.is_cancelled() {
            let error = match self.own(id, &options, stop, &mut circuit, &mut gate).await {
                Ok(_) => break,
                Err(error) => error,
            };
            let pause = match error {
                Error::OwnedByAnother => circuit.stand_by(),
                error if circuit.is_final(&error) => return Err(error),
                error => {
                    if matches!(&error, Error::Store(error) if error.kind() == ErrorKind::LeaseLost) {
                        self.counters.note_lease_lost();
                    }
                    circuit.open(id, &error)
                }
            };
            // A standby looks again within a lease, so that a takeover does not wait for a long pause.
            let pause = pause.min(self.options.lease / 4).max(circuit.storm.pause());
            pause_or_stop(pause, stop).await;
        }
        Ok(())
    }

    pub(crate) fn reader_options(&self) -> ReaderOptions {
        ReaderOptions::new()
            .start(self.options.start)
            .lease(self.options.lease)
            .partitions(self.destination.partitions())
            .parking(true)
            .dead_letter_events(self.options.dead_letter_events)
            .page(self.options.page)
    }

    /// Owns a cursor until it is stopped or something fails; that of a replay until it is at its end or held back. True:
    /// it is at its end.
    pub(crate) async fn own(
        &self,
        cursor: &str,
        options: &ReaderOptions,
        stop: &CancellationToken,
        circuit: &mut Circuit,
        gate: &mut Gate,
    ) -> Result<bool, Error> {
        let opened = tokio::select! {
            opened = Reader::open(&self.store, cursor, self.owner, options.clone()) => opened?,
            () = stop.cancelled() => return Ok(false),
        };
        let Some(mut reader) = opened else { return Err(Error::OwnedByAnother) };
        circuit.probe();
        let connected = tokio::select! {
            connected = self.destination.connect() => connected.map(Some),
            () = stop.cancelled() => Ok(None),
        };
        let mut publisher = match connected {
            Ok(Some(publisher)) => publisher,
            other => {
                reader.close().await?;
                return other.map(|_| false).map_err(Error::from);
            }
        };
        let (lease, timeout) = (self.options.lease, publisher.timeout());
        // It is renewed every quarter of itself, and nothing is sent in its last `timeout`.
        if timeout >= lease * 3 / 4 {
            reader.close().await?;
            return Err(Error::LeaseTooShort { lease, timeout });
        }
        circuit.close(cursor);
        reader.hold(timeout);
        let mut flight = Flight::default();
        let Err(error) = self.relay(&mut reader, &mut *publisher, &mut flight, stop, circuit, gate).await
        else {
            land(&mut reader, &mut flight, &self.counters).await;
            let ended = reader.has_ended();
            reader.close().await?;
            return Ok(ended);
        };
        if error.is_destination() {
            // What is on its way will fail as well, but some of it may have arrived, and what is settled is worth
            // recording, so that less is sent again.
            land(&mut reader, &mut flight, &self.counters).await;
            let _ = reader.close().await;
        }
        // Otherwise another relay may own the destination now: what the client still buffers dies with it.
        Err(error)
    }

    /// Until it is stopped, or nothing is left of a replay.
    async fn relay(
        &self,
        reader: &mut Reader<DB>,
        publisher: &mut dyn Publisher,
        flight: &mut Flight,
        stop: &CancellationToken,
        circuit: &mut Circuit,
        gate: &mut Gate,
    ) -> Result<(), Error> {
        let mut answered_at = Instant::now();
        while !(reader.has_ended() || reader.is_replay() && reader.held().is_some()) {
            let mut wait = gate.wait();
            let allowed = gate.pace.allowance(self.options.rate, Instant::now()).unwrap_or_else(|until| {
                wait = wait.max(until);
                0
            });
            let room = if wait.is_zero() { self.room(flight).min(allowed) } else { 0 };
            let quiet_until = answered_at + HEALTH_INTERVAL;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(ended) = flight.next() => {
                    let mut next = Some(ended);
                    while let Some(ended) = next {
                        self.settle(reader, ended, circuit, gate)?;
                        next = flight.ready();
                    }
                    circuit.delivered();
                    answered_at = Instant::now();
                }
                () = tokio::time::sleep(wait), if !wait.is_zero() => {}
                () = tokio::time::sleep_until(quiet_until.into()), if flight.len() == 0 => {
                    tokio::select! {
                        health = publisher.health() => health?,
                        kept = reader.next(0) => drop(kept?),
                    }
                    answered_at = Instant::now();
                }
                entries = reader.next(room) => {
                    let entries = entries?;
                    crash::point("relay.after_read");
                    let entries = self.route(reader, entries, gate);
                    gate.pace.pay(self.options.rate, entries.len());
                    flight.send(publisher, entries).await;
                    crash::point("relay.after_send");
                }
            }
        }
        Ok(())
    }

    /// Passes by what the destination does not take.
    fn route(&self, reader: &mut Reader<DB>, mut entries: Vec<Entry>, gate: &mut Gate) -> Vec<Entry> {
        for entry in entries.extract_if(.., |entry| !self.options.takes(&entry.message.event_type)) {
            let event_type = &entry.message.event_type;
            if self.options.is_unrouted(event_type) {
                self.counters.note_unrouted();
                if gate.tells(event_type) {
                    let service = self.store.service();
                    tracing::error!(
                        service,
                        event_type,
                        "no destination takes this type: its messages go nowhere"
                    );
                }
            }
            reader.settle(entry.ticket);
        }
        entries
    }

    /// How many messages may go. None until a good part may: sent one by one, each costs a system call.
    fn room(&self, flight: &Flight) -> usize {
        let free = self.options.in_flight.saturating_sub(flight.len());
        if free < self.options.in_flight / SENT_TOGETHER { 0 } else { free }
    }

    /// Takes note of an answer. An error says that the destination is down.
    fn settle(
        &self,
        reader: &mut Reader<DB>,
        ended: Ended,
        circuit: &mut Circuit,
        gate: &mut Gate,
    ) -> Result<(), PublishError> {
        use PublishErrorKind as K;
        let (destination, Ended { entry, result }) = (self.destination.id(), ended);
        let error = match result {
            Ok(receipt) => {
                crash::point("relay.after_ack");
                self.counters.note_published(&entry.message, receipt.duplicate, entry.ticket.repeated);
                if receipt.duplicate && !entry.ticket.repeated {
                    tracing::warn!(
                        destination,
                        message_id = %entry.message.message_id(),
                        event_id = entry.message.id,
                        "a duplicate at its first sending: two messages have one id, or the log was restored"
                    );
                }
                gate.opened();
                reader.settle(entry.ticket);
                return Ok(());
            }
            Err(error) => error,
        };
        self.counters.note_error(&error);
        let attempt = entry.ticket.attempt;
        if matches!(error.kind(), K::RefusedForNow | K::RefusedForGood | K::NoHome) {
            self.counters.note_refused();
        }
        match error.kind() {
            K::RefusedForGood => self.give_up(reader, entry, &error, circuit)?,
            K::RefusedForNow => match self.options.retry.next(attempt, retry::random()) {
                Some(delay) if delay <= IN_PLACE_MAX => reader.retry(entry, delay),
                Some(delay) => self.park(reader, entry, Parked::Waiting(delay), attempt, &error),
                None => self.give_up(reader, entry, &error, circuit)?,
            },
            K::NoHome => {
                let event_type = &entry.message.event_type;
                if gate.tells(event_type) {
                    tracing::error!(
                        destination,
                        event_type,
                        code = error.code(),
                        "{error}: the type waits for one"
                    );
                }
                self.park(reader, entry, Parked::Waiting(NO_HOME_DELAY), attempt.saturating_sub(1), &error);
            }
            K::Throttled => {
                let wait = gate.close(error.retry_after(), Instant::now());
                tracing::debug!(destination, ?wait, code = error.code(), "{error}");
                // Not the message's fault, and so no attempt of it.
                let mut entry = entry;
                entry.ticket.attempt = attempt.saturating_sub(1);
                reader.retry(entry, wait);
            }
            _ => return Err(error),
        }
        Ok(())
    }

    /// An error: so many are given up that the destination is not trusted.
    fn give_up(
        &self,
        reader: &mut Reader<DB>,
        entry: Entry,
        error: &PublishError,
        circuit: &mut Circuit,
    ) -> Result<(), PublishError> {
        circuit.storm.note_dead()?;
        self.counters.note_dead();
        let attempt = entry.ticket.attempt;
        self.park(reader, entry, self.options.on_exhausted.parked(), attempt, error);
        Ok(())
    }

    fn park(
        &self,
        reader: &mut Reader<DB>,
        entry: Entry,
        parked: Parked,
        attempts: u32,
        error: &PublishError,
    ) {
        self.counters.note_parked();
        // One line for each dead letter; of waiting ones there may be thousands.
        let (destination, message_id, code) =
            (self.destination.id(), entry.message.message_id(), error.code());
        if matches!(parked, Parked::Waiting(_)) {
            tracing::debug!(destination, %message_id, code, attempts, "the message is put aside");
        } else {
            let event_type = &entry.message.event_type;
            tracing::error!(
                destination, %message_id, event_type, code, attempts, ?parked, "{error}; the message is given up"
            );
        }
        reader.park(entry, parked, attempts, error.code());
    }
}

/// Waits for every answer: each arrives or runs into the publisher's time-out.
async fn land<DB: Dialect>(reader: &mut Reader<DB>, flight: &mut Flight, counters: &Counters) {
    while let Some(ended) = flight.next().await {
        if let Ok(receipt) = ended.result {
            counters.note_published(&ended.entry.message, receipt.duplicate, ended.entry.ticket.repeated);
            reader.settle(ended.entry.ticket);
        }
    }
}

pub(crate) async fn pause_or_stop(pause: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = stop.cancelled() => {}
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
