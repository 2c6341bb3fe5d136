//! Where a cursor starts.
use super::*;
use twinbox::{ErrorKind, Timestamp, log::Start};

fn starting(start: Start) -> ReaderOptions {
    ReaderOptions::new().start(start)
}

pub(super) async fn a_new_cursor_starts_at_the_beginning<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "b").await, ["a", "b"]);
}

pub(super) async fn now_is_after_everything_committed<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let mut reader = open_with(store, "d", starting(Start::Now)).await;
    publish(store, None, &["c"]).await;
    assert_eq!(settle_until(&mut reader, "c").await, ["c"]);
}

pub(super) async fn a_time_is_there_or_before<DB: Names>(store: &Store<DB>) {
    let mut first = open(store, "first").await;
    publish(store, None, &["a"]).await;
    // Postgres knows when the windows of its readers ended.
    let read = now(store).await;
    settle_until(&mut first, "a").await;
    let mut at = now(store).await;
    while at <= read + 2_000 {
        at = now(store).await;
    }
    publish(store, None, &["b", "c"]).await;
    settle_until(&mut first, "c").await;
    let mut reader = open_with(store, "d", starting(Start::At(Timestamp::from_micros(at)))).await;
    assert_eq!(settle_until(&mut reader, "c").await, ["b", "c"]);
}

pub(super) async fn a_time_before_everything_is_the_beginning<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let mut reader = open_with(store, "d", starting(Start::At(Timestamp::from_micros(1)))).await;
    assert_eq!(settle_until(&mut reader, "b").await, ["a", "b"]);
}

pub(super) async fn the_start_is_only_for_a_new_cursor<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let mut reader = open(store, "d").await;
    settle_until(&mut reader, "a").await;
    reader.close().await.unwrap();
    publish(store, None, &["b"]).await;
    let mut reader = open_with(store, "d", starting(Start::Now)).await;
    assert_eq!(settle_until(&mut reader, "b").await, ["b"]);
}

pub(super) async fn readers_that_start_now_together_all_start<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let opening = (0..40).map(|n| async move {
        open_with(store, &format!("d{n}"), starting(Start::Now)).await.close().await.unwrap();
    });
    futures::future::join_all(opening).await;
    publish(store, None, &["b"]).await;
    for n in 0..40 {
        let mut reader = open(store, &format!("d{n}")).await;
        assert_eq!(settle_until(&mut reader, "b").await, ["b"]);
    }
}

pub(super) async fn other_partitions_are_refused_with_the_steps_to_take<DB: Names>(store: &Store<DB>) {
    let asking =
        |partitions| Reader::open(store, "d", Uuid::now_v7(), ReaderOptions::new().partitions(partitions));
    asking(Some(16)).await.unwrap().unwrap().close().await.unwrap();
    for other in [Some(32), None] {
        let error = asking(other).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        for step in ["\"d\"", "16", "Drain it", "stop every consumer", "another id", "subject prefix"] {
            assert!(error.to_string().contains(step), "{step:?} is missing: {error}");
        }
    }
    asking(Some(16)).await.unwrap().unwrap();
}

pub(super) async fn a_destination_id_that_cannot_be_kept_is_refused<DB: Names>(store: &Store<DB>) {
    let long = "d".repeat(twinbox::limits::NAME_BYTES_MAX);
    for bad in ["", &format!("{long}d")] {
        let error = Reader::open(store, bad, Uuid::now_v7(), ReaderOptions::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("destination id"), "{error}");
    }
    open(store, &long).await;
}
