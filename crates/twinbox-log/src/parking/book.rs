//! The decisions of a queue, without a database and with the time as an argument.
use super::{
    bounds::{
        DUE_INTERVAL, IDLE_LOOK_INTERVAL, LOOK_INTERVAL, PARKED_MAX, TAKEN_MAX, WRITTEN_BYTES_MAX,
        WRITTEN_MAX,
    },
    row::{Action, Change, Look, ParkedRow, Want},
    state::{Parkable, ParkedState},
};
use crate::options::{BUFFERED_BYTES_MAX, BUFFERED_MAX, PAGE_BYTES};
use std::{
    collections::HashSet,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};
use twinbox_core::{
    Draft,
    lanes::{Budget, Entry, Lanes, Ticket},
    test_signal,
};

/// The messages of a queue in order, and what it knows of the rows of its owner.
#[derive(Debug, Clone)]
pub(super) struct Book<M, C> {
    pub(super) lanes: Lanes<M, C>,
    /// None: messages cannot be parked.
    pub(super) parking: Option<Parking>,
}

/// The knowledge of a queue about the rows of its owner.
#[derive(Debug, Clone, Default)]
pub(super) struct Parking {
    pub(super) changes: Vec<Change>,
    /// Rows that are taken up and not settled.
    pub(super) taken: HashSet<i64>,
    /// Rows that are settled, while the log may still bring messages that an earlier owner parked.
    settled: HashSet<i64>,
    /// Whether the log may bring those again.
    is_reread: bool,
    /// Since when changes are being written.
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

impl<M: Parkable, C: Clone> Book<M, C> {
    pub(super) fn new(settled: C, parking: bool) -> Self {
        Self { lanes: Lanes::new(settled), parking: parking.then(Parking::default) }
    }

    pub(super) fn is_reread(&mut self, is_reread: bool) {
        if let Some(parking) = &mut self.parking {
            parking.is_reread = is_reread;
            if !is_reread {
                parking.settled.clear();
            }
        }
    }

    pub(super) fn is_settled(&self, position: i64) -> bool {
        self.parking.as_ref().is_some_and(|parking| parking.settled.contains(&position))
    }

    /// Hands out messages that may be sent. None before the first look at the rows, nor while a row blocks
    /// the owner.
    pub(super) fn take(&mut self, room: Budget) -> Vec<Entry<M>> {
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

    pub(super) fn settle(&mut self, ticket: Ticket) {
        if let (Some(row), Some(parking)) = (ticket.parked(), &mut self.parking) {
            parking.changes.push(Change { ticket: None, action: Action::Delete(row) });
            parking.bytes = parking.bytes.saturating_sub(ticket.bytes());
            if parking.is_reread {
                parking.settled.insert(row);
            }
        }
        self.lanes.settle(ticket);
    }

    /// Parks a message. One that is behind another of its key goes again after that one instead.
    pub(super) fn park(
        &mut self,
        entry: Entry<M>,
        state: ParkedState,
        attempts: u32,
        error: &str,
        event: Option<Draft>,
        now: Instant,
    ) {
        if self.lanes.is_behind(entry.ticket) {
            return self.lanes.retry(entry, now, false);
        }
        self.lanes.park(entry.ticket, state != ParkedState::Dead);
        let parking = self.parking.as_mut().expect("a queue with parking");
        parking.is_blocked |= state == ParkedState::Blocking;
        if entry.ticket.parked().is_none() {
            parking.bytes = parking.bytes.saturating_add(entry.ticket.bytes());
        }
        let (number, message) = (entry.ticket.parked(), Arc::new(entry.message.message().clone()));
        let row = ParkedRow { number, message, state, attempts, error: error.to_owned(), event };
        parking.changes.push(Change { ticket: Some(entry.ticket), action: Action::Park(Box::new(row)) });
    }

    /// The time of the next write or look. None: not before the running one has ended.
    pub(super) fn work_at(&self, now: Instant) -> Option<Instant> {
        let parking = self.parking.as_ref().filter(|parking| parking.working_since.is_none())?;
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

    /// Returns whether something has to be written.
    pub(super) fn has_changes(&self) -> bool {
        let parking = self.parking.as_ref();
        parking.is_some_and(|parking| !parking.changes.is_empty() || self.lanes.has_to_park())
    }

    /// Begins to write changes and to look: returns what to write and how much to take up. End it with
    /// [`take_in`](Self::take_in) or [`failed`](Self::failed).
    pub(super) fn begin(&mut self, now: Instant) -> Option<(Vec<Change>, Option<Want>)> {
        let parking = self.parking.as_mut().filter(|parking| parking.working_since.is_none())?;
        for row in self.lanes.take_dropped() {
            parking.taken.remove(&row);
        }
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
        parking.working_since = Some(now);
        Some((changes, want))
    }

    /// The changes may not be written: they are written again.
    pub(super) fn failed(&mut self, changes: Vec<Change>, now: Instant) {
        let Some(parking) = &mut self.parking else { return };
        let later = mem::replace(&mut parking.changes, changes);
        parking.changes.extend(later);
        (parking.working_since, parking.rests_until) = (None, Some(now + LOOK_INTERVAL));
    }

    /// The database is not left alone any more: the owner wants to end.
    pub(super) fn hurry(&mut self) {
        if let Some(parking) = &mut self.parking {
            parking.rests_until = None;
        }
    }

    /// The changes are committed. Takes up what was found after them.
    pub(super) fn take_in(&mut self, changes: Vec<Change>, found: Look, owner: &str, now: Instant) {
        let Some(parking) = &mut self.parking else { return };
        parking.working_since = None;
        if found.waiting >= PARKED_MAX && parking.waiting.is_none_or(|waiting| waiting < PARKED_MAX) {
            let waiting = found.waiting;
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
            if parking.taken.insert(row) && !self.lanes.resume(row, attempts, M::resumed(message)) {
                parking.taken.remove(&row);
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

    /// Returns the time of the next step, unless the running write ends before. Readies messages whose delay
    /// is over by `now`.
    pub(super) fn due(&mut self, now: Instant) -> Option<Instant> {
        let wake_at = self.lanes.wake(now);
        wake_at.into_iter().chain(self.work_at(now)).min()
    }
}
