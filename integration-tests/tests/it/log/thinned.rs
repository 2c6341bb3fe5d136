//! Ticks do not pile up while a destination is down, nor keep it from coming back.
use crate::support::{
    cases::cases,
    database,
    log::{Names, open, open_with, publish, run, run_until, settle_until},
    long,
    postgres::store_with,
    wait::{PATIENCE, eventually, in_time},
};
use sqlx::{AssertSqlSafe, Postgres};
use std::time::Duration;
use twinbox::{Store, log::ReaderOptions};

async fn number(store: &Store<Postgres>, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap()
}

/// A day of ticks, of which the real ones are the last. With `--long` they are as many as a destination makes
/// in ten minutes under flow, and more than are deleted at once.
#[tokio::test(flavor = "multi_thread")]
async fn ticks_of_a_day_are_few_and_a_destination_that_was_down_goes_on() {
    let store = database::postgres().await;
    publish(&store, Some("k"), &["before"]).await;
    let mut down = open(&store, "down").await;
    settle_until(&mut down, "before").await;
    run_until(&store, &mut down, "down", |row| row.p > 0 && row.p == row.w).await;
    drop(down);
    let named = number(&store, "SELECT p FROM twinbox.cursors WHERE destination = 'down'").await;
    // For each of ten messages, and their ages those of a day.
    let ticks: i64 = long::or(15_000, 11_000);
    for _ in 0..10 {
        publish(&store, Some("k"), &["while it is down"]).await;
        let more = format!(
            "INSERT INTO twinbox.ticks (id, snapshot, taken_at)
            SELECT newest + n, pg_current_snapshot(), clock_timestamp() - interval '1 second'
            FROM (SELECT max(id) AS newest FROM twinbox.ticks) t, generate_series(1, {ticks}) n"
        );
        run(&store, &more).await.unwrap();
    }
    let ages = format!(
        "UPDATE twinbox.ticks SET taken_at = clock_timestamp() - (newest - id) * interval '{} milliseconds'
        FROM (SELECT max(id) AS newest FROM twinbox.ticks) t WHERE id > 0",
        8_640_000 / ticks
    );
    run(&store, &ages).await.unwrap();
    assert!(number(&store, "SELECT count(*) FROM twinbox.ticks").await > 10 * ticks);
    // The real task, run by a healthy reader in another process, which has not just run it.
    let elsewhere = Store::new(store.pool().clone(), database::SERVICE).unwrap();
    let mut healthy = open(&elsewhere, "healthy").await;
    settle_until(&mut healthy, "while it is down").await;
    let few = async {
        loop {
            let _ = tokio::time::timeout(Duration::from_millis(20), healthy.next(10)).await;
            if number(&store, "SELECT count(*) FROM twinbox.ticks").await < 10_000 {
                return;
            }
        }
    };
    in_time(few).await;
    let kept = sqlx::query_scalar::<_, i64>("SELECT id FROM twinbox.ticks WHERE id = $1").bind(named);
    assert_eq!(kept.fetch_optional(store.pool()).await.unwrap(), Some(named), "a cursor names it");
    publish(&store, Some("k"), &["last"]).await;
    run(&store, "UPDATE twinbox.cursors SET lease_until = 'epoch' WHERE destination = 'down'").await.unwrap();
    let mut down = open(&store, "down").await;
    let came = tokio::time::timeout(PATIENCE, settle_until(&mut down, "last")).await;
    let came = came.expect("it does not read through all ticks");
    assert_eq!(came.len(), 11, "{came:?}");
}

/// To look for the bounds of all that it has missed takes longer than a statement of the application may.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_far_behind_begins_whatever_the_statement_timeout() {
    let store = database::postgres().await;
    publish(&store, Some("k"), &["a"]).await;
    let mut down = open(&store, "down").await;
    settle_until(&mut down, "a").await;
    run_until(&store, &mut down, "down", |row| row.p > 0 && row.p == row.w).await;
    drop(down);
    publish(&store, Some("k"), &["b"]).await;
    // It was about to read a window over more ticks than one that is not far behind has.
    sqlx::raw_sql(
        "INSERT INTO twinbox.ticks (id, snapshot, taken_at)
            SELECT max(id) + 5000, pg_current_snapshot(), clock_timestamp() FROM twinbox.ticks;
        UPDATE twinbox.cursors SET w = (SELECT max(id) FROM twinbox.ticks), lease_until = now()
            WHERE destination = 'down'",
    )
    .execute(store.pool())
    .await
    .unwrap();
    let impatient = store_with(store.url(), &[("statement_timeout", "1s")]).await;
    let mut down = open(&impatient, "down").await;
    let mut lock = store.pool().begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE twinbox.outbox").execute(&mut *lock).await.unwrap();
    let looking = tokio::spawn(async move { settle_until(&mut down, "b").await });
    let long = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '2 seconds'";
    eventually(async || {
        assert!(!looking.is_finished(), "it has given up");
        (number(&store, long).await > 0).then_some(())
    })
    .await;
    lock.rollback().await.unwrap();
    assert_eq!(in_time(looking).await.unwrap(), ["b"]);
}

/// A lease that was given before the clock of the database stepped back.
async fn a_lease_from_the_future_has_ended<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let options = ReaderOptions::new().lease(Duration::from_secs(60));
    let first = open_with(store, "d", options.clone()).await;
    drop(first);
    let later = DB::earlier("lease_until", -3600);
    let mut conn = store.pool().acquire().await.unwrap();
    let ahead = AssertSqlSafe(format!("UPDATE {} SET lease_until = {later}", DB::CURSORS));
    sqlx::query(ahead).execute(&mut *conn).await.unwrap();
    drop(conn);
    let mut second = open_with(store, "d", options).await;
    assert_eq!(settle_until(&mut second, "a").await, ["a"]);
}

cases! {
    with a store:
    all: [
        a_lease_from_the_future_has_ended,
    ]
}
