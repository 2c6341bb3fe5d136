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
        lanes.block(again.ticket);
        assert!(lanes.take(all()).is_empty(), "{order:?}");
        lanes.hold(["7"]);
        lanes.settle(again.ticket);
        assert!(lanes.take(all()).is_empty());
        assert_eq!(ids(&lanes.take_to_park(9)), ["2", "3"]);
    }
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
    assert_eq!(lanes.drop_resumed(second.ticket), [13]);
    lanes.settle(second.ticket);
    assert!(lanes.take(all()).is_empty());
    assert_eq!(ids(&lanes.take_to_park(9)), ["14"]);
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

proptest! {
    /// Messages are settled, retried, given back, parked and taken in any order. Every message goes out.
    /// Those of a key go in order and, except to an ordered destination, one at a time. The cursor never
    /// passes an unsettled one.
    #[test]
    fn keys_in_order_and_the_cursor_behind(
        is_ordered: bool,
        keys in prop::collection::vec(prop::option::of(0u8..4), 1..60),
        choices in prop::collection::vec((0u8..4, 0usize..8), 1..400),
    ) {
        let order = if is_ordered { SendOrder::Ordered } else { SendOrder::PerMessage };
        let (mut lanes, now) = (filled(order, &[]), Instant::now());
        let (mut pushed, mut out, mut done) = (0, Vec::<Entry>::new(), HashSet::new());
        // The last finished message of each key, and the parked rows in the order of their numbers.
        let (mut last, mut parked) = (HashMap::<String, i64>::new(), BTreeMap::<i64, Option<u8>>::new());
        let end = std::iter::repeat_n([(0, 0), (1, 7), (2, 0), (3, 1)], 2000).flatten();
        let mut choices = choices.into_iter().chain(end);
        let key_of = |n: i64| keys[usize::try_from(n - 1).unwrap()];
        while done.len() < keys.len() {
            match choices.next().expect("there are enough choices to finish") {
                (0, _) if pushed < keys.len() => {
                    pushed += 1;
                    let n = i64::try_from(pushed).unwrap();
                    lanes.push(message(n, key_of(n)), n, false);
                }
                (1, n) => {
                    lanes.wake(now);
                    let taken = lanes.take(Budget::messages(n));
                    prop_assert!(taken.len() <= n);
                    out.extend(taken);
                    let held: Vec<_> = out.iter().filter_map(|e| e.message.key.clone()).collect();
                    let distinct: HashSet<_> = held.iter().collect();
                    prop_assert!(is_ordered || held.len() == distinct.len());
                }
                // The queue in front of the lanes does this with rows: it parks messages, and resumes those
                // of one key.
                (3, n) => {
                    for entry in lanes.take_to_park(usize::MAX) {
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
                        let rows = parked.iter().filter(|(_, k)| **k == key).map(|(n, _)| *n);
                        for row in rows.take(n).collect::<Vec<_>>() {
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
                    // An ordered destination acknowledges in order.
                    let entry = if is_ordered { out.remove(0) } else { out.swap_remove(n % out.len()) };
                    let number: i64 = entry.message.id.parse().unwrap();
                    match n % 8 {
                        // The first failure ends the batch: no later message of it was stored.
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
