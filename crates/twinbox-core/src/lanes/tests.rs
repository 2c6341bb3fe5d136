use super::*;
use crate::{message::Message, timestamp::Timestamp};
use proptest::prelude::*;
use std::{collections::HashSet, time::Duration};

type Queue = Lanes<Box<Message>, i64>;

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

fn all() -> Budget {
    Budget::messages(usize::MAX)
}

fn ids(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.message.id.as_str()).collect()
}

/// Lanes with one message for each key, numbered from 1.
fn filled(order: SendOrder, keys: &[Option<u8>]) -> Queue {
    let mut lanes = Lanes::new(0);
    lanes.order(order);
    for (n, key) in (1..).zip(keys) {
        lanes.push(message(n, *key), n, false);
    }
    lanes
}

#[test]
fn a_slow_key_stops_no_other_key_but_the_cursor() {
    let mut lanes = filled(SendOrder::PerMessage, &[Some(7), Some(7), None, None]);
    let taken = lanes.take(all());
    assert_eq!(ids(&taken), ["1", "3", "4"]);
    lanes.settle(taken[1].ticket);
    lanes.settle(taken[2].ticket);
    assert_eq!(lanes.settled(), &0);
    lanes.settle(taken[0].ticket);
    assert_eq!(lanes.settled(), &1);
    assert_eq!(ids(&lanes.take(all())), ["2"]);
}

#[test]
fn an_ordered_destination_gets_all_messages_of_a_key_without_waiting() {
    let mut lanes = filled(SendOrder::Ordered, &[Some(7), Some(8), Some(7), Some(7)]);
    assert_eq!(ids(&lanes.take(all())), ["1", "2", "3", "4"]);
}

#[test]
fn given_back_messages_go_again_in_order_and_are_not_counted() {
    let mut lanes = filled(SendOrder::Ordered, &[Some(7), Some(7), None, Some(7), Some(7)]);
    let mut taken = lanes.take(Budget::messages(4));
    assert_eq!(ids(&taken), ["1", "3", "2", "4"]);
    lanes.settle(taken.remove(0).ticket);
    // The order of giving back does not matter.
    taken.reverse();
    lanes.give_back(taken);
    let again = lanes.take(all());
    let of_key: Vec<_> = again.iter().filter(|e| e.message.key.is_some()).map(|e| &*e.message.id).collect();
    assert_eq!(of_key, ["2", "4", "5"]);
    assert!(again.iter().all(|entry| entry.ticket.attempt == 1));
}

#[test]
fn no_message_overtakes_one_of_its_key_that_is_retried_or_being_parked() {
    for order in [SendOrder::PerMessage, SendOrder::Ordered] {
        let (mut lanes, now) = (filled(order, &[Some(7), Some(7), Some(7)]), Instant::now());
        let later = now + Duration::from_secs(1);
        let entry = lanes.take(Budget::messages(1)).remove(0);
        lanes.retry(entry, later, true);
        assert_eq!(lanes.wake(now), Some(later));
        assert!(lanes.take(all()).is_empty());
        assert_eq!(lanes.wake(later), None);
        let again = lanes.take(Budget::messages(1)).remove(0);
        assert_eq!((&*again.message.id, again.ticket.may_be_repeated, again.ticket.attempt), ("1", true, 2));
        lanes.park(again.ticket, true);
        assert!(lanes.take(all()).is_empty(), "{order:?}");
        lanes.hold(["7"]);
        lanes.settle(again.ticket);
        assert!(lanes.take(all()).is_empty());
        assert_eq!(ids(&lanes.take_to_park(9)), ["2", "3"]);
    }
}

