//! Which message may go next, and how far everything is settled. No I/O and no clock of its own.
//!
//! One engine for relay and consumer: messages of one key go in order, keys beside each other. A message that cannot go
//! on is parked, and so is what comes later of its key; the rest continues.
mod entry;
mod lane;

pub use entry::{Entry, Item, Room, Ticket};

use crate::destination::Order;
use entry::Place;
use lane::{Hashed, Lane};
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque, hash_map::Entry as MapEntry},
    hash::{BuildHasher as _, BuildHasherDefault, RandomState},
    mem,
    time::Instant,
};

/// One read message in the order of reading, and where the cursor stands once it is settled.
#[derive(Debug)]
struct Mark<C> {
    after: C,
    settled: bool,
    bytes: usize,
}

/// The messages between a log and those who take them. `C` is the cursor of the log.
///
/// A key is known by its hash: two keys that share one wait for each other, which costs time and nothing else.
#[derive(Debug)]
pub struct Lanes<M, C> {
    order: Order,
    marks: VecDeque<Mark<C>>,
    /// The number of `marks[0]`.
    first: u64,
    settled: C,
    /// Of messages of the log that are not settled.
    open_bytes: usize,
    settles: u64,
    ready: VecDeque<Entry<M>>,
    /// Of each key with a message that is ready, handed out or to be retried.
    lanes: HashMap<u64, Lane<M>, BuildHasherDefault<Hashed>>,
    /// Keys of which a message is parked: what comes of them is parked behind it.
    parked: HashSet<u64, BuildHasherDefault<Hashed>>,
    /// Messages that are to be parked for that.
    behind: Vec<Entry<M>>,
    /// Messages that are to be retried, by when.
    later: BTreeMap<(Instant, u64), Entry<M>>,
    retries: u64,
    buffered: usize,
    bytes: usize,
    hasher: RandomState,
}

impl<M: Item, C: Clone> Lanes<M, C> {
    /// Lanes of a log that is settled up to there.
    pub fn new(settled: C) -> Self {
        Self {
            order: Order::PerMessage,
            marks: VecDeque::new(),
            first: 0,
            settled,
            open_bytes: 0,
            settles: 0,
            ready: VecDeque::new(),
            lanes: HashMap::default(),
            parked: HashSet::default(),
            behind: Vec::new(),
            later: BTreeMap::new(),
            retries: 0,
            buffered: 0,
            bytes: 0,
            hasher: RandomState::new(),
        }
    }

    /// Whether several messages of a key may be handed out before the first is answered. To be said before any is.
    pub fn order(&mut self, order: Order) {
        self.order = order;
    }

    /// Takes in the next message of the log. `after`: the cursor once this and all before it are settled.
    pub fn push(&mut self, message: M, after: C, repeated: bool) {
        let number = self.first + self.marks.len() as u64;
        let (lane, bytes) = (message.key().map(|key| self.hasher.hash_one(key)), message.bytes());
        self.marks.push_back(Mark { after, settled: false, bytes });
        self.open_bytes += bytes;
        let ticket = Ticket { place: Place::Log(number), lane, bytes, repeated, attempt: 1 };
        self.keep(bytes);
        self.line_up(Entry { ticket, message });
    }

    /// Takes in a message that is done with already.
    pub fn pass_by(&mut self, after: C) {
        self.marks.push_back(Mark { after, settled: true, bytes: 0 });
        self.pass();
    }

    /// Takes in a message that was parked, by its row, after that many attempts. Rows of a key come in their order.
    pub fn resume(&mut self, row: i64, attempts: u32, message: M) {
        let lane = message.key().map(|key| self.hasher.hash_one(key));
        let (bytes, attempt) = (message.bytes(), attempts.saturating_add(1));
        let ticket = Ticket { place: Place::Parked(row), lane, bytes, repeated: true, attempt };
        self.keep(bytes);
        self.line_up(Entry { ticket, message });
    }

