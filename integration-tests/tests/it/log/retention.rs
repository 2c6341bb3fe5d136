//! What is purged and what is kept.
use crate::support::{
    cases::cases,
    databases::PgPoolOptions,
    databases::Postgres,
    log::{Names, draft, open, open_with, publish, publish_all, run, run_until, settle_until, take, text},
    wait::in_time,
};
use sqlx::AssertSqlSafe;
use std::time::Duration;
use twinbox::{
    Store,
    log::{Log, ReaderOptions, parking::ParkedState},
    ops::Ops,
};

async fn left<DB: Names>(store: &Store<DB>) -> i64 {
    let mut conn = store.pool().acquire().await.unwrap();
    let count = AssertSqlSafe(format!("SELECT count(*) FROM {}", DB::OUTBOX));
    sqlx::query_scalar::<DB, i64>(count).fetch_one(&mut *conn).await.unwrap()
}

/// Settles everything up to `last` and waits until the row says so.
async fn settle<DB: Names>(store: &Store<DB>, destination: &str, last: &str) {
    let mut reader = open(store, destination).await;
    settle_until(&mut reader, last).await;
    run_until(store, &mut reader, destination, |row| row.p > 0 && row.p == row.w).await;
    reader.close().await.unwrap();
}

async fn purged<DB: Names>(store: &Store<DB>, keep: Duration) -> (u64, Option<String>) {
    let purged = Log::new(store).purge(keep).await.unwrap();
    (purged.messages, purged.slowest_reader)
}

const NOTHING: (u64, Option<String>) = (0, None);

async fn only_what_is_old_and_settled_by_all_goes<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    settle(store, "slow", "b").await;
    settle(store, "quick", "b").await;
    publish(store, None, &["c", "d"]).await;
    settle(store, "quick", "d").await;
    assert_eq!(purged(store, Duration::from_secs(3600)).await, NOTHING);
    let (messages, held_by) = purged(store, Duration::ZERO).await;
    assert_eq!((messages, held_by.as_deref(), left(store).await), (2, Some("slow"), 2));
    settle(store, "slow", "d").await;
    let (messages, held_by) = purged(store, Duration::ZERO).await;
    // The newest stays where it says how far the log reaches.
    assert_eq!(messages, if DB::MODULE == "postgres" { 2 } else { 1 });
    assert_eq!(held_by, None);

    publish(store, None, &["e"]).await;
    let mut reader = open(store, "quick").await;
    assert_eq!(settle_until(&mut reader, "e").await, ["e"], "readers go on behind what is gone");
}

async fn without_a_reader_nothing_goes<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    assert_eq!(purged(store, Duration::ZERO).await, NOTHING);
    assert_eq!(left(store).await, 2);
}

async fn what_is_parked_stays<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b", "c"]).await;
    let mut reader = open_with(store, "d", ReaderOptions::new().parking(true)).await;
    for entry in take(&mut reader, 3).await {
        match text(&entry).as_str() {
            "b" => reader.park(entry, ParkedState::Dead, 1, "test.refused"),
            _ => reader.settle(entry.ticket),
        }
    }
    run_until(store, &mut reader, "d", |row| row.p > 0 && row.p == row.w).await;
    reader.close().await.unwrap();
    publish(store, None, &["newest"]).await;
    assert_eq!(purged(store, Duration::ZERO).await.0, 2);
    let parked = Ops::new(store).parked_messages("d", 10).await.unwrap();
    assert_eq!(parked[0].message.payload, "b");
}

/// By age alone it would be lost: its position is the lowest, and its transaction the oldest.
async fn a_late_commit_outlives_what_came_before_it(store: &Store<Postgres>) {
    let mut late = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut late, draft(None, "late")).await.unwrap();
    publish(store, None, &["a", "b"]).await;
    settle(store, "d", "b").await;
    late.commit().await.unwrap();
    assert_eq!(purged(store, Duration::ZERO).await.0, 2);
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "late").await, ["late"]);
}

/// More than one statement deletes.
async fn all_of_many_goes<DB: Names>(store: &Store<DB>) {
    let drafts: Vec<_> = (0..1000).map(|n| draft(None, &n.to_string())).collect();
    publish_all(store, drafts.clone()).await;
    publish_all(store, drafts).await;
    publish(store, None, &["last", "newest"]).await;
    settle(store, "d", "newest").await;
    let kept = if DB::MODULE == "postgres" { 0 } else { 1 };
    assert_eq!(purged(store, Duration::ZERO).await.0, 2002 - kept);
}

/// Each locks many rows in one transaction, and rows lie in another order than their positions. Two that plan
/// otherwise would wait for each other.
async fn a_purge_and_a_redaction_take_turns(store: &Store<Postgres>) {
    const MESSAGES: i64 = 20_000;
    let sql = format!(
        "INSERT INTO twinbox.outbox (position, type, key, payload) OVERRIDING SYSTEM VALUE
        SELECT n, 'test.happened', 'k', 'x' FROM generate_series({MESSAGES}, 1, -1) n"
    );
    run(store, &sql).await.unwrap();
    run(store, &format!("SELECT setval(pg_get_serial_sequence('twinbox.outbox', 'position'), {MESSAGES})"))
        .await
        .unwrap();
    let mut reader = open_with(store, "d", ReaderOptions::new()).await;
    let mut settled = 0;
    while settled < MESSAGES {
        for entry in in_time(reader.next(2000)).await.unwrap() {
            reader.settle(entry.ticket);
            settled += 1;
        }
    }
    run_until(store, &mut reader, "d", |row| row.p > 0 && row.p == row.w).await;
    reader.close().await.unwrap();
    let with = async |settings: [(&str, &str); 2]| {
        let options = (*store.pool().connect_options()).clone().options(settings);
        Store::new(PgPoolOptions::new().connect_with(options).await.unwrap(), store.service()).unwrap()
    };
    let by_heap = with([("enable_indexscan", "off"), ("enable_indexonlyscan", "off")]).await;
    let by_index = with([("enable_bitmapscan", "off"), ("enable_seqscan", "off")]).await;
    let (purged, redacted) = in_time(async {
        let (log, ops) = (Log::new(&by_heap), Ops::new(&by_index));
        tokio::join!(log.purge(Duration::ZERO), ops.redact("k"))
    })
    .await;
    redacted.unwrap();
    assert_eq!(purged.unwrap().messages, u64::try_from(MESSAGES).unwrap());
}

cases! {
    with a store:
    all: [
        only_what_is_old_and_settled_by_all_goes,
        without_a_reader_nothing_goes,
        what_is_parked_stays,
        all_of_many_goes,
    ]
    postgres: [
        a_purge_and_a_redaction_take_turns,
        a_late_commit_outlives_what_came_before_it,
    ]
}