#[test]
fn a_message_keeps_its_name_until_that_is_given_up() {
    let (mut lanes, now) = (filled(SendOrder::PerMessage, &[Some(7)]), Instant::now());
    let mut names = Vec::new();
    for n in 0..6 {
        let mut entry = lanes.take(all()).remove(0);
        names.push(entry.ticket.name);
        match n {
            0 => {}
            1 => entry.ticket.rename(),
            _ => entry.ticket.note_in_process(),
        }
        lanes.retry(entry, now, false);
        lanes.wake(now);
    }
    assert_eq!(names, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn parked_messages_go_before_new_ones_of_their_key() {
    let mut lanes = filled(SendOrder::PerMessage, &[]);
    lanes.hold(["7"]);
    lanes.resume(11, 0, message(11, Some(7)));
    lanes.resume(12, 0, message(12, Some(7)));
    lanes.resume(13, 0, message(13, Some(7)));
    lanes.push(message(14, Some(7)), 14, false);
    lanes.push(message(15, Some(8)), 15, false);
    let taken = lanes.take(all());
    assert_eq!(ids(&taken), ["11", "15"]);
    lanes.settle(taken[0].ticket);
    let second = lanes.take(all()).remove(0);
    assert_eq!(second.message.id, "12");
    // It fails: the later ones stay parked, and new messages are parked behind them.
    lanes.park(second.ticket, true);
    assert_eq!(lanes.take_dropped(), [13]);
    lanes.settle(second.ticket);
    assert!(lanes.take(all()).is_empty());
    assert_eq!(ids(&lanes.take_to_park(9)), ["14"]);
}

#[test]
fn no_row_passes_an_earlier_one_of_its_key_that_is_parked_again() {
    for is_told_late in [false, true] {
        let mut lanes = filled(SendOrder::Ordered, &[]);
        lanes.hold(["7"]);
        assert!(lanes.resume(11, 0, message(11, Some(7))) && lanes.resume(12, 0, message(12, Some(7))));
        let mut taken = lanes.take(all());
        let second = taken.pop().unwrap();
        let first = taken.pop().unwrap().ticket;
        lanes.park(first, true);
        if is_told_late {
            lanes.settle(first);
            lanes.give_back(vec![second]);
        } else {
            lanes.give_back(vec![second]);
            lanes.settle(first);
        }
        assert!(lanes.take(all()).is_empty());
        assert_eq!(lanes.take_dropped(), [12]);
        assert!(lanes.resume(11, 1, message(11, Some(7))), "it is due again");
    }
}

#[test]
fn a_row_stays_parked_while_an_earlier_one_of_its_key_is_being_parked() {
    let mut lanes = filled(SendOrder::Ordered, &[]);
    lanes.hold(["7"]);
    assert!(lanes.resume(11, 0, message(11, Some(7))));
    let first = lanes.take(all()).remove(0);
    lanes.park(first.ticket, true);
    assert!(!lanes.resume(12, 0, message(12, Some(7))));
    lanes.settle(first.ticket);
    assert!(lanes.resume(12, 0, message(12, Some(7))), "the first may be gone: a look tells");
}

#[test]
fn a_failure_is_put_off_until_earlier_messages_of_the_key_have_a_result() {
    let mut lanes = filled(SendOrder::Ordered, &[Some(7), Some(7), Some(7)]);
    let (mut taken, now) = (lanes.take(all()), Instant::now());
    let third = taken.pop().unwrap();
    let second = taken.pop().unwrap();
    let first = taken.pop().unwrap();
    assert!(lanes.is_behind(second.ticket) && !lanes.is_behind(first.ticket));
    lanes.retry(second, now, false);
    lanes.give_back(vec![third]);
    assert!(lanes.take(all()).is_empty());
    lanes.retry(first, now, true);
    assert!(lanes.take(all()).is_empty());
    lanes.wake(now);
    let first = lanes.take(all()).remove(0);
    assert_eq!((&*first.message.id, first.ticket.attempt), ("1", 2));
    assert!(lanes.take(all()).is_empty(), "the second may fail again, and the first too");
    lanes.settle(first.ticket);
    let again = lanes.take(all());
    assert_eq!((ids(&again), again[0].ticket.attempt), (vec!["2", "3"], 1));
}

#[test]
fn a_settled_message_lets_none_pass_that_another_one_of_its_key_holds() {
    let mut lanes = filled(SendOrder::Ordered, &[Some(7), Some(7), Some(7)]);
    let mut taken = lanes.take(all());
    let (second, first) = (taken.remove(1), taken.remove(0));
    lanes.give_back(taken);
    lanes.park(second.ticket, true);
    lanes.settle(first.ticket);
    assert!(lanes.take(all()).is_empty(), "the second is not committed yet");
}

#[test]
fn settling_a_message_that_was_parked_behind_others_lets_none_of_its_key_go() {
    let mut lanes = filled(SendOrder::PerMessage, &[]);
    lanes.hold(["7"]);
    lanes.push(message(14, Some(7)), 14, false);
    let behind = lanes.take_to_park(9).remove(0);
    // A read of the parked rows that began before this row was written resumes the earlier ones.
    lanes.resume(11, 0, message(11, Some(7)));
    lanes.resume(12, 0, message(12, Some(7)));
    assert_eq!(ids(&lanes.take(all())), ["11"]);
    lanes.settle(behind.ticket);
    assert!(lanes.take(all()).is_empty(), "the first is still running");
}

#[test]
fn the_bytes_that_are_handed_out_are_bounded() {
    let mut lanes = filled(SendOrder::PerMessage, &[None; 5]);
    let one = lanes.buffered().1 / 5;
    assert_eq!(lanes.take(Budget { messages: 9, bytes: 0 }).len(), 0);
    assert_eq!(lanes.take(Budget { messages: 9, bytes: 1 }).len(), 1, "a larger message goes alone");
    assert_eq!(lanes.take(Budget { messages: 9, bytes: 2 * one }).len(), 2);
}

#[test]
fn an_empty_window_moves_the_cursor() {
    let mut lanes = filled(SendOrder::PerMessage, &[]);
    lanes.end_window(7);
    assert_eq!(lanes.settled(), &7);
}

/// The same outcomes as of a destination, in any order of time.
struct World {
    lanes: Queue,
    is_ordered: bool,
    keys: Vec<Option<u8>>,
    out: Vec<Entry>,
    done: HashSet<i64>,
    /// The last finished message of each key.
    last: HashMap<u8, i64>,
    /// The parked rows in the order of their numbers.
    parked: BTreeMap<i64, Option<u8>>,
}

impl World {
    fn key(&self, entry: &Entry) -> Option<u8> {
        self.keys[usize::try_from(number(entry) - 1).unwrap()]
    }

    fn hold(&mut self) {
        let held: Vec<_> = self.parked.values().flatten().map(u8::to_string).collect();
        self.lanes.hold(held.iter().map(String::as_str));
    }

    /// The destination has stored messages, and tells so in that order or the other way round.
    fn finish(&mut self, mut entries: Vec<Entry>, is_reversed: bool) -> Result<(), TestCaseError> {
        for entry in &entries {
            let n = number(entry);
            if let Some(key) = self.key(entry) {
                prop_assert!(self.last.insert(key, n).unwrap_or(0) < n);
            }
        }
        if is_reversed {
            entries.reverse();
        }
        for entry in entries {
            self.done.insert(number(&entry));
            self.lanes.settle(entry.ticket);
            let ended = |n: &i64| self.done.contains(n) || self.parked.contains_key(n);
            prop_assert!(*self.lanes.settled() <= (1..).take_while(ended).last().unwrap_or(0));
        }
        Ok(())
    }

    fn take(&mut self, n: usize) -> Result<(), TestCaseError> {
        self.lanes.wake(Instant::now());
        let taken = self.lanes.take(Budget::messages(n));
        prop_assert!(taken.len() <= n);
        self.out.extend(taken);
        let held: Vec<_> = self.out.iter().filter_map(|e| e.message.key.clone()).collect();
        let distinct: HashSet<_> = held.iter().collect();
        prop_assert!(self.is_ordered || held.len() == distinct.len());
        Ok(())
    }

    /// The queue in front of the lanes does this with rows: it parks messages, and resumes those of one key.
    fn park_and_resume(&mut self, n: usize) -> Result<(), TestCaseError> {
        for entry in self.lanes.take_to_park(usize::MAX) {
            self.parked.insert(number(&entry), self.key(&entry));
            self.lanes.settle(entry.ticket);
        }
        self.hold();
        let running = |key: Option<u8>| self.out.iter().any(|entry| self.key(entry) == key);
        let idle = self.parked.iter().find(|(_, key)| !running(**key)).map(|(_, key)| *key);
        let Some(key) = idle.filter(|_| n > 0 && self.lanes.ready() == 0) else { return Ok(()) };
        let rows = self.parked.iter().filter(|(_, k)| **k == key).map(|(n, _)| *n);
        for row in rows.take(n).collect::<Vec<_>>() {
            if !self.lanes.resume(row, 0, message(row, key)) {
                break;
            }
            self.out.extend(self.lanes.take(all()));
            let entry = self.out.pop().unwrap();
            prop_assert_eq!(entry.ticket.parked(), Some(row));
            self.parked.remove(&row);
            self.finish(vec![entry], false)?;
        }
        self.hold();
        Ok(())
    }

    /// A message has a result. Before it, later ones of its key may have theirs, and earlier ones may not.
    fn hear(&mut self, n: usize) -> Result<(), TestCaseError> {
        let entry = self.out.swap_remove(n % self.out.len());
        let (now, of_key, origin) = (Instant::now(), self.key(&entry), entry.ticket.origin);
        let same = |other: &Entry| of_key.is_some() && other.message.key == entry.message.key;
        if n % 8 < 5 {
            // It is stored, and so are those before it.
            let mut stored: Vec<_> =
                self.out.extract_if(.., |e| same(e) && e.ticket.origin < origin).collect();
            stored.push(entry);
            stored.sort_by_key(|e| e.ticket.origin);
            return self.finish(stored, n.is_multiple_of(2));
        }
        // None of its key is stored after it.
        let behind = Vec::from_iter(self.out.extract_if(.., |e| same(e) && e.ticket.origin > origin));
        let (before, after) = if n.is_multiple_of(2) { (behind, vec![]) } else { (vec![], behind) };
        self.lanes.give_back(before);
        match n % 8 {
            _ if self.lanes.is_behind(entry.ticket) => self.lanes.retry(entry, now, false),
            5 => self.lanes.retry(entry, now, true),
            6 => self.lanes.give_back(vec![entry]),
            _ => {
                self.lanes.park(entry.ticket, true);
                self.parked.insert(number(&entry), of_key);
                self.hold();
                self.lanes.settle(entry.ticket);
            }
        }
        self.lanes.give_back(after);
        Ok(())
    }
}

fn number(entry: &Entry) -> i64 {
    entry.message.id.parse().unwrap()
}

proptest! {
    /// Messages are settled, retried, given back, parked and taken in any order. Every message goes out.
    /// Those of a key go in order and, except to an ordered destination, one at a time. The cursor never
    /// passes an unsettled one.
    #[test]
    fn keys_in_order_and_the_cursor_behind(
        is_ordered: bool,
        keys in prop::collection::vec(prop::option::of(0u8..4), 1..60),
        choices in prop::collection::vec((0u8..4, 0usize..64), 1..400),
    ) {
        let order = if is_ordered { SendOrder::Ordered } else { SendOrder::PerMessage };
        let (lanes, all) = (filled(order, &[]), keys.len());
        let (out, done, last, parked) = (vec![], HashSet::new(), HashMap::new(), BTreeMap::new());
        let mut world = World { lanes, is_ordered, keys, out, done, last, parked };
        let end = std::iter::repeat_n([(0, 0), (1, 7), (2, 0), (3, 1)], 2000).flatten();
        let (mut choices, mut pushed) = (choices.into_iter().chain(end), 0);
        while world.done.len() < all {
            match choices.next().expect("there are enough choices to finish") {
                (0, _) if pushed < all => {
                    let (n, key) = (i64::try_from(pushed + 1).unwrap(), world.keys[pushed]);
                    world.lanes.push(message(n, key), n, false);
                    pushed += 1;
                }
                (1, n) => world.take(n)?,
                (3, n) => world.park_and_resume(n)?,
                (_, n) if !world.out.is_empty() => world.hear(n)?,
                _ => {}
            }
        }
        prop_assert_eq!(world.lanes.buffered(), (0, 0));
        prop_assert_eq!((world.lanes.open(), *world.lanes.settled()), (0, i64::try_from(all).unwrap()));
    }
}
