//! The messages between a log and its reader, with the parked ones.
use super::{
    book::Book,
    owner::Owner,
    row::{Change, Look},
    state::{Parkable, ParkedState},
    store::write_and_look,
};
use crate::{dead_letter_event, task::finished};
use std::{
    fmt,
    time::{Duration, Instant},
};
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::{
    destination::SendOrder,
    lanes::{Budget, Entry, Ticket},
    task_name::TaskName,
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
    engine: Engine<DB>,
    owner: Owner,
    pub(super) book: Book<M, C>,
    working: Option<AbortOnDropHandle<Result<Finished, Error>>>,
    /// Whether an event is published for each dead letter.
    dead_letter_events: bool,
}

impl<DB: Dialect, M: Parkable, C: Clone> Queue<DB, M, C> {
    /// Creates a queue of a log that is settled up to a cursor. Without `parking` messages cannot be parked.
    pub fn new(store: &Store<DB>, owner: Owner, settled: C, parking: bool) -> Self {
        Self {
            engine: store.engine().clone(),
            owner,
            book: Book::new(settled, parking),
            working: None,
            dead_letter_events: false,
        }
    }

    /// Whether an event is published for each dead letter.
    pub(crate) fn dead_letter_events(&mut self, dead_letter_events: bool) {
        self.dead_letter_events = dead_letter_events;
    }

    /// Sets whether several messages of a key may be in flight.
    pub fn order(&mut self, order: SendOrder) {
        self.book.lanes.order(order);
    }

    /// Reads the bytes of the messages that the rows of a partition hold. From then on they are counted.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn load_bytes(&mut self) -> Result<(), Error> {
        let (Owner::Partition { .. }, Some(parking)) = (&self.owner, &mut self.book.parking) else {
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
        self.book.is_reread(is_reread);
    }

    /// Whether a message that the log brings was parked and is settled.
    pub(crate) fn is_settled(&self, position: i64) -> bool {
        self.book.is_settled(position)
    }

    /// Adds the next message of the log.
    pub fn push(&mut self, message: M, after: C, repeated: bool) {
        self.book.lanes.push(message, after, repeated);
    }

    /// Adds the next message of the log, which is settled already.
    pub fn push_settled(&mut self, after: C) {
        self.book.lanes.push_settled(after);
    }

    /// Records that a window of the log ends after the last added message.
    pub fn end_window(&mut self, after: C) {
        self.book.lanes.end_window(after);
    }

    /// Hands out messages that may be sent. None before the first look at the rows, nor while a row blocks
    /// the owner.
    pub fn take(&mut self, room: Budget) -> Vec<Entry<M>> {
        self.book.take(room)
    }

    /// Settles a message: it is not handed out again, and the cursor may pass it.
    pub fn settle(&mut self, ticket: Ticket) {
        self.book.settle(ticket);
    }

    /// Returns whether an earlier message of the key has no result yet. Then a failure of this one says
    /// nothing: [`retry`](Self::retry) hands it out after that one.
    pub fn is_behind(&self, ticket: Ticket) -> bool {
        self.book.lanes.is_behind(ticket)
    }

    /// Hands a message out again after `delay`, and after earlier ones of its key have a result. Later
    /// messages of its key wait behind it. `counted`: as another attempt.
    pub fn retry(&mut self, entry: Entry<M>, delay: Duration, counted: bool) {
        self.book.lanes.retry(entry, Instant::now() + delay, counted);
    }

    /// Takes back messages that were not sent, or not completely.
    pub fn give_back(&mut self, entries: Vec<Entry<M>>) {
        self.book.lanes.give_back(entries);
    }

    /// Parks a message: its row is written, and the cursor may pass it. `attempts` is the number of its
    /// attempts, `error` a code of its last failure. No later message of its key is handed out before that is
    /// committed. After a crash before the commit the message is handed out again. One that is
    /// [behind](Self::is_behind) another is handed out again after that one, and is not parked.
    ///
    /// # Panics
    /// The queue was made without parking.
    pub fn park(&mut self, entry: Entry<M>, state: ParkedState, attempts: u32, error: &str) {
        let has_event = self.dead_letter_events && !matches!(state, ParkedState::Waiting(_));
        let message = entry.message.message();
        let event = || dead_letter_event::event(self.owner.name(), message, attempts, error);
        let event = has_event.then(event).flatten();
        self.book.park(entry, state, attempts, error, event, Instant::now());
    }

    /// Starts a task that writes changes and reads due rows, if it is time.
    pub fn start(&mut self, now: Instant) {
        if self.book.work_at(now).is_some_and(|at| at <= now) {
            self.work(now);
        }
    }

    fn work(&mut self, now: Instant) {
        let Some((changes, want)) = self.book.begin(now) else { return };
        let (engine, owner) = (self.engine.clone(), self.owner.clone());
        let task = async move {
            let found = write_and_look(&engine, &owner, &changes, want).await;
            Ok((changes, found))
        };
        self.working = Some(AbortOnDropHandle::new(tokio::spawn(TaskName::ParkedQueue.of(task))));
    }

    /// Waits for the task that [`start`](Self::start) started, and for ever if there is none. Cancel safe.
    ///
    /// # Errors
    /// The changes may not be written, and are written again. [`ErrorKind::LeaseLost`]: another process owns
    /// the rows, and writes them.
    ///
    /// [`ErrorKind::LeaseLost`]: twinbox_sql::ErrorKind::LeaseLost
    pub async fn finished(&mut self) -> Result<(), Error> {
        let (changes, found) = finished(&mut self.working).await?;
        let now = Instant::now();
        match found {
            Ok(found) => {
                self.book.take_in(changes, found, self.owner.name(), now);
                Ok(())
            }
            Err(error) => {
                self.book.failed(changes, now);
                Err(error)
            }
        }
    }

    /// Returns the time of the next step, unless the running task ends before. Readies messages whose delay
    /// is over by `now`.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        self.book.due(now)
    }

    /// Waits until every change is committed.
    ///
    /// # Errors
    /// As [`finished`](Self::finished).
    pub async fn finish(&mut self) -> Result<(), Error> {
        self.book.hurry();
        loop {
            if self.working.is_some() {
                self.finished().await?;
            } else if self.book.has_changes() {
                self.work(Instant::now());
            } else {
                return Ok(());
            }
        }
    }
}

impl<DB: Dialect, M, C: fmt::Debug> fmt::Debug for Queue<DB, M, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("owner", &self.owner).finish_non_exhaustive()
    }
}
