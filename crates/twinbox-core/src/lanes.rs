//! Order per key: which message may go next, and how far a log is settled.
//!
//! Relay and consumer use this engine. Messages of one key go one after another, and different keys go at the
//! same time. A message that cannot go on is parked with the later messages of its key; other keys continue.
//! The engine does no I/O and has no clock.
mod entry;
mod lane;
mod marks;

pub use entry::{Budget, Entry, Item, Ticket};

use crate::destination::SendOrder;
use entry::Origin;
use lane::{Lane, LaneHasher};
use marks::Marks;
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque, hash_map::Entry as MapEntry},
    hash::{BuildHasher as _, BuildHasherDefault, RandomState},
    mem,
    time::Instant,
};

/// Keeps the messages of a log in order by key, between reading and settling. `C` is the cursor of the log.
///
/// A key is known by its hash. Two keys with the same hash wait for each other, which costs time only.
#[derive(Debug, Clone)]
pub struct Lanes<M, C> {
    order: SendOrder,
    marks: Marks<C>,
    ready: VecDeque<Entry<M>>,
    /// The lanes of keys with a message that is ready, handed out, or waiting for a retry.
    lanes: HashMap<u64, Lane<M>, BuildHasherDefault<LaneHasher>>,
    /// The keys with a parked message. New messages of these keys are parked too.
    parked: HashSet<u64, BuildHasherDefault<LaneHasher>>,
    /// The messages that must be parked because an earlier one of their key is.
    to_park: Vec<Entry<M>>,
    /// The rows that stay parked because an earlier message of their key is parked again.
    dropped: Vec<i64>,
    /// The messages that wait for a retry, by its time and a number that makes the time unique.
    retries: BTreeMap<(Instant, u64), Entry<M>>,
    retry_count: u64,
    buffered: usize,
    buffered_bytes: usize,
    hasher: RandomState,
}

impl<M: Item, C: Clone> Lanes<M, C> {
    /// Creates lanes of a log that is settled up to a cursor.
    pub fn new(settled: C) -> Self {
        Self {
            order: SendOrder::PerMessage,
            marks: Marks::new(settled),
            ready: VecDeque::new(),
            lanes: HashMap::default(),
            parked: HashSet::default(),
            to_park: Vec::new(),
            dropped: Vec::new(),
            retries: BTreeMap::new(),
            retry_count: 0,
            buffered: 0,
            buffered_bytes: 0,
            hasher: RandomState::new(),
        }
    }

    /// Sets whether several messages of a key may be in flight. Call this before any message is handed out.
    pub fn order(&mut self, order: SendOrder) {
        self.order = order;
    }

    /// Adds the next message of the log. `after` is the cursor once this message and all before it are
    /// settled.
    pub fn push(&mut self, message: M, after: C, may_be_repeated: bool) {
        let (lane, bytes) = (message.key().map(|key| self.hasher.hash_one(key)), message.bytes());
        let origin = Origin::Log(self.marks.push(after, bytes));
        self.enqueue(Entry { ticket: Ticket::new(origin, lane, bytes, may_be_repeated, 1), message });
    }

    /// Adds the next message of the log, which is settled already.
    pub fn push_settled(&mut self, after: C) {
        self.marks.push_settled(after);
    }

    /// Adds a parked message that is due for another attempt. Rows of a key must come in their order. Returns
    /// false if it stays parked, because an earlier message of its key is parked.
    pub fn resume(&mut self, row: i64, attempts: u32, message: M) -> bool {
        let lane = message.key().map(|key| self.hasher.hash_one(key));
        let origin = Origin::Parked(row);
        if let Some(lane) = lane.and_then(|at| self.lanes.get_mut(&at)) {
            lane.parked.retain(|parked| *parked != origin);
            if lane.stays_parked(origin) {
                lane.parked.push(origin);
                return false;
            }
        }
        let (bytes, attempt) = (message.bytes(), attempts.saturating_add(1));
        self.enqueue(Entry { ticket: Ticket::new(origin, lane, bytes, true, attempt), message });
        true
    }

    fn enqueue(&mut self, entry: Entry<M>) {
        self.add_buffered(entry.ticket.bytes);
        let Some(at) = entry.ticket.lane else { return self.ready.push_back(entry) };
        let must_be_parked = self.must_be_parked(&entry.ticket);
        match self.lanes.entry(at) {
            MapEntry::Occupied(mut lane) => lane.get_mut().wait(entry),
            MapEntry::Vacant(_) if must_be_parked => return self.to_park.push(entry),
            // The usual case. It allocates no queue.
            MapEntry::Vacant(lane) => {
                lane.insert(Lane::ready(self.order, entry.ticket.origin));
                return self.ready.push_back(entry);
            }
        }
        self.promote(at);
    }

