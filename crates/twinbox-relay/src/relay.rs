use crate::{
    Counters, Error, RelayOptions,
    breaker::{Breaker, Circuit},
    flight::Flight,
    gate::Gate,
    replays,
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use twinbox_core::{Destination, Publisher, crash};
use twinbox_sql::{
    Dialect, ErrorKind, Store,
    log::{Entry, Reader, ReaderOptions, Room},
};
use uuid::Uuid;

/// A destination that nothing was sent to for this long is asked whether it is there.
const HEALTH_INTERVAL: Duration = Duration::from_secs(60);

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
        reader.order(publisher.order());
        let mut flight = Flight::new(self.options.in_flight);
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
            let room = if wait.is_zero() { flight.window.room() } else { Room::NONE };
            let room = Room { messages: room.messages.min(allowed), ..room };
            let quiet_until = answered_at + HEALTH_INTERVAL;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(ended) = flight.next() => {
                    let mut silent = Vec::new();
                    for ended in flight.all(ended) {
                        self.settle(reader, ended, flight, &mut silent, circuit, gate)?;
                    }
                    if !silent.is_empty() {
                        self.ask(reader, publisher).await?;
                        // The destination is there: it is these messages.
                        for (entry, error) in silent {
                            self.refuse(reader, entry, &error, circuit)?;
                        }
                    }
                    circuit.delivered();
                    answered_at = Instant::now();
                }
                () = tokio::time::sleep(wait), if !wait.is_zero() => {}
                () = tokio::time::sleep_until(quiet_until.into()), if flight.len() == 0 => {
                    self.ask(reader, publisher).await?;
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

    /// Asks the destination whether it is there, and keeps the lease meanwhile.
    async fn ask(&self, reader: &mut Reader<DB>, publisher: &mut dyn Publisher) -> Result<(), Error> {
        tokio::select! {
            health = publisher.health() => Ok(health?),
            kept = reader.next(Room::NONE) => kept.map(drop).map_err(Error::from),
        }
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
