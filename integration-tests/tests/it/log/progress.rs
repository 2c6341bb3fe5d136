//! What goes next, and how far everything is settled.
use crate::support::{
    cases::cases,
    log::{
        Names, draft, open, open_with, publish, publish_all, row, run, run_until, settle_until, take,
        take_over, text, texts,
    },
    wait::in_time,
};
use futures::FutureExt as _;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use twinbox::{Store, log::ReaderOptions};

async fn the_lowest_unfinished_message_holds_the_cursor<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b", "c"]).await;
    let mut reader = open(store, "d").await;
    let entries = take(&mut reader, 3).await;
    reader.settle(entries[1].ticket);
    reader.settle(entries[2].ticket);
    reader.close().await.unwrap();
    let held = row(store, "d").await;
    assert_eq!((held.p, held.position), (0, 0));

    let mut reader = open(store, "d").await;
    let entries = take(&mut reader, 3).await;
    assert_eq!(texts(&entries), ["a", "b", "c"]);
    reader.settle(entries[0].ticket);
    reader.settle(entries[1].ticket);
    reader.close().await.unwrap();
    let mut reader = open(store, "d").await;
    publish(store, None, &["d"]).await;
    assert_eq!(settle_until(&mut reader, "d").await, ["c", "d"]);
}

/// Fault matrix 5 and 6: what settled since the last cursor write, and nothing else.
async fn a_crash_redelivers_exactly_what_was_not_recorded<DB: Names>(store: &Store<DB>) {
    let names: Vec<_> = (0..10).map(|n| n.to_string()).collect();
    publish_all(store, names.iter().map(|name| draft(None, name)).collect()).await;
    let mut reader = open(store, "d").await;
    let entries = take(&mut reader, 10).await;
    for entry in &entries[..4] {
        reader.settle(entry.ticket);
    }
    reader.settle(entries[6].ticket);
    let fourth = i64::try_from(entries[3].message.sequence.unwrap()).unwrap();
    run_until(store, &mut reader, "d", |row| row.position == fourth).await;
    reader.settle(entries[4].ticket);
    drop(reader);

    run(store, &format!("UPDATE {} SET lease_until = {}", DB::CURSORS, DB::LONG_AGO)).await.unwrap();
    let mut reader = take_over(store, "d", ReaderOptions::new()).await;
    publish(store, None, &["end"]).await;
    let again = settle_until(&mut reader, "end").await;
    assert_eq!(again, ["4", "5", "6", "7", "8", "9", "end"]);
}

async fn messages_of_a_key_go_one_at_a_time_and_in_order<DB: Names>(store: &Store<DB>) {
    publish(store, Some("a"), &["a1", "a2"]).await;
    publish(store, Some("b"), &["b1"]).await;
    publish(store, Some("a"), &["a3"]).await;
    let mut reader = open(store, "d").await;
    let mut held = take(&mut reader, 2).await;
    assert_eq!(texts(&held), ["a1", "b1"]);
    for next in ["a2", "a3"] {
        publish(store, None, &["other"]).await;
        let other = take(&mut reader, 1).await;
        assert_eq!(texts(&other), ["other"], "{next} has to wait");
        reader.settle(held[0].ticket);
        held = take(&mut reader, 1).await;
        assert_eq!(texts(&held), [next]);
    }
}

async fn one_hot_key_does_not_stop_a_page<DB: Names>(store: &Store<DB>) {
    let hot = (0..500).map(|n| draft(Some("hot"), &format!("hot{n}")));
    let cold = (0..50).map(|n| draft(Some(&format!("k{n}")), &n.to_string()));
    publish_all(store, hot.chain(cold).collect()).await;
    let mut reader = open_with(store, "d", ReaderOptions::new().page(7)).await;
    let held = take(&mut reader, 1).await;
    assert_eq!(texts(&held), ["hot0"]);
    let mut came = BTreeSet::new();
    while came.len() < 50 {
        let entry = take(&mut reader, 1).await.remove(0);
        reader.settle(entry.ticket);
        came.insert(text(&entry));
    }
    assert!(came.iter().all(|text| !text.starts_with("hot")), "{came:?}");
    assert_eq!(reader.open_messages(), 550, "the hot message holds the cursor");
    reader.settle(held[0].ticket);
    let rest: Vec<_> = (1..500).map(|n| format!("hot{n}")).collect();
    assert_eq!(settle_until(&mut reader, "hot499").await, rest);
}

async fn a_retried_message_holds_its_key_and_no_other<DB: Names>(store: &Store<DB>) {
    const DELAY: Duration = Duration::from_millis(200);
    publish(store, Some("a"), &["a1", "a2"]).await;
    publish(store, Some("b"), &["b1"]).await;
    let mut reader = open(store, "d").await;
    let a1 = take(&mut reader, 1).await.remove(0);
    assert!(!a1.ticket.may_be_repeated && a1.ticket.attempt == 1);
    let begun = Instant::now();
    reader.retry(a1, DELAY, true);
    assert_eq!(texts(&take(&mut reader, 1).await), ["b1"]);
    let a1 = take(&mut reader, 1).await.remove(0);
    assert!(begun.elapsed() >= DELAY);
    assert_eq!((text(&a1).as_str(), a1.ticket.may_be_repeated, a1.ticket.attempt), ("a1", true, 2));
    reader.settle(a1.ticket);
    assert_eq!(texts(&take(&mut reader, 1).await), ["a2"]);
}

/// Polled once and dropped, again and again, while messages come.
async fn next_is_cancel_safe<DB: Names>(store: &Store<DB>) {
    let names: Vec<_> = (0..300).map(|n| n.to_string()).collect();
    let mut reader = open_with(store, "d", ReaderOptions::new().page(3)).await;
    let publishing = async {
        for name in &names {
            publish(store, None, &[name]).await;
        }
    };
    let receiving = async {
        let mut came = Vec::new();
        while came.len() < names.len() {
            match reader.next(2).now_or_never() {
                None => tokio::task::yield_now().await,
                Some(entries) => {
                    for entry in entries.unwrap() {
                        reader.settle(entry.ticket);
                        came.push(text(&entry));
                    }
                }
            }
        }
        came
    };
    let ((), came) = tokio::join!(publishing, in_time(receiving));
    assert_eq!(came, names);
    assert_eq!(reader.open_messages(), 0);
}

async fn destinations_know_nothing_of_each_other<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let (mut stuck, mut fast) = (open(store, "stuck").await, open(store, "fast").await);
    take(&mut stuck, 2).await;
    assert_eq!(settle_until(&mut fast, "b").await, ["a", "b"]);
    fast.close().await.unwrap();
    stuck.close().await.unwrap();
    let mut stuck = open(store, "stuck").await;
    assert_eq!(settle_until(&mut stuck, "b").await, ["a", "b"]);
}

cases! {
    with a store:
    all: [
        the_lowest_unfinished_message_holds_the_cursor,
        a_crash_redelivers_exactly_what_was_not_recorded,
        messages_of_a_key_go_one_at_a_time_and_in_order,
        one_hot_key_does_not_stop_a_page,
        a_retried_message_holds_its_key_and_no_other,
        next_is_cancel_safe,
        destinations_know_nothing_of_each_other,
    ]
}
