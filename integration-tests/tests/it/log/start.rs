//! Where a cursor starts.
use crate::support::{
    cases::cases,
    databases::Postgres,
    log::{Names, now, open, open_with, publish, row, run, run_until, settle_until},
    wait::{eventually, in_time},
};
use sqlx::AssertSqlSafe;
use twinbox::{
    ErrorKind, Store, Timestamp,
    log::{Reader, ReaderOptions, StartPosition},
};
use uuid::Uuid;

fn starting(start: StartPosition) -> ReaderOptions {
    ReaderOptions::new().start(start)
}

async fn a_new_cursor_starts_at_the_beginning<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "b").await, ["a", "b"]);
}

async fn now_is_after_everything_committed<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let mut reader = open_with(store, "d", starting(StartPosition::Now)).await;
    publish(store, None, &["c"]).await;
    assert_eq!(settle_until(&mut reader, "c").await, ["c"]);
}

async fn a_time_is_there_or_before<DB: Names>(store: &Store<DB>) {
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
    let mut reader = open_with(store, "d", starting(StartPosition::At(Timestamp::from_micros(at)))).await;
    assert_eq!(settle_until(&mut reader, "c").await, ["b", "c"]);
}

async fn a_time_before_everything_is_the_beginning<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let mut reader = open_with(store, "d", starting(StartPosition::At(Timestamp::from_micros(1)))).await;
    assert_eq!(settle_until(&mut reader, "b").await, ["a", "b"]);
}

async fn the_start_is_only_for_a_new_cursor<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let mut reader = open(store, "d").await;
    settle_until(&mut reader, "a").await;
    reader.close().await.unwrap();
    publish(store, None, &["b"]).await;
    let mut reader = open_with(store, "d", starting(StartPosition::Now)).await;
    assert_eq!(settle_until(&mut reader, "b").await, ["b"]);
}

async fn readers_that_start_now_together_all_start<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let opening = (0..40).map(|n| async move {
        open_with(store, &format!("d{n}"), starting(StartPosition::Now)).await.close().await.unwrap();
    });
    futures::future::join_all(opening).await;
    publish(store, None, &["b"]).await;
    for n in 0..40 {
        let mut reader = open(store, &format!("d{n}")).await;
        assert_eq!(settle_until(&mut reader, "b").await, ["b"]);
    }
}

async fn other_partitions_are_refused_with_the_steps_to_take<DB: Names>(store: &Store<DB>) {
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

async fn a_destination_id_that_cannot_be_kept_is_refused<DB: Names>(store: &Store<DB>) {
    let long = "d".repeat(twinbox::limits::NAME_BYTES_MAX);
    for bad in ["", &format!("{long}d")] {
        let error = Reader::open(store, bad, Uuid::now_v7(), ReaderOptions::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("destination id"), "{error}");
    }
    open(store, &long).await;
}

/// Ticks are thinned and purged at any time, also between finding the tick of a time and having a cursor that
/// names it.
async fn a_tick_that_a_new_cursor_starts_at_is_kept(store: &Store<Postgres>) {
    let mut first = open(store, "first").await;
    publish(store, None, &["a"]).await;
    settle_until(&mut first, "a").await;
    run_until(store, &mut first, "first", |row| row.p > 0 && row.p == row.w).await;
    run(store, "UPDATE twinbox.ticks SET taken_at = taken_at - interval '1 hour' WHERE id > 0")
        .await
        .unwrap();
    publish(store, None, &["b"]).await;
    settle_until(&mut first, "b").await;
    let reached = row(store, "first").await;
    run_until(store, &mut first, "first", |row| row.p > reached.p && row.p == row.w).await;
    first.close().await.unwrap();
    let half_an_hour_ago = Timestamp::from_micros(now(store).await - 1_800_000_000);

    // The cursor cannot be written yet.
    let mut blocker = store.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE twinbox.cursors IN SHARE MODE").execute(&mut *blocker).await.unwrap();
    let opening = tokio::spawn({
        let store = (*store).clone();
        async move {
            // As a relay does: it tries again after a lock that it waited for too long.
            loop {
                let options = starting(StartPosition::At(half_an_hour_ago));
                match Reader::open(&store, "d", Uuid::now_v7(), options).await {
                    Err(error) if error.is_transient() => {}
                    opened => return opened.unwrap().expect("nobody has the lease"),
                }
            }
        }
    });
    let waits = async |what: &str| {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = \
             'Lock' \
             AND query LIKE '{what}%'"
        );
        let count = sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(store.pool()).await.unwrap();
        (count > 0).then_some(())
    };
    eventually(async || waits("INSERT INTO \"twinbox\".cursors").await).await;
    // As whoever thins them does.
    let thin = "DELETE FROM twinbox.ticks t WHERE id > 0 AND id < (SELECT max(id) FROM twinbox.ticks) \
        AND NOT EXISTS (SELECT FROM twinbox.cursors c WHERE t.id IN (c.p, c.w))";
    let thinning = tokio::spawn({
        let store = (*store).clone();
        async move { run(&store, thin).await.unwrap() }
    });
    eventually(async || match thinning.is_finished() {
        true => Some(()),
        false => waits("DELETE FROM twinbox.ticks").await,
    })
    .await;
    blocker.rollback().await.unwrap();
    in_time(thinning).await.unwrap();
    let mut reader = in_time(opening).await.unwrap();
    publish(store, None, &["c"]).await;
    let came = settle_until(&mut reader, "c").await;
    assert!(came.ends_with(&["b".to_owned(), "c".to_owned()]), "{came:?}");
}

cases! {
    with a store:
    all: [
        a_new_cursor_starts_at_the_beginning,
        now_is_after_everything_committed,
        a_time_is_there_or_before,
        a_time_before_everything_is_the_beginning,
        the_start_is_only_for_a_new_cursor,
        readers_that_start_now_together_all_start,
        other_partitions_are_refused_with_the_steps_to_take,
        a_destination_id_that_cannot_be_kept_is_refused,
    ]
    postgres: [
        a_tick_that_a_new_cursor_starts_at_is_kept,
    ]
}
