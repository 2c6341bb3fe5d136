//! Which message may go next, and how far everything is settled. No I/O and no clock of its own.
use super::Cursor;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState},
    time::Instant,
};
use twinbox_core::Message;

/// A message that is handed out. It is settled, or retried, or comes again with the next reader.
#[derive(Debug)]
pub struct Entry {
    /// What it is settled by.
    pub ticket: Ticket,
    /// The message. Boxed, because it is handed on several times.
    pub message: Box<Message>,
}

/// The place of a message that is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(super) place: Place,
    lane: Option<u64>,
    /// Whether it may have been handed out before: by this reader, or by one before it.
    pub repeated: bool,
    /// How often it was handed out, counted from 1: by this reader, or at all if it was put aside.
    pub attempt: u32,
}

/// Where a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The log: the number of its mark.
    Log(u64),
    /// What is put aside: its position.
    Parked(i64),
}

/// One read message in the order of reading, and where the cursor stands once it is settled.
#[derive(Debug)]
struct Mark {
    after: Cursor,
    settled: bool,
}

/// Messages of one key go one at a time, in order; different keys together. A key is known by its hash: two
/// keys that share one wait for each other, which costs time and nothing else.
#[derive(Debug)]
pub(crate) struct Lanes {
    marks: VecDeque<Mark>,
    /// The number of `marks[0]`.
    first: u64,
    settled: Cursor,
    ready: VecDeque<Entry>,
    /// For each key with a message handed out or ready: those behind it.
    behind: HashMap<u64, VecDeque<Entry>, BuildHasherDefault<Hashed>>,
    /// Keys of which a message is put aside: what comes of them is put aside behind it.
    held: HashSet<u64, BuildHasherDefault<Hashed>>,
    /// What is to be put aside for that.
    aside: Vec<Entry>,
    later: Vec<(Instant, Entry)>,
    buffered: usize,
    bytes: usize,
    hasher: RandomState,
}