    /// Whether a message must be parked: it comes from the log, and its key has a parked message.
    fn must_be_parked(&self, ticket: &Ticket) -> bool {
        ticket.parked().is_none() && ticket.lane.is_some_and(|lane| self.parked.contains(&lane))
    }

    /// Makes the next message of a key ready, if it may go. Removes the lane of a key without messages.
    fn promote(&mut self, at: u64) {
        let Some(lane) = self.lanes.get_mut(&at) else { return };
        let is_parked = self.parked.contains(&at);
        while let Some(next) = lane.waiting.pop_front() {
            let must_be_parked = is_parked && next.ticket.parked().is_none();
            // Parked in order too: a row that is missing would be passed by those behind it.
            if !lane.may_go(self.order, &next) || must_be_parked && !lane.busy.is_empty() {
                return lane.waiting.push_front(next);
            }
            if must_be_parked {
                self.to_park.push(next);
                continue;
            }
            lane.busy.insert(next.ticket.origin);
            lane.is_ready = self.order == SendOrder::Ordered;
            // A message that goes again is older than those that go for the first time.
            return match next.ticket.has_failed {
                true => self.ready.push_front(next),
                false => self.ready.push_back(next),
            };
        }
        if lane.busy.is_empty() {
            self.lanes.remove(&at);
        }
    }

