//! Who may read: leases, and writes of the cursor that come too late.
use crate::support::{
    cases::cases,
    log::{Names, now, open, open_with, publish, row, run, run_until, settle_until, take, take_over, texts},
    wait::{self, Pause, in_time},
};
use sqlx::AssertSqlSafe;
use std::time::{Duration, Instant};
use twinbox::{
    Dialect, ErrorKind, Store, Timestamp,
    log::{Reader, ReaderOptions},
};
use uuid::Uuid;

const SHORT: Duration = Duration::from_secs(1);

/// One that does not end while a test runs.
fn long() -> ReaderOptions {
    ReaderOptions::new().lease(Duration::from_secs(3600))
}

/// Ends the lease, as time does.
async fn end_lease<DB: Names>(store: &Store<DB>) {
    run(store, &format!("UPDATE {} SET lease_until = {}", DB::CURSORS, DB::LONG_AGO)).await.unwrap();
}

/// What another process gets.
async fn try_open<DB: Dialect>(store: &Store<DB>) -> Option<Reader<DB>> {
    Reader::open(store, "d", Uuid::now_v7(), long()).await.unwrap()
}

async fn a_second_reader_gets_nothing<DB: Names>(store: &Store<DB>) {
    let first = open_with(store, "d", long()).await;
    assert!(try_open(store).await.is_none());
    open(store, "another destination").await;
    drop(first);
    assert!(try_open(store).await.is_none(), "a dropped reader may still have a publish under way");
}

async fn a_released_lease_is_taken_at_once<DB: Names>(store: &Store<DB>) {
    let first = open_with(store, "d", long()).await;
    first.close().await.unwrap();
    assert!(try_open(store).await.is_some());
}

async fn the_same_owner_takes_over_at_once<DB: Names>(store: &Store<DB>) {
    let owner = Uuid::now_v7();
    publish(store, None, &["a"]).await;
    let mut first = Reader::open(store, "d", owner, long()).await.unwrap().unwrap();
    let entry = take(&mut first, 1).await.remove(0);
    let mut second = Reader::open(store, "d", owner, long()).await.unwrap().unwrap();
    assert_eq!(settle_until(&mut second, "a").await, ["a"]);
    first.settle(entry.ticket);
    let lost = in_time(first.next(0)).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::LeaseLost);
}

async fn a_reader_that_runs_keeps_its_lease<DB: Names>(store: &Store<DB>) {
    const LEASE_SECONDS: i64 = 10;
    // A lease that ends so late was renewed twice: it is renewed four times as often as it ends.
    let later = Timestamp::from_micros(now(store).await + LEASE_SECONDS * 1_375_000);
    let renewed = format!("SELECT count(*) FROM {} WHERE lease_until > {}", DB::CURSORS, DB::time(later));
    let renewed = async || {
        let count = sqlx::query_scalar::<DB, i64>(AssertSqlSafe(renewed.clone()));
        count.fetch_one(&mut *store.pool().acquire().await.unwrap()).await.unwrap() > 0
    };
    let lease = Duration::from_secs(LEASE_SECONDS.unsigned_abs());
    let mut reader = open_with(store, "d", ReaderOptions::new().lease(lease)).await;
    let others = async {
        while !renewed().await {
            assert!(try_open(store).await.is_none());
            // Nothing happens while the lease is held, so there is no signal to wait for.
            wait::pause(Pause::Look, Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = in_time(others) => {}
        ended = reader.next(1) => panic!("{ended:?}"),
    }
}

async fn a_lease_is_not_taken_before_its_end<DB: Names>(store: &Store<DB>) {
    let begun = Instant::now();
    drop(open_with(store, "d", ReaderOptions::new().lease(SHORT)).await);
    take_over(store, "d", long()).await;
    assert!(begun.elapsed() >= SHORT);
}

/// The pieces of a fence: the old reader learns of it, its write changes nothing, and what it settled after
/// it is handed out again.
async fn an_expired_lease_is_taken_over<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let mut old = open_with(store, "d", long()).await;
    let entries = take(&mut old, 2).await;

    end_lease(store).await;
    let mut new = open_with(store, "d", long()).await;
    let taken = row(store, "d").await;
    assert_eq!(taken.epoch, 2);

    for entry in &entries {
        old.settle(entry.ticket);
    }
    let lost = in_time(old.next(1)).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::LeaseLost);
    assert!(lost.is_transient());
    assert_eq!(row(store, "d").await, taken, "the late write changed nothing");

    let again = take(&mut new, 2).await;
    assert_eq!(texts(&again), ["a", "b"]);
    assert!(again.iter().all(|entry| entry.ticket.may_be_repeated));
}

async fn the_reader_before_a_takeover_cannot_close<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let mut old = open_with(store, "d", long()).await;
    let entries = take(&mut old, 1).await;
    end_lease(store).await;
    let mut new = open(store, "d").await;
    let taken = row(store, "d").await;
    old.settle(entries[0].ticket);
    assert_eq!(old.close().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(row(store, "d").await, taken);

    // One that settled nothing has nothing to lose, and does not end a lease that is not its own.
    end_lease(store).await;
    let idle = open_with(store, "d", long()).await;
    let lost = in_time(new.next(0)).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::LeaseLost);
    new.close().await.unwrap();
    assert!(try_open(store).await.is_none());
    drop(idle);
}

/// The epoch is not enough: a write that was sent twice, or by a twin, must not move the cursor back.
async fn a_cursor_that_moved_is_not_overwritten<DB: Names>(store: &Store<DB>) {
    for moved in ["position = position + 1", "w = w + 1", "p = p - 1"] {
        // All that there is, for what is read can be handed out once more.
        publish(store, None, &[moved]).await;
        let mut reader = open(store, "d").await;
        settle_until(&mut reader, moved).await;
        run_until(store, &mut reader, "d", |row| row.p > 0).await;
        run(store, &format!("UPDATE {} SET {moved}", DB::CURSORS)).await.unwrap();
        let before = row(store, "d").await;
        let lost = in_time(reader.next(1)).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::LeaseLost, "{moved}");
        assert_eq!(row(store, "d").await, before, "{moved}");
        run(store, &format!("DELETE FROM {}", DB::CURSORS)).await.unwrap();
    }
}

async fn nothing_is_handed_out_in_the_time_held_back<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let lease = 10 * SHORT;
    let mut reader = open_with(store, "d", ReaderOptions::new().lease(lease)).await;
    reader.stop_before_lease_end(lease);
    // It has been read and is not handed out.
    while reader.open_messages() == 0 {
        let held = tokio::time::timeout(SHORT, reader.next(1)).await;
        assert!(held.is_err(), "a publish could outlast the lease: {held:?}");
    }
    reader.stop_before_lease_end(lease / 4);
    assert_eq!(texts(&take(&mut reader, 1).await), ["a"]);
}

cases! {
    with a store:
    all: [
        a_second_reader_gets_nothing,
        a_released_lease_is_taken_at_once,
        the_same_owner_takes_over_at_once,
        a_reader_that_runs_keeps_its_lease,
        a_lease_is_not_taken_before_its_end,
        an_expired_lease_is_taken_over,
        the_reader_before_a_takeover_cannot_close,
        a_cursor_that_moved_is_not_overwritten,
        nothing_is_handed_out_in_the_time_held_back,
    ]
}