/// Lanes are hashes already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a lane is hashed as the number that it is");
    }

    fn write_u64(&mut self, lane: u64) {
        self.0 = lane;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Lanes {
    pub(crate) fn new(settled: Cursor) -> Self {
        Self {
            marks: VecDeque::new(),
            first: 0,
            settled,
            ready: VecDeque::new(),
            behind: HashMap::default(),
            held: HashSet::default(),
            aside: Vec::new(),
            later: Vec::new(),
            buffered: 0,
            bytes: 0,
            hasher: RandomState::new(),
        }
    }

    /// Takes in the next message of the log. `after`: the cursor once this and all before it are settled.
    pub(crate) fn push(&mut self, message: Box<Message>, after: Cursor, repeated: bool) {
        let number = self.first + self.marks.len() as u64;
        self.marks.push_back(Mark { after, settled: false });
        self.buffered += 1;
        self.bytes += message.payload.len();
        let lane = message.key.as_ref().map(|key| self.hasher.hash_one(key));
        let ticket = Ticket { place: Place::Log(number), lane, repeated, attempt: 1 };
        let entry = Entry { ticket, message };
        match lane.and_then(|lane| self.behind.get_mut(&lane)) {
            Some(behind) => behind.push_back(entry),
            None if lane.is_some_and(|lane| self.held.contains(&lane)) => self.aside.push(entry),
            None => {
                if let Some(lane) = lane {
                    self.behind.insert(lane, VecDeque::new());
                }
                self.ready.push_back(entry);
            }
        }
    }

    /// Takes in a message that is done with already.
    pub(crate) fn pass_by(&mut self, after: Cursor) {
        self.marks.push_back(Mark { after, settled: true });
        self.pass();
    }

    /// Takes in a message that was put aside after that many attempts.
    pub(crate) fn resume(&mut self, position: i64, attempts: u32, message: Box<Message>) {
        self.buffered += 1;
        self.bytes += message.payload.len();
        let attempt = attempts.saturating_add(1);
        let ticket = Ticket { place: Place::Parked(position), lane: None, repeated: attempts > 0, attempt };
        self.ready.push_back(Entry { ticket, message });
    }

    /// From now on these are the keys of which messages are put aside, beside those that wait for it.
    pub(crate) fn hold(&mut self, keys: &[String]) {
        let waiting = self.aside.iter().filter_map(|entry| entry.ticket.lane);
        self.held = keys.iter().map(|key| self.hasher.hash_one(key)).chain(waiting).collect();
    }

    pub(crate) fn has_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// What is to be put aside behind other messages of its key. Settle it when that is done.
    pub(crate) fn take_aside(&mut self) -> Vec<Entry> {
        self.buffered -= self.aside.len();
        self.bytes -= self.aside.iter().map(|e| e.message.payload.len()).sum::<usize>();
        std::mem::take(&mut self.aside)
    }

    /// Notes that a window ends here: with all before it settled, the cursor is `after`.
    pub(crate) fn end_window(&mut self, after: Cursor) {
        // No mark of its own: windows come every second also while a message is stuck, and would fill the queue.
        match self.marks.back_mut() {
            Some(last) => last.after = after,
            None => self.settled = after,
        }
    }

    /// Hands out at most `max` messages, never two of a key.
    pub(crate) fn take(&mut self, max: usize) -> Vec<Entry> {
        let taken: Vec<_> = self.ready.drain(..max.min(self.ready.len())).collect();
        self.buffered -= taken.len();
        self.bytes -= taken.iter().map(|e| e.message.payload.len()).sum::<usize>();
        taken
    }

    /// The message is done with; the next of its key may go.
    pub(crate) fn settle(&mut self, ticket: Ticket) {
        let Place::Log(number) = ticket.place else { return };
        let Some(at) = number.checked_sub(self.first).and_then(|n| usize::try_from(n).ok()) else { return };
        let Some(mark) = self.marks.get_mut(at).filter(|mark| !mark.settled) else { return };
        mark.settled = true;
        if let Some(lane) = ticket.lane
            && self.held.contains(&lane)
        {
            self.aside.extend(self.behind.remove(&lane).unwrap_or_default());
        } else if let Some(lane) = ticket.lane {
            match self.behind.get_mut(&lane).and_then(VecDeque::pop_front) {
                Some(next) => self.ready.push_back(next),
                None => drop(self.behind.remove(&lane)),
            }
        }
        self.pass();
    }

    /// The message goes again, not before `at`; those of its key wait behind it.
    pub(crate) fn retry(&mut self, mut entry: Entry, at: Instant) {
        entry.ticket.repeated = true;
        entry.ticket.attempt = entry.ticket.attempt.saturating_add(1);
        self.buffered += 1;
        self.bytes += entry.message.payload.len();
        self.later.push((at, entry));
    }

    /// Makes ready what was to go again by `now`, and answers with when the next will be.
    pub(crate) fn wake(&mut self, now: Instant) -> Option<Instant> {
        while let Some(n) = self.later.iter().position(|(at, _)| *at <= now) {
            let (_, entry) = self.later.swap_remove(n);
            self.ready.push_front(entry);
        }
        self.later.iter().map(|(at, _)| *at).min()
    }

    fn pass(&mut self) {
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.settled) {
            self.settled = mark.after;
            self.first += 1;
        }
    }

    /// How far everything is settled.
    pub(crate) fn settled(&self) -> Cursor {
        self.settled
    }

    /// Messages from the lowest unfinished one on.
    pub(crate) fn open(&self) -> usize {
        self.marks.len()
    }

    /// Messages that may go now.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Messages in here, and the bytes of their payloads.
    pub(crate) fn buffered(&self) -> (usize, usize) {
        (self.buffered, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use twinbox_core::Timestamp;

    fn message(n: i64, key: Option<u8>) -> Box<Message> {
        Box::new(Message {
            id: n.to_string(),
            source: "test".into(),
            event_type: "t".into(),
            version: 1,
            key: key.map(|k| k.to_string()),
            subject: None,
            time: Timestamp::from_micros(0),
            sequence: None,
            correlation_id: None,
            causation_id: None,
            traceparent: None,
            content_type: String::new(),
            headers: vec![],
            payload: vec![0; 3].into(),
        })
    }

    fn at(position: i64) -> Cursor {
        Cursor { p: 0, w: 1, position }
    }

    #[test]
    fn one_hot_key_stops_nobody_and_holds_the_cursor() {
        let mut lanes = Lanes::new(at(0));
        for n in 1..=4 {
            lanes.push(message(n, if n <= 2 { Some(7) } else { None }), at(n), false);
        }
        let taken = lanes.take(9);
        assert_eq!(taken.iter().map(|e| e.message.id.as_str()).collect::<Vec<_>>(), ["1", "3", "4"]);
        lanes.settle(taken[1].ticket);
        lanes.settle(taken[2].ticket);
        assert_eq!(lanes.settled(), at(0));
        lanes.settle(taken[0].ticket);
        assert_eq!(lanes.settled(), at(1));
        assert_eq!(lanes.take(9).len(), 1);
    }

    #[test]
    fn a_message_that_goes_again_keeps_its_key_waiting() {
        let (mut lanes, now) = (Lanes::new(at(0)), Instant::now());
        lanes.push(message(1, Some(7)), at(1), false);
        lanes.push(message(2, Some(7)), at(2), false);
        let later = now + std::time::Duration::from_secs(1);
        let entry = lanes.take(1).remove(0);
        lanes.retry(entry, later);
        assert_eq!(lanes.wake(now), Some(later));
        assert!(lanes.take(9).is_empty());
        lanes.wake(later);
        let again = lanes.take(9);
        assert_eq!((again.len(), again[0].message.id.as_str(), again[0].ticket.repeated), (1, "1", true));
    }

    #[test]
    fn an_empty_window_moves_the_cursor() {
        let mut lanes = Lanes::new(at(0));
        lanes.end_window(Cursor { p: 1, w: 1, position: 0 });
        assert_eq!(lanes.settled(), Cursor { p: 1, w: 1, position: 0 });
    }

    proptest! {
        /// Whatever is settled, retried and taken in whatever order: every message goes out, those of a key
        /// one at a time and in order, and the cursor never passes one that is not settled.
        #[test]
        fn keys_in_order_and_the_cursor_behind(keys in prop::collection::vec(prop::option::of(0u8..4), 1..60),
                choices in prop::collection::vec((0u8..3, 0usize..8), 1..400)) {
            let (mut lanes, now) = (Lanes::new(at(0)), Instant::now());
            let (mut pushed, mut out, mut done) = (0, Vec::<Entry>::new(), HashSet::new());
            let mut last: HashMap<String, i64> = HashMap::new();
            let mut choices = choices.into_iter().chain(std::iter::repeat_n([(0, 0), (1, 3), (2, 0)], 2000).flatten());
            while done.len() < keys.len() {
                match choices.next().expect("it comes to an end") {
                    (0, _) if pushed < keys.len() => {
                        pushed += 1;
                        lanes.push(message(pushed as i64, keys[pushed - 1]), at(pushed as i64), false);
                    }
                    (1, n) => {
                        lanes.wake(now);
                        let taken = lanes.take(n);
                        prop_assert!(taken.len() <= n);
                        out.extend(taken);
                        let held: Vec<_> = out.iter().filter_map(|e| e.message.key.clone()).collect();
                        let distinct: HashSet<_> = held.iter().collect();
                        prop_assert_eq!(held.len(), distinct.len());
                    }
                    (_, n) if !out.is_empty() => {
                        let entry = out.swap_remove(n % out.len());
                        if n % 3 == 2 {
                            lanes.retry(entry, now);
                            continue;
                        }
                        let number: i64 = entry.message.id.parse().unwrap();
                        if let Some(key) = entry.message.key.clone() {
                            prop_assert!(last.insert(key, number).unwrap_or(0) < number);
                        }
                        lanes.settle(entry.ticket);
                        done.insert(number);
                        let expected = (1..).take_while(|n| done.contains(n)).last().unwrap_or(0);
                        prop_assert_eq!(lanes.settled().position, expected);
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(lanes.buffered(), (0, 0));
            prop_assert_eq!(lanes.open(), 0);
        }
    }
}
