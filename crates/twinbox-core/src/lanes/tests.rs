use super::*;
use crate::{Message, Timestamp};
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

fn all() -> Room {
    Room::messages(usize::MAX)
}

fn ids(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.message.id.as_str()).collect()
}

/// Messages of these keys, numbered from 1.
fn filled(order: Order, keys: &[Option<u8>]) -> Queue {
    let mut lanes = Lanes::new(0);
    lanes.order(order);
    for (n, key) in (1..).zip(keys) {
        lanes.push(message(n, *key), n, false);
    }
    lanes
}

#[test]
fn one_hot_key_stops_nobody_and_holds_the_cursor() {
    let mut lanes = filled(Order::PerMessage, &[Some(7), Some(7), None, None]);
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
fn an_ordered_destination_gets_a_key_one_after_the_other_at_once() {
    let mut lanes = filled(Order::Ordered, &[Some(7), Some(8), Some(7), Some(7)]);
    assert_eq!(ids(&lanes.take(all())), ["1", "2", "3", "4"]);
}

#[test]
fn what_was_given_back_goes_again_in_order_and_uncounted() {
    let mut lanes = filled(Order::Ordered, &[Some(7), Some(7), None, Some(7), Some(7)]);
    let mut taken = lanes.take(Room::messages(4));
    assert_eq!(ids(&taken), ["1", "3", "2", "4"]);
    lanes.settle(taken.remove(0).ticket);
    // Whatever the order in which they come back.
    taken.reverse();
    lanes.give_back(taken);
    let again = lanes.take(all());
    let of_key: Vec<_> = again.iter().filter(|e| e.message.key.is_some()).map(|e| &*e.message.id).collect();
    assert_eq!(of_key, ["2", "4", "5"]);
    assert!(again.iter().all(|entry| entry.ticket.attempt == 1));
}

#[test]
fn nothing_of_a_key_overtakes_one_that_is_retried_or_about_to_be_parked() {
    for order in [Order::PerMessage, Order::Ordered] {
        let (mut lanes, now) = (filled(order, &[Some(7), Some(7), Some(7)]), Instant::now());
        let later = now + Duration::from_secs(1);
        let entry = lanes.take(Room::messages(1)).remove(0);
        lanes.retry(entry, later, true);
        assert_eq!(lanes.wake(now), Some(later));
        assert!(lanes.take(all()).is_empty());
        assert_eq!(lanes.wake(later), None);
        let again = lanes.take(Room::messages(1)).remove(0);
        assert_eq!((&*again.message.id, again.ticket.repeated, again.ticket.attempt), ("1", true, 2));
        lanes.block(again.ticket);
        assert!(lanes.take(all()).is_empty(), "{order:?}");
        lanes.hold(["7"]);
        lanes.settle(again.ticket);
        assert!(lanes.take(all()).is_empty());
        assert_eq!(ids(&lanes.take_behind(9)), ["2", "3"]);
    }
}

#[test]
fn a_run_of_parked_messages_goes_before_what_is_new_of_its_key() {
    let mut lanes = filled(Order::PerMessage, &[]);
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
    // It fails: the rest of the run stays parked, and what is new is parked behind it.
    assert_eq!(lanes.drop_resumed(second.ticket), [13]);
    lanes.settle(second.ticket);
    assert!(lanes.take(all()).is_empty());
    assert_eq!(ids(&lanes.take_behind(9)), ["14"]);
}

#[test]
fn a_message_that_is_parked_behind_a_run_starts_no_second_one_of_it() {
    let mut lanes = filled(Order::PerMessage, &[]);
    lanes.hold(["7"]);
    lanes.push(message(14, Some(7)), 14, false);
    let behind = lanes.take_behind(9).remove(0);
    // A look that began before it was written takes the run up.
    lanes.resume(11, 0, message(11, Some(7)));
    lanes.resume(12, 0, message(12, Some(7)));
    assert_eq!(ids(&lanes.take(all())), ["11"]);
    lanes.settle(behind.ticket);
    assert!(lanes.take(all()).is_empty(), "the first is still running");
}

#[test]
fn what_is_handed_out_is_bounded_in_bytes_too() {
    let mut lanes = filled(Order::PerMessage, &[None; 5]);
    let one = lanes.buffered().1 / 5;
    assert_eq!(lanes.take(Room { messages: 9, bytes: 0 }).len(), 0);
    assert_eq!(lanes.take(Room { messages: 9, bytes: 1 }).len(), 1, "one that is larger goes alone");
    assert_eq!(lanes.take(Room { messages: 9, bytes: 2 * one }).len(), 2);
}

#[test]
fn an_empty_window_moves_the_cursor() {
    let mut lanes = filled(Order::PerMessage, &[]);
    lanes.end_window(7);
    assert_eq!(lanes.settled(), &7);
}

proptest! {
    /// Whatever is settled, retried, given back, parked and taken in whatever order: every message goes out, those of a
    /// key in order and, but for an ordered destination, one at a time; the cursor never passes one that is not settled.
    #[test]
    fn keys_in_order_and_the_cursor_behind(
        is_ordered: bool,
        keys in prop::collection::vec(prop::option::of(0u8..4), 1..60),
        choices in prop::collection::vec((0u8..4, 0usize..8), 1..400),
    ) {
        let order = if is_ordered { Order::Ordered } else { Order::PerMessage };
        let (mut lanes, now) = (filled(order, &[]), Instant::now());
        let (mut pushed, mut out, mut done) = (0, Vec::<Entry>::new(), HashSet::new());
        // Of each key the last that was done with; and rows that are parked, in the order of their numbers.
        let (mut last, mut parked) = (HashMap::<String, i64>::new(), BTreeMap::<i64, Option<u8>>::new());
        let end = std::iter::repeat_n([(0, 0), (1, 7), (2, 0), (3, 1)], 2000).flatten();
        let mut choices = choices.into_iter().chain(end);
        let key_of = |n: i64| keys[usize::try_from(n - 1).unwrap()];
        while done.len() < keys.len() {
            match choices.next().expect("it comes to an end") {
                (0, _) if pushed < keys.len() => {
                    pushed += 1;
                    let n = i64::try_from(pushed).unwrap();
                    lanes.push(message(n, key_of(n)), n, false);
                }
                (1, n) => {
                    lanes.wake(now);
                    let taken = lanes.take(Room::messages(n));
                    prop_assert!(taken.len() <= n);
                    out.extend(taken);
                    let held: Vec<_> = out.iter().filter_map(|e| e.message.key.clone()).collect();
                    let distinct: HashSet<_> = held.iter().collect();
                    prop_assert!(is_ordered || held.len() == distinct.len());
                }
                // What the engine does with rows: all that is to be parked is written, and one run taken up.
                (3, n) => {
                    for entry in lanes.take_behind(usize::MAX) {
                        let number: i64 = entry.message.id.parse().unwrap();
                        parked.insert(number, key_of(number));
                        lanes.settle(entry.ticket);
                    }
                    let held: Vec<_> = parked.values().flatten().map(u8::to_string).collect();
                    lanes.hold(held.iter().map(String::as_str));
                    let running = |key: Option<u8>| {
                        out.iter().any(|e| e.message.key == key.map(|key| key.to_string()))
                    };
                    let idle = parked.iter().find(|(_, key)| !running(**key)).map(|(_, key)| *key);
                    if let Some(key) = idle && n > 0 && lanes.ready() == 0 {
                        let run: Vec<_> = parked.iter().filter(|(_, k)| **k == key).map(|(n, _)| *n).take(n).collect();
                        for row in run {
                            lanes.resume(row, 0, message(row, key));
                            out.extend(lanes.take(all()));
                            let entry = out.pop();
                            prop_assert!(entry.is_some());
                            let entry = entry.unwrap();
                            prop_assert_eq!(entry.ticket.parked(), Some(row));
                            parked.remove(&row);
                            if let Some(key) = &entry.message.key {
                                prop_assert!(last.insert(key.clone(), row).unwrap_or(0) < row);
                            }
                            done.insert(row);
                            lanes.settle(entry.ticket);
                        }
                        let held: Vec<_> = parked.values().flatten().map(u8::to_string).collect();
                        lanes.hold(held.iter().map(String::as_str));
                    }
                }
                (_, n) if !out.is_empty() => {
                    // An ordered destination answers in order.
                    let entry = if is_ordered { out.remove(0) } else { out.swap_remove(n % out.len()) };
                    let number: i64 = entry.message.id.parse().unwrap();
                    match n % 8 {
                        // At the first that fails its batch is over, and nothing behind it was stored.
                        5..=7 if is_ordered => {
                            lanes.retry(entry, now, false);
                            lanes.give_back(std::mem::take(&mut out));
                        }
                        5 => lanes.retry(entry, now, true),
                        6 => lanes.give_back(vec![entry]),
                        7 => {
                            lanes.block(entry.ticket);
                            parked.insert(number, key_of(number));
                            let held: Vec<_> = parked.values().flatten().map(u8::to_string).collect();
                            lanes.hold(held.iter().map(String::as_str));
                            lanes.settle(entry.ticket);
                        }
                        _ => {
                            if let Some(key) = entry.message.key.clone() {
                                prop_assert!(last.insert(key, number).unwrap_or(0) < number);
                            }
                            lanes.settle(entry.ticket);
                            done.insert(number);
                            let expected = (1..).take_while(|n| done.contains(n) || parked.contains_key(n));
                            prop_assert!(*lanes.settled() <= expected.last().unwrap_or(0));
                        }
                    }
                }
                _ => {}
            }
        }
        prop_assert_eq!(lanes.buffered(), (0, 0));
        prop_assert_eq!((lanes.open(), *lanes.settled()), (0, i64::try_from(keys.len()).unwrap()));
    }
}
