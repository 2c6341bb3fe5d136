//! The messages between a log and its reader, with the parked ones.
use super::{
    bounds::{
        DUE_INTERVAL, IDLE_LOOK_INTERVAL, LOOK_INTERVAL, PARKED_MAX, TAKEN_MAX, WRITTEN_BYTES_MAX,
        WRITTEN_MAX,
    },
    owner::Owner,
    row::{Action, Change, Look, ParkedRow, Want},
    state::{Parkable, ParkedState},
    store::write_and_look,
};
use crate::{
    dead_letter_event,
    options::{BUFFERED_BYTES_MAX, BUFFERED_MAX, PAGE_BYTES},
    task::finished,
};
use std::{
    collections::HashSet,
    fmt, mem,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::{
    destination::SendOrder,
    lanes::{Budget, Entry, Lanes, Ticket},
    test_signal,
};
use twinbox_sql::{
    Dialect, Error, Store,
    engine::{Engine, scalar},
};

/// The changes that a task wrote, and what it found.
type Finished = (Vec<Change>, Result<Look, Error>);

/// Keeps the messages between a log and its reader in order, and writes the parked ones to the database.
///
/// The caller drives it: [`start`](Self::start) begins due work, [`finished`](Self::finished) takes its
/// result in, and [`due`](Self::due) returns the time of the next call.
pub struct Queue<DB: Dialect, M, C> {
    pub(super) engine: Engine<DB>,
    pub(super) owner: Owner,
    pub(super) lanes: Lanes<M, C>,
    /// None: messages cannot be parked.
    pub(super) parking: Option<Parking>,
    /// Whether an event is published for each dead letter.
    pub(super) dead_letter_events: bool,
}

/// What a queue knows of the rows of its owner.
#[derive(Default)]
pub(super) struct Parking {
    pub(super) changes: Vec<Change>,
    /// Rows that are taken up and not settled.
    pub(super) taken: HashSet<i64>,
    /// Rows that are settled, while the log may still bring messages that an earlier owner parked.
    settled: HashSet<i64>,
    /// Whether the log may bring those again.
    is_reread: bool,
    pub(super) working: Option<AbortOnDropHandle<Result<Finished, Error>>>,
    pub(super) working_since: Option<Instant>,
    look_at: Option<Instant>,
    /// When rows were last written or looked at.
    worked_at: Option<Instant>,
    /// The database has failed, and is left alone until then.
    rests_until: Option<Instant>,
    /// How many rows wait. None before the first look.
    pub(super) waiting: Option<usize>,
    /// The bytes of messages that the rows hold.
    pub(super) bytes: usize,
    /// Whether a row blocks the owner.
    is_blocked: bool,
}

impl<DB: Dialect, M: Parkable, C: Clone> Queue<DB, M, C> {
    /// Creates a queue of a log that is settled up to a cursor. Without `parking` messages cannot be parked.
    pub fn new(store: &Store<DB>, owner: Owner, settled: C, parking: bool) -> Self {
        Self {
            engine: store.engine().clone(),
            owner,
            lanes: Lanes::new(settled),
            parking: parking.then(Parking::default),
            dead_letter_events: false,
        }
    }

    /// Whether an event is published for each dead letter.
    pub(crate) fn dead_letter_events(&mut self, dead_letter_events: bool) {
        self.dead_letter_events = dead_letter_events;
    }

    /// Sets whether several messages of a key may be in flight.
    pub fn order(&mut self, order: SendOrder) {
        self.lanes.order(order);
    }

    /// Reads the bytes of the messages that the rows of a partition hold. From then on they are counted.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn load_bytes(&mut self) -> Result<(), Error> {
        let (Owner::Partition { .. }, Some(parking)) = (&self.owner, &mut self.parking) else {
            return Ok(());
        };
        let mut conn = self.engine.connection().await?;
        let bytes = self.owner.bind_scalar(scalar::<DB, i64>(&self.engine.sql().deliveries.bytes));
        let bytes = bytes.fetch_one(&mut *conn).await?;
        conn.done().await?;
        parking.bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(())
    }

    /// Sets whether the log may bring messages that were parked before.
    pub(crate) fn is_reread(&mut self, is_reread: bool) {
        if let Some(parking) = &mut self.parking {
            parking.is_reread = is_reread;
            if !is_reread {
                parking.settled.clear();
            }
        }
    }

    /// Whether a message that the log brings was parked and is settled.
    pub(crate) fn is_settled(&self, position: i64) -> bool {
        self.parking.as_ref().is_some_and(|parking| parking.settled.contains(&position))
    }

    /// Adds the next message of the log.
    pub fn push(&mut self, message: M, after: C, repeated: bool) {
        self.lanes.push(message, after, repeated);
    }

    /// Adds the next message of the log, which is settled already.
    pub fn push_settled(&mut self, after: C) {
        self.lanes.push_settled(after);
    }

    /// Records that a window of the log ends after the last added message.
    pub fn end_window(&mut self, after: C) {
        self.lanes.end_window(after);
    }

    /// Hands out messages that may be sent. None before the first look at the rows, nor while a row blocks
    /// the owner.
    pub fn take(&mut self, room: Budget) -> Vec<Entry<M>> {
        if self.is_open() {
            return self.lanes.take(room);
        }
        if self.lanes.ready() > 0 {
            test_signal::pass("parking.keeps_back");
        }
        Vec::new()
    }

    fn is_open(&self) -> bool {
        self.parking.as_ref().is_none_or(|parking| parking.waiting.is_some() && !parking.is_blocked)
    }

    /// Settles a message: it is not handed out again, and the cursor may pass it.
    pub fn settle(&mut self, ticket: Ticket) {
        if let (Some(row), Some(parking)) = (ticket.parked(), &mut self.parking) {
            parking.changes.push(Change { ticket: None, action: Action::Delete(row) });
            parking.bytes = parking.bytes.saturating_sub(ticket.bytes());
            if parking.is_reread {
                parking.settled.insert(row);
            }
        }
        self.lanes.settle(ticket);
    }

    /// Hands a message out again after `delay`. Later messages of its key wait behind it. See
    /// [`Lanes::retry`].
    pub fn retry(&mut self, entry: Entry<M>, delay: Duration, counted: bool) {
        self.lanes.retry(entry, Instant::now() + delay, counted);
    }

    /// Takes back messages that were not sent, or not completely.
    pub fn give_back(&mut self, entries: Vec<Entry<M>>) {
        self.lanes.give_back(entries);
    }

    /// Parks a message: its row is written, and the cursor may pass it. `attempts` is the number of its
    /// attempts, `error` a code of its last failure. No later message of its key is handed out before that is
    /// committed. After a crash before the commit the message is handed out again.
    ///
    /// # Panics
    /// The queue was made without parking.
    pub fn park(&mut self, entry: Entry<M>, state: ParkedState, attempts: u32, error: &str) {
        self.lanes.block(entry.ticket);
        let parking = self.parking.as_mut().expect("a queue with parking");
        if state != ParkedState::Dead {
            // Later rows of its key stay parked behind it.
            for row in self.lanes.drop_resumed(entry.ticket) {
                parking.taken.remove(&row);
            }
        }
        let message = entry.message.message();
        let is_dead = !matches!(state, ParkedState::Waiting(_));
        let has_event = self.dead_letter_events && is_dead;
        let event = || dead_letter_event::event(self.owner.name(), message, attempts, error);
        let event = has_event.then(event).flatten();
        parking.is_blocked |= state == ParkedState::Blocking;
        if entry.ticket.parked().is_none() {
            parking.bytes = parking.bytes.saturating_add(entry.ticket.bytes());
        }
        let (number, message) = (entry.ticket.parked(), Arc::new(message.clone()));
        let row = ParkedRow { number, message, state, attempts, error: error.to_owned(), event };
        parking.changes.push(Change { ticket: Some(entry.ticket), action: Action::Park(Box::new(row)) });
    }

    /// Starts a task that writes changes and reads due rows, if it is time.
    pub fn start(&mut self, now: Instant) {
        if self.work_at(now).is_some_and(|at| at <= now) {
            self.work(now);
        }
    }

    /// The time of the next write or look. None: not before the running task has ended.
    fn work_at(&self, now: Instant) -> Option<Instant> {
        let parking = self.parking.as_ref().filter(|parking| parking.working.is_none())?;
        let parks = || parking.changes.iter().any(|change| matches!(change.action, Action::Park(_)));
        let at = if self.lanes.has_to_park() || 2 * parking.changes.len() > parking.taken.len() || parks() {
            now
        } else {
            // Rows of settled messages are deleted together while many more are taken up.
            let together = parking.worked_at.filter(|_| !parking.changes.is_empty());
            let together = together.map(|at| at + DUE_INTERVAL);
            parking.look_at.into_iter().chain(together).min().unwrap_or(now)
        };
        Some(parking.rests_until.map_or(at, |until| until.max(at)))
    }

    fn work(&mut self, now: Instant) {
        let Some(parking) = &mut self.parking else { return };
        let mut bytes = 0;
        let few = parking.changes.iter().take(WRITTEN_MAX).take_while(|change| {
            let fits = bytes < WRITTEN_BYTES_MAX;
            bytes += change.ticket.map_or(0, |ticket| ticket.bytes());
            fits
        });
        let few = few.count();
        let mut changes: Vec<_> = parking.changes.drain(..few).collect();
        while changes.len() < WRITTEN_MAX && bytes < WRITTEN_BYTES_MAX {
            let Some(entry) = self.lanes.take_to_park(1).pop() else { break };
            bytes += entry.ticket.bytes();
            parking.bytes = parking.bytes.saturating_add(entry.ticket.bytes());
            let row = ParkedRow {
                number: None,
                message: Arc::new(entry.message.message().clone()),
                state: ParkedState::Waiting(Duration::ZERO),
                attempts: 0,
                error: "behind".to_owned(),
                event: None,
            };
            changes.push(Change { ticket: Some(entry.ticket), action: Action::Park(Box::new(row)) });
        }
        let (buffered, bytes) = self.lanes.buffered();
        let room = parking.taken.len() < TAKEN_MAX && buffered < BUFFERED_MAX && bytes < BUFFERED_BYTES_MAX;
        let want = (!parking.is_blocked && room).then(|| Want {
            taken: parking.taken.clone(),
            messages: TAKEN_MAX - parking.taken.len(),
            bytes: PAGE_BYTES,
        });
        let (engine, owner) = (self.engine.clone(), self.owner.clone());
        let task = async move {
            let found = write_and_look(&engine, &owner, &changes, want).await;
            Ok((changes, found))
        };
        parking.working = Some(AbortOnDropHandle::new(tokio::spawn(task)));
        parking.working_since = Some(now);
    }

    /// Waits for the task that [`start`](Self::start) started, and for ever if there is none. Cancel safe.
    ///
    /// # Errors
    /// The changes may not be written, and are written again. [`ErrorKind::LeaseLost`]: another process owns
    /// the rows, and writes them.
    ///
    /// [`ErrorKind::LeaseLost`]: twinbox_sql::ErrorKind::LeaseLost
    pub async fn finished(&mut self) -> Result<(), Error> {
        let Some(parking) = &mut self.parking else { return std::future::pending().await };
        let (changes, found) = finished(&mut parking.working).await?;
        let now = Instant::now();
        match found {
            Ok(found) => {
                self.take_in(changes, found, now);
                Ok(())
            }
            Err(error) => {
                let later = mem::replace(&mut parking.changes, changes);
                parking.changes.extend(later);
                parking.rests_until = Some(now + LOOK_INTERVAL);
                Err(error)
            }
        }
    }

    fn take_in(&mut self, changes: Vec<Change>, found: Look, now: Instant) {
        let Some(parking) = &mut self.parking else { return };
        if found.waiting >= PARKED_MAX && parking.waiting.is_none_or(|waiting| waiting < PARKED_MAX) {
            let (owner, waiting) = (self.owner.name(), found.waiting);
            tracing::error!(
                owner,
                waiting,
                "too many messages are parked: no more are read until some are settled"
            );
        }
        // Before messages are settled, so that the next message of a key finds it parked.
        let soon_parked = parking.changes.iter().filter_map(|change| match &change.action {
            Action::Park(row) if row.state != ParkedState::Dead => row.message.key.as_deref(),
            _ => None,
        });
        self.lanes.hold(found.keys.iter().map(String::as_str).chain(soon_parked));
        for change in changes {
            match change.action {
                Action::Delete(number) => drop(parking.taken.remove(&number)),
                Action::Park(row) => drop(row.number.map(|number| parking.taken.remove(&number))),
            }
            if let Some(ticket) = change.ticket {
                self.lanes.settle(ticket);
            }
        }
        for (row, attempts, message) in found.due {
            if parking.taken.insert(row) {
                self.lanes.resume(row, attempts, M::resumed(message));
            }
        }
        parking.waiting = Some(found.waiting);
        parking.rests_until = None;
        parking.worked_at = Some(now);
        let was_blocked = parking.is_blocked;
        let blocks = |change: &Change| match &change.action {
            Action::Park(row) => row.state == ParkedState::Blocking,
            Action::Delete(_) => false,
        };
        parking.is_blocked = found.is_blocking || parking.changes.iter().any(blocks);
        let idle = if found.waiting > 0 || found.is_blocking { LOOK_INTERVAL } else { IDLE_LOOK_INTERVAL };
        let next = found.next.map_or(idle, |next| next.clamp(DUE_INTERVAL, LOOK_INTERVAL));
        // While a row blocks the owner, none is taken up.
        parking.look_at = Some(if was_blocked && !parking.is_blocked { now } else { now + next });
    }

    /// Returns the time of the next step, unless the running task ends before. Readies messages whose delay
    /// is over by `now`.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        let wake_at = self.lanes.wake(now);
        wake_at.into_iter().chain(self.work_at(now)).min()
    }

    /// Waits until every change is committed.
    ///
    /// # Errors
    /// As [`finished`](Self::finished).
    pub async fn finish(&mut self) -> Result<(), Error> {
        if let Some(parking) = &mut self.parking {
            parking.rests_until = None;
        }
        loop {
            let Some(parking) = &self.parking else { return Ok(()) };
            if parking.working.is_some() {
                self.finished().await?;
            } else if parking.changes.is_empty() && !self.lanes.has_to_park() {
                return Ok(());
            } else {
                self.work(Instant::now());
            }
        }
    }
}

impl<DB: Dialect, M, C: fmt::Debug> fmt::Debug for Queue<DB, M, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("owner", &self.owner).finish_non_exhaustive()
    }
}
