use super::{
    DUE_INTERVAL, IDLE_LOOK_INTERVAL, LOOK_INTERVAL, Owner, PARKED_BYTES_MAX, PARKED_MAX, Parkable, Parked,
    TAKEN_MAX, WRITTEN_BYTES_MAX, WRITTEN_MAX,
    write::{Change, Looked, Row, Want, What},
};
use crate::{
    Dialect, Error, Store,
    log::{BUFFERED_BYTES_MAX, BUFFERED_MAX, PAGE_BYTES, dead_letter, task::finished},
};
use std::{
    collections::HashSet,
    fmt, mem,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::{
    destination::Order,
    lanes::{Entry, Lanes, Room, Ticket},
};

type Writing = (Vec<Change>, Result<Looked, Error>);

/// The messages between a log and those who take them, with those that are parked.
///
/// The caller turns the wheel: [`start`](Self::start) begins what is due, [`finished`](Self::finished) takes its end in,
/// [`due`](Self::due) says when to call again.
pub struct Queue<DB: Dialect, M, C> {
    store: Store<DB>,
    owner: Owner,
    lanes: Lanes<M, C>,
    /// None: messages cannot be parked, and wait where they are.
    parking: Option<State>,
    /// Whether an event is published for each message that is given up.
    announces: bool,
}

/// What a queue knows of the rows of its owner.
#[derive(Default)]
struct State {
    changes: Vec<Change>,
    /// Messages that are taken up, and not known to be done with.
    taken: HashSet<i64>,
    /// Messages that are done with, while the log may still bring some that an earlier owner parked.
    done: HashSet<i64>,
    /// The log may bring those again.
    is_reread: bool,
    working: Option<AbortOnDropHandle<Result<Writing, Error>>>,
    working_since: Option<Instant>,
    look_at: Option<Instant>,
    /// When rows were written or looked at last.
    worked_at: Option<Instant>,
    /// The database has failed: nothing is asked of it before.
    rests_until: Option<Instant>,
    /// None before the first look.
    waiting: Option<usize>,
    /// Of messages that the rows hold.
    bytes: usize,
    /// One blocks all.
    is_blocked: bool,
}

impl<DB: Dialect, M: Parkable, C: Clone> Queue<DB, M, C> {
    /// A queue of a log that is settled up to there. Without `parking` messages cannot be parked.
    pub fn new(store: &Store<DB>, owner: Owner, settled: C, parking: bool) -> Self {
        let parking = parking.then(State::default);
        Self { store: store.clone(), owner, lanes: Lanes::new(settled), parking, announces: false }
    }

    pub(crate) fn announce(&mut self, announces: bool) {
        self.announces = announces;
    }

    /// See [`Lanes::order`].
    pub fn order(&mut self, order: Order) {
        self.lanes.order(order);
    }

    /// How many bytes its rows hold, as far as that was asked for when it was opened.
    pub fn holds_bytes(&mut self, bytes: usize) {
        if let Some(parking) = &mut self.parking {
            parking.bytes = bytes;
        }
    }

    /// Says whether the log may bring messages that were parked before.
    pub(crate) fn is_reread(&mut self, is_reread: bool) {
        if let Some(parking) = &mut self.parking {
            parking.is_reread = is_reread;
            if !is_reread {
                parking.done.clear();
            }
        }
    }

    /// Whether a message that the log brings was parked and is done with.
    pub(crate) fn is_done(&self, position: i64) -> bool {
        self.parking.as_ref().is_some_and(|parking| parking.done.contains(&position))
    }

    /// See [`Lanes::push`].
    pub fn push(&mut self, message: M, after: C, repeated: bool) {
        self.lanes.push(message, after, repeated);
    }

    /// See [`Lanes::pass_by`].
    pub fn pass_by(&mut self, after: C) {
        self.lanes.pass_by(after);
    }

    /// See [`Lanes::end_window`].
    pub fn end_window(&mut self, after: C) {
        self.lanes.end_window(after);
    }

    /// Messages that may go. None before the rows were looked at, nor while one blocks all.
    pub fn take(&mut self, room: Room) -> Vec<Entry<M>> {
        if self.is_open() { self.lanes.take(room) } else { Vec::new() }
    }

    fn is_open(&self) -> bool {
        self.parking.as_ref().is_none_or(|parking| parking.waiting.is_some() && !parking.is_blocked)
    }

    /// The message is done with.
    pub fn settle(&mut self, ticket: Ticket) {
        if let (Some(row), Some(parking)) = (ticket.parked(), &mut self.parking) {
            parking.changes.push(Change { ticket: None, what: What::Done(row) });
            parking.bytes = parking.bytes.saturating_sub(ticket.bytes());
            if parking.is_reread {
                parking.done.insert(row);
            }
        }
        self.lanes.settle(ticket);
    }

    /// Hands the message out again after `delay`; those of its key wait behind it. See [`Lanes::retry`].
    pub fn retry(&mut self, entry: Entry<M>, delay: Duration, counted: bool) {
        self.lanes.retry(entry, Instant::now() + delay, counted);
    }

    /// See [`Lanes::give_back`].
    pub fn give_back(&mut self, entries: Vec<Entry<M>>) {
        self.lanes.give_back(entries);
    }

    /// Parks a message. `attempts` is how often it was tried, `error` a code that says why it failed. Nothing later of its
    /// key is handed out before that is committed. After a crash before the commit the message is handed out again.
    ///
    /// # Panics
    /// The queue was made without parking.
    pub fn park(&mut self, entry: Entry<M>, parked: Parked, attempts: u32, error: &str) {
        self.lanes.block(entry.ticket);
        let parking = self.parking.as_mut().expect("a queue with parking");
        if parked != Parked::Dead {
            // They stay parked behind it.
            for row in self.lanes.drop_resumed(entry.ticket) {
                parking.taken.remove(&row);
            }
        }
        let message = entry.message.message();
        let announced = self.announces && !matches!(parked, Parked::Waiting(_));
        let announcement =
            announced.then(|| dead_letter::event(self.owner.name(), message, attempts, error)).flatten();
        parking.is_blocked |= parked == Parked::Blocking;
        if entry.ticket.parked().is_none() {
            parking.bytes = parking.bytes.saturating_add(entry.ticket.bytes());
        }
        let (row, message) = (entry.ticket.parked(), Arc::new(message.clone()));
        let row = Row { row, message, parked, attempts, error: error.to_owned(), announcement };
        parking.changes.push(Change { ticket: Some(entry.ticket), what: What::Park(Box::new(row)) });
    }

    /// Begins to write what is to be parked and to look for what is due, if it is time.
    pub fn start(&mut self, now: Instant) {
        if self.work_at(now).is_some_and(|at| at <= now) {
            self.work(now);
        }
    }

    /// When there is something to write or to look for. None: not before what is under way has ended.
    fn work_at(&self, now: Instant) -> Option<Instant> {
        let parking = self.parking.as_ref().filter(|parking| parking.working.is_none())?;
        let parks = || parking.changes.iter().any(|change| matches!(change.what, What::Park(_)));
        let at = if self.lanes.has_behind() || 2 * parking.changes.len() > parking.taken.len() || parks() {
            now
        } else {
            // Rows that are done with are deleted together while many more are in hand.
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
            let Some(entry) = self.lanes.take_behind(1).pop() else { break };
            bytes += entry.ticket.bytes();
            parking.bytes = parking.bytes.saturating_add(entry.ticket.bytes());
            let row = Row {
                row: None,
                message: Arc::new(entry.message.message().clone()),
                parked: Parked::Waiting(Duration::ZERO),
                attempts: 0,
                error: "behind".to_owned(),
                announcement: None,
            };
            changes.push(Change { ticket: Some(entry.ticket), what: What::Park(Box::new(row)) });
        }
        let (buffered, bytes) = self.lanes.buffered();
        let room = parking.taken.len() < TAKEN_MAX && buffered < BUFFERED_MAX && bytes < BUFFERED_BYTES_MAX;
        let want = (!parking.is_blocked && room).then(|| Want {
            taken: parking.taken.clone(),
            messages: TAKEN_MAX - parking.taken.len(),
            bytes: PAGE_BYTES,
        });
        let (store, owner) = (self.store.clone(), self.owner.clone());
        let task = async move {
            let looked = store.write_and_look(&owner, &changes, want).await;
            Ok((changes, looked))
        };
        parking.working = Some(AbortOnDropHandle::new(tokio::spawn(task)));
        parking.working_since = Some(now);
    }

    /// Waits for the end of what [`start`](Self::start) has begun; for ever if that is nothing. Cancel safe.
    ///
    /// # Errors
    /// What was to be written is not, as far as is known, and is written again; [`ErrorKind::LeaseLost`]: by the owner.
    ///
    /// [`ErrorKind::LeaseLost`]: crate::ErrorKind::LeaseLost
    pub async fn finished(&mut self) -> Result<(), Error> {
        let Some(parking) = &mut self.parking else { return std::future::pending().await };
        let (changes, looked) = finished(&mut parking.working).await?;
        let now = Instant::now();
        match looked {
            Ok(looked) => {
                self.take_in(changes, looked, now);
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

    fn take_in(&mut self, changes: Vec<Change>, looked: Looked, now: Instant) {
        let Some(parking) = &mut self.parking else { return };
        if looked.waiting >= PARKED_MAX && parking.waiting.is_none_or(|waiting| waiting < PARKED_MAX) {
            let (owner, waiting) = (self.owner.name(), looked.waiting);
            tracing::error!(
                owner,
                waiting,
                "too many messages are parked: no more are read until some are taken"
            );
        }
        // Before anything is settled, so that what comes next of a key finds it parked.
        let about_to_be = parking.changes.iter().filter_map(|change| match &change.what {
            What::Park(row) if row.parked != Parked::Dead => row.message.key.as_deref(),
            _ => None,
        });
        self.lanes.hold(looked.keys.iter().map(String::as_str).chain(about_to_be));
        for change in changes {
            match change.what {
                What::Done(row) => drop(parking.taken.remove(&row)),
                What::Park(row) => drop(row.row.map(|row| parking.taken.remove(&row))),
            }
            if let Some(ticket) = change.ticket {
                self.lanes.settle(ticket);
            }
        }
        for (row, attempts, message) in looked.due {
            if parking.taken.insert(row) {
                self.lanes.resume(row, attempts, M::resumed(message));
            }
        }
        parking.waiting = Some(looked.waiting);
        parking.rests_until = None;
        parking.worked_at = Some(now);
        let was_blocked = parking.is_blocked;
        let blocks =
            |change: &Change| matches!(&change.what, What::Park(row) if row.parked == Parked::Blocking);
        parking.is_blocked = looked.is_blocking || parking.changes.iter().any(blocks);
        let idle = if looked.waiting > 0 || looked.is_blocking { LOOK_INTERVAL } else { IDLE_LOOK_INTERVAL };
        let next = looked.next.map_or(idle, |next| next.clamp(DUE_INTERVAL, LOOK_INTERVAL));
        // While one blocks, nothing is taken up.
        parking.look_at = Some(if was_blocked && !parking.is_blocked { now } else { now + next });
    }

    /// When there is something to do next, unless what is under way ends before. Makes ready what is to go again by `now`.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        let wake_at = self.lanes.wake(now);
        wake_at.into_iter().chain(self.work_at(now)).min()
    }

    /// Since when the database has not answered.
    pub fn asked_at(&self) -> Option<Instant> {
        let parking = self.parking.as_ref()?;
        parking.working.as_ref().and(parking.working_since)
    }

    /// Whether more may be read: not before the rows were looked at, nor while too many are parked.
    pub fn has_room(&self) -> bool {
        self.parking.as_ref().is_none_or(|parking| {
            let waiting = parking.waiting.map(|waiting| waiting + parking.changes.len());
            waiting.is_some_and(|waiting| waiting < PARKED_MAX) && parking.bytes < PARKED_BYTES_MAX
        })
    }

    /// Whether nothing is left to write, and nothing waits to be tried again.
    pub fn is_idle(&self) -> bool {
        self.lanes.open() == 0
            && self.parking.as_ref().is_none_or(|parking| {
                parking.waiting == Some(0) && parking.changes.is_empty() && parking.taken.is_empty()
            })
    }

    /// Waits until all that was to be parked is committed.
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
            } else if parking.changes.is_empty() && !self.lanes.has_behind() {
                return Ok(());
            } else {
                self.work(Instant::now());
            }
        }
    }

    /// How far all is settled.
    pub fn settled(&self) -> &C {
        self.lanes.settled()
    }

    /// See [`Lanes::open`].
    pub fn open(&self) -> usize {
        self.lanes.open()
    }

    /// See [`Lanes::open_bytes`].
    pub fn open_bytes(&self) -> usize {
        self.lanes.open_bytes()
    }

    /// See [`Lanes::settles`].
    pub fn settles(&self) -> u64 {
        self.lanes.settles()
    }

    /// See [`Lanes::ready`].
    pub fn ready(&self) -> usize {
        self.lanes.ready()
    }

    /// See [`Lanes::buffered`].
    pub fn buffered(&self) -> (usize, usize) {
        self.lanes.buffered()
    }
}

impl<DB: Dialect, M, C: fmt::Debug> fmt::Debug for Queue<DB, M, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("owner", &self.owner).finish_non_exhaustive()
    }
}