    /// Replaces the set of keys whose messages must be parked because an earlier message of the key is. Keys
    /// with a message that must still be parked stay.
    pub fn hold<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) {
        let waiting = self.to_park.iter().filter_map(|entry| entry.ticket.lane);
        self.parked = keys.into_iter().map(|key| self.hasher.hash_one(key)).chain(waiting).collect();
    }

    /// Returns whether messages must be parked because an earlier one of their key is parked.
    pub fn has_to_park(&self) -> bool {
        !self.to_park.is_empty()
    }

    /// Hands out at most `max` of the messages that must be parked, in order. Settle each one when it is
    /// parked.
    pub fn take_to_park(&mut self, max: usize) -> Vec<Entry<M>> {
        let mut taken: Vec<_> = self.to_park.drain(..max.min(self.to_park.len())).collect();
        for entry in &mut taken {
            self.remove_buffered(entry.ticket.bytes);
            // It was never handed out, so its settle must not let the next message of its key go.
            entry.ticket.lane = None;
        }
        taken
    }

    /// Records that a window of the log ends after the last added message. Once all messages before are
    /// settled, the cursor is `after`.
    pub fn end_window(&mut self, after: C) {
        self.marks.extend_last(after);
    }

    /// Hands out messages that may be sent or handled now. An ordered destination gets all messages of a key
    /// one after another, any other reader gets one message of a key at a time.
    pub fn take(&mut self, room: Budget) -> Vec<Entry<M>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < room.messages
            && bytes < room.bytes
            && let Some(entry) = self.ready.pop_front()
        {
            bytes = bytes.saturating_add(entry.ticket.bytes);
            self.remove_buffered(entry.ticket.bytes);
            if self.order == SendOrder::Ordered
                && let Some(at) = entry.ticket.lane
            {
                if let Some(lane) = self.lanes.get_mut(&at) {
                    lane.is_ready = false;
                }
                self.promote(at);
            }
            taken.push(entry);
        }
        taken
    }

    /// Settles a message: it is finished, and the next message of its key may be handed out.
    pub fn settle(&mut self, ticket: Ticket) {
        if let Origin::Log(number) = ticket.origin
            && !self.marks.settle(number)
        {
            return;
        }
        let Some(at) = ticket.lane else { return };
        if let Some(lane) = self.lanes.get_mut(&at) {
            lane.busy.remove(ticket.origin);
            lane.blocked_by.retain(|by| *by != ticket.origin);
        }
        self.promote(at);
    }

    /// Returns whether an earlier message of the key of one that is handed out has no result yet. Then a
    /// failure says nothing: [`retry`](Self::retry) hands the message out after that one.
    pub fn is_behind(&self, ticket: Ticket) -> bool {
        let lane = ticket.lane.and_then(|at| self.lanes.get(&at));
        lane.is_some_and(|lane| lane.has_before(ticket.origin) || lane.stays_parked(ticket.origin))
    }

    /// Parks a message that is not [behind](Self::is_behind) another: no later message of its key is handed
    /// out before this one is settled. `holds`: later ones stay parked behind it.
    pub fn park(&mut self, ticket: Ticket, holds: bool) {
        self.block(ticket);
        let Some(lane) = ticket.lane.and_then(|at| self.lanes.get_mut(&at)).filter(|_| holds) else { return };
        lane.parked.push(ticket.origin);
        let waiting = mem::take(&mut lane.waiting);
        let (later, kept): (VecDeque<_>, _) =
            waiting.into_iter().partition(|entry| lane.stays_parked(entry.ticket.origin));
        lane.waiting = kept;
        later.into_iter().for_each(|entry| self.drop_row(entry));
    }

    fn block(&mut self, ticket: Ticket) {
        self.withdraw(ticket.lane);
        if let Some(lane) = ticket.lane.and_then(|at| self.lanes.get_mut(&at)) {
            lane.blocked_by.push(ticket.origin);
        }
    }

    /// Hands a message out again, not before `at`, and not before earlier ones of its key have a result.
    /// Later messages of its key wait. `counted`: as another attempt.
    pub fn retry(&mut self, mut entry: Entry<M>, at: Instant, counted: bool) {
        (entry.ticket.may_be_repeated, entry.ticket.has_failed) = (true, true);
        entry.ticket.attempt = entry.ticket.attempt.saturating_add(u32::from(counted));
        self.add_buffered(entry.ticket.bytes);
        if self.is_behind(entry.ticket) {
            return self.take_back(entry);
        }
        self.block(entry.ticket);
        self.retry_count += 1;
        self.retries.insert((at, self.retry_count), entry);
    }

    /// Takes back messages that were not sent, or not completely. They go again before later messages of
    /// their keys, and the attempt does not count.
    pub fn give_back(&mut self, entries: Vec<Entry<M>>) {
        for mut entry in entries {
            entry.ticket.may_be_repeated = true;
            self.add_buffered(entry.ticket.bytes);
            self.take_back(entry);
        }
    }

    /// Puts a buffered message back into its lane. A row stays parked if an earlier one of its key is.
    fn take_back(&mut self, entry: Entry<M>) {
        let Some(at) = entry.ticket.lane else { return self.ready.push_front(entry) };
        self.withdraw(Some(at));
        let Some(lane) = self.lanes.get_mut(&at) else { return };
        lane.busy.remove(entry.ticket.origin);
        match lane.stays_parked(entry.ticket.origin) {
            true => self.drop_row(entry),
            false => lane.wait(entry),
        }
        self.promote(at);
    }

    /// Moves the ready message of a key back to its lane, because an earlier one may be given back.
    fn withdraw(&mut self, lane: Option<u64>) {
        let Some((at, lane)) = lane.and_then(|at| Some((at, self.lanes.get_mut(&at)?))) else { return };
        if lane.is_ready
            && let Some(n) = self.ready.iter().position(|entry| entry.ticket.lane == Some(at))
        {
            lane.is_ready = false;
            if let Some(entry) = self.ready.remove(n) {
                lane.busy.remove(entry.ticket.origin);
                lane.wait(entry);
            }
        }
    }

    fn drop_row(&mut self, entry: Entry<M>) {
        self.remove_buffered(entry.ticket.bytes);
        self.dropped.extend(entry.ticket.parked());
        if let Some(lane) = entry.ticket.lane.and_then(|at| self.lanes.get_mut(&at)) {
            lane.parked.push(entry.ticket.origin);
        }
    }

    /// Returns the rows that were taken up and stay parked after all.
    pub fn take_dropped(&mut self) -> Vec<i64> {
        mem::take(&mut self.dropped)
    }

    /// Makes messages ready whose delay has passed by `now`. Returns the time of the next retry.
    pub fn wake(&mut self, now: Instant) -> Option<Instant> {
        while let Some(first) = self.retries.first_entry() {
            if first.key().0 > now {
                return Some(first.key().0);
            }
            let entry = first.remove();
            if let Some(lane) = entry.ticket.lane.and_then(|at| self.lanes.get_mut(&at)) {
                lane.blocked_by.retain(|by| *by != entry.ticket.origin);
            }
            self.take_back(entry);
        }
        None
    }

    fn add_buffered(&mut self, bytes: usize) {
        self.buffered += 1;
        self.buffered_bytes += bytes;
    }

    fn remove_buffered(&mut self, bytes: usize) {
        self.buffered -= 1;
        self.buffered_bytes -= bytes;
    }

    /// Returns the cursor: all messages of the log up to it are settled.
    pub fn settled(&self) -> &C {
        self.marks.cursor()
    }

    /// Returns how many messages lie between the cursor and the end of what was added.
    pub fn open(&self) -> usize {
        self.marks.len()
    }

    /// Returns the bytes of unsettled messages of the log, handed out or not.
    pub fn open_bytes(&self) -> usize {
        self.marks.unsettled_bytes()
    }

    /// Returns the number of messages of the log that were settled so far.
    pub fn settle_count(&self) -> u64 {
        self.marks.settle_count()
    }

    /// Returns the number of messages that may be handed out now.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns the number of messages that are not handed out, and their bytes.
    pub fn buffered(&self) -> (usize, usize) {
        (self.buffered, self.buffered_bytes)
    }
}

#[cfg(test)]
mod tests;