    fn line_up(&mut self, entry: Entry<M>) {
        let Some(at) = entry.ticket.lane else { return self.ready.push_back(entry) };
        let is_to_be_parked = self.is_to_be_parked(&entry.ticket);
        match self.lanes.entry(at) {
            MapEntry::Occupied(mut lane) => lane.get_mut().behind.push_back(entry),
            MapEntry::Vacant(_) if is_to_be_parked => return self.behind.push(entry),
            // Nearly always: without a queue, which would have to be allocated.
            MapEntry::Vacant(lane) => {
                lane.insert(Lane::ready(self.order));
                return self.ready.push_back(entry);
            }
        }
        self.promote(at);
    }

    /// Of a key with a parked message, only what was parked itself goes on.
    fn is_to_be_parked(&self, ticket: &Ticket) -> bool {
        ticket.parked().is_none() && ticket.lane.is_some_and(|lane| self.parked.contains(&lane))
    }

    /// Makes the next message of a key ready, if it may go; forgets a key of which nothing is left.
    fn promote(&mut self, at: u64) {
        let Some(lane) = self.lanes.get_mut(&at) else { return };
        let may_go = match self.order {
            Order::PerMessage => lane.busy == 0,
            Order::Ordered => !lane.is_ready,
        };
        if lane.is_blocked || !may_go {
            return;
        }
        let parked = self.parked.contains(&at);
        while let Some(next) = lane.behind.pop_front() {
            if parked && next.ticket.parked().is_none() {
                self.behind.push(next);
                continue;
            }
            lane.busy += 1;
            lane.is_ready = self.order == Order::Ordered;
            return self.ready.push_back(next);
        }
        if lane.busy == 0 {
            self.lanes.remove(&at);
        }
    }

