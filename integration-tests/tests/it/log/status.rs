//! What the database tells about readers, and holding one back.
use crate::support::{
    cases::cases,
    log::{Names, open, open_with, publish, row, run_until, take, texts},
    wait::in_time,
};
use std::time::Duration;
use twinbox::{
    Dialect, Store,
    log::{Reader, ReaderOptions, parking::ParkedState},
    ops::{Ops, ReaderStatus},
};

async fn status<DB: Names>(store: &Store<DB>) -> ReaderStatus {
    let mut readers = Ops::new(store).readers().await.unwrap();
    assert_eq!(readers.len(), 1);
    readers.remove(0)
}

/// What is not settled is counted from the start, from within a window and behind one.
async fn a_backlog_is_counted<DB: Names>(store: &Store<DB>) {
    let mut reader = open(store, "d").await;
    assert_eq!(status(store).await.backlog, 0);
    assert_eq!(status(store).await.oldest, Duration::ZERO);
    publish(store, None, &["a"]).await;
    publish(store, None, &["b", "c"]).await;
    assert_eq!(status(store).await.backlog, 3);
    assert!(status(store).await.oldest > Duration::ZERO);

    let mut taken = take(&mut reader, 3).await;
    reader.settle(taken.remove(0).ticket);
    run_until(store, &mut reader, "d", |row| row.position > 0).await;
    assert_eq!(status(store).await.backlog, 2);
    taken.into_iter().for_each(|entry| reader.settle(entry.ticket));
    run_until(store, &mut reader, "d", |row| row.p == row.w && row.p > 0).await;
    assert_eq!(status(store).await.backlog, 0);
    publish(store, None, &["d"]).await;
    assert_eq!(status(store).await.backlog, 1);
}

async fn a_lease_is_a_heartbeat<DB: Names>(store: &Store<DB>) {
    let reader = open(store, "d").await;
    let left = status(store).await.lease.unwrap();
    assert!(left > Duration::ZERO && left <= Duration::from_secs(4), "{left:?}");
    reader.close().await.unwrap();
    assert_eq!(status(store).await.lease, None);
}

async fn what_is_parked_is_counted_by_state<DB: Names>(store: &Store<DB>) {
    let mut reader = open_with(store, "d", ReaderOptions::new().parking(true)).await;
    publish(store, None, &["a", "b", "c", "d"]).await;
    let states = [
        ParkedState::Dead,
        ParkedState::DeadHoldingKey,
        ParkedState::Blocking,
        ParkedState::Waiting(Duration::from_secs(3600)),
    ];
    for (entry, state) in take(&mut reader, 4).await.into_iter().zip(states) {
        reader.park(entry, state, 1, "test");
    }
    run_until(store, &mut reader, "d", |row| row.p == row.w && row.p > 0).await;
    let status = status(store).await;
    assert_eq!((status.waiting, status.dead_letters, status.blocking), (1, 2, 1));
}

/// Runs the reader until it has read a message. It hands out none.
async fn reads_and_keeps_back<DB: Dialect>(reader: &mut Reader<DB>) {
    in_time(async {
        while reader.open_messages() == 0 {
            tokio::time::timeout(Duration::from_millis(50), reader.next(1))
                .await
                .expect_err("nothing is handed out");
        }
    })
    .await;
}

/// The owner notices, nothing is handed out, the lease is kept, and it goes on where it was.
async fn a_breaker_opened_by_hand_holds_everything<DB: Names>(store: &Store<DB>) {
    let unknown = Ops::new(store).pause_destination("d", "a bad deploy").await.unwrap_err();
    assert!(unknown.to_string().contains("\"d\""), "{unknown}");
    let mut reader = open(store, "d").await;
    let epoch = row(store, "d").await.epoch;
    Ops::new(store).pause_destination("d", "a bad deploy").await.unwrap();
    assert_eq!(status(store).await.pause_reason.as_deref(), Some("a bad deploy"));
    while reader.pause_reason().is_none() {
        let _ = tokio::time::timeout(Duration::from_millis(20), reader.next(0)).await;
    }
    publish(store, None, &["a"]).await;
    reads_and_keeps_back(&mut reader).await;
    reader.close().await.unwrap();

    let mut reader = open(store, "d").await;
    assert_eq!(reader.pause_reason(), Some("a bad deploy"));
    reads_and_keeps_back(&mut reader).await;
    assert_eq!(row(store, "d").await.epoch, epoch + 1, "nobody else took over meanwhile");
    Ops::new(store).resume_destination("d").await.unwrap();
    assert_eq!(texts(&take(&mut reader, 1).await), ["a"]);
}

cases! {
    with a store:
    all: [
        a_backlog_is_counted,
        a_lease_is_a_heartbeat,
        what_is_parked_is_counted_by_state,
        a_breaker_opened_by_hand_holds_everything,
    ]
}