    /// From now on these are the keys of which messages are parked, beside those that are about to be.
    pub fn hold<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) {
        let waiting = self.behind.iter().filter_map(|entry| entry.ticket.lane);
        self.parked = keys.into_iter().map(|key| self.hasher.hash_one(key)).chain(waiting).collect();
    }

    /// Whether messages are to be parked behind others of their key.
    pub fn has_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// At most `max` of what is to be parked behind others of its key, in order. Settle each when that is done.
    pub fn take_behind(&mut self, max: usize) -> Vec<Entry<M>> {
        let mut taken: Vec<_> = self.behind.drain(..max.min(self.behind.len())).collect();
        for entry in &mut taken {
            self.release(entry.ticket.bytes);
            // It was never handed out: its end makes no room for another of its key, of which one may be running.
            entry.ticket.lane = None;
        }
        taken
    }

    /// Notes that a window ends here: with all before it settled, the cursor is `after`.
    pub fn end_window(&mut self, after: C) {
        // No mark of its own: windows come every second also while a message is stuck, and would fill the queue.
        match self.marks.back_mut() {
            Some(last) => last.after = after,
            None => self.settled = after,
        }
    }

    /// Hands messages out. Of a key one at a time, or to an ordered destination one after the other.
    pub fn take(&mut self, room: Room) -> Vec<Entry<M>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < room.messages
            && bytes < room.bytes
            && let Some(entry) = self.ready.pop_front()
        {
            bytes = bytes.saturating_add(entry.ticket.bytes);
            self.release(entry.ticket.bytes);
            if self.order == Order::Ordered
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

    /// The message is done with; the next of its key may go.
    pub fn settle(&mut self, ticket: Ticket) {
        if let Place::Log(number) = ticket.place {
            let at = number.checked_sub(self.first).and_then(|n| usize::try_from(n).ok());
            let Some(mark) = at.and_then(|at| self.marks.get_mut(at)).filter(|mark| !mark.settled) else {
                return;
            };
            mark.settled = true;
            self.open_bytes -= mark.bytes;
            self.settles += 1;
        }
        self.come_back(ticket);
        self.pass();
    }

    /// One that was handed out is no more.
    fn come_back(&mut self, ticket: Ticket) {
        let Some(at) = ticket.lane else { return };
        if let Some(lane) = self.lanes.get_mut(&at) {
            (lane.busy, lane.is_blocked) = (lane.busy.saturating_sub(1), false);
        }
        self.promote(at);
    }

    /// Hands out nothing more of the key of this one before it is settled.
    pub fn block(&mut self, ticket: Ticket) {
        self.withdraw(ticket.lane);
        if let Some(lane) = ticket.lane.and_then(|at| self.lanes.get_mut(&at)) {
            lane.is_blocked = true;
        }
    }

    /// The message goes again, not before `at`; those of its key wait behind it. `counted`: as another attempt.
    pub fn retry(&mut self, mut entry: Entry<M>, at: Instant, counted: bool) {
        entry.ticket.repeated = true;
        entry.ticket.attempt = entry.ticket.attempt.saturating_add(u32::from(counted));
        self.block(entry.ticket);
        self.keep(entry.ticket.bytes);
        self.retries += 1;
        self.later.insert((at, self.retries), entry);
    }

    /// Takes messages back that were not sent after all, or not all the way. They go again in order, before what comes
    /// later of their keys, and it was no attempt.
    pub fn give_back(&mut self, entries: Vec<Entry<M>>) {
        for mut entry in entries {
            entry.ticket.repeated = true;
            self.keep(entry.ticket.bytes);
            let Some(at) = entry.ticket.lane else {
                self.ready.push_front(entry);
                continue;
            };
            self.withdraw(Some(at));
            if let Some(lane) = self.lanes.get_mut(&at) {
                lane.busy = lane.busy.saturating_sub(1);
                let place = entry.ticket.place;
                let before = lane.behind.partition_point(|other| other.ticket.place < place);
                lane.behind.insert(before, entry);
            }
            self.promote(at);
        }
    }

    /// Takes back what is ready of a key that others may be given back before.
    fn withdraw(&mut self, lane: Option<u64>) {
        let Some((at, lane)) = lane.and_then(|at| Some((at, self.lanes.get_mut(&at)?))) else { return };
        if lane.is_ready
            && let Some(n) = self.ready.iter().position(|entry| entry.ticket.lane == Some(at))
        {
            (lane.is_ready, lane.busy) = (false, lane.busy.saturating_sub(1));
            self.ready.remove(n).into_iter().for_each(|entry| lane.behind.push_front(entry));
        }
    }

    /// Drops what was resumed of the key of this one and is not handed out. Answers with the rows.
    pub fn drop_resumed(&mut self, ticket: Ticket) -> Vec<i64> {
        self.withdraw(ticket.lane);
        let Some(lane) = ticket.lane.and_then(|at| self.lanes.get_mut(&at)) else { return Vec::new() };
        let (dropped, kept): (VecDeque<_>, _) =
            mem::take(&mut lane.behind).into_iter().partition(|e| e.ticket.parked().is_some());
        lane.behind = kept;
        dropped.iter().for_each(|entry| self.release(entry.ticket.bytes));
        dropped.iter().filter_map(|entry| entry.ticket.parked()).collect()
    }

    /// Makes ready what was to go again by `now`, and answers with when the next will be.
    pub fn wake(&mut self, now: Instant) -> Option<Instant> {
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now {
                return Some(first.key().0);
            }
            let entry = first.remove();
            if let Some(lane) = entry.ticket.lane.and_then(|at| self.lanes.get_mut(&at)) {
                (lane.is_blocked, lane.is_ready) = (false, self.order == Order::Ordered);
            }
            self.ready.push_front(entry);
        }
        None
    }

    fn pass(&mut self) {
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.settled) {
            self.settled = mark.after;
            self.first += 1;
        }
    }

    fn keep(&mut self, bytes: usize) {
        self.buffered += 1;
        self.bytes += bytes;
    }

    fn release(&mut self, bytes: usize) {
        self.buffered -= 1;
        self.bytes -= bytes;
    }

    /// How far everything is settled.
    pub fn settled(&self) -> &C {
        &self.settled
    }

    /// Messages of the log from the lowest unfinished one on.
    pub fn open(&self) -> usize {
        self.marks.len()
    }

    /// The bytes of the messages of the log that are not settled, handed out or not.
    pub fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    /// Messages of the log that were settled so far.
    pub fn settles(&self) -> u64 {
        self.settles
    }

    /// Messages that may go now.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Messages in here, and their bytes. Those that are handed out are not.
    pub fn buffered(&self) -> (usize, usize) {
        (self.buffered, self.bytes)
    }
}

#[cfg(test)]
mod tests;
