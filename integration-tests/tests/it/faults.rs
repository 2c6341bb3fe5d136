//! Faults that once stopped or skipped something, each by name.
use crate::support::{database, database::owner_of, wait::eventually};
use serde::{Deserialize, Deserializer, Serialize};
use sqlx::Postgres;
use std::time::Duration;
use tokio::time::timeout;
use twinbox::{
    Delivery, DeliveryOutcome, Draft, ErrorKind, Event, HandlerResult, Store, Tx, event_handler,
    log::{Reader, ReaderOptions},
};
use twinbox_testkit::Harness;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Serialize, Event)]
#[event(type = "tests.explosive", version = 1)]
struct Explosive {
    n: i64,
}

impl<'de> Deserialize<'de> for Explosive {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("boom")
    }
}

#[event_handler(consumer = "tests.explosive", max_attempts = 2)]
async fn explosive(_: &mut Tx<'_, Postgres>, event: Delivery<Explosive>) -> HandlerResult {
    unreachable!("{} cannot be read", event.n)
}

/// Faults 23 and 45
#[tokio::test]
async fn a_message_whose_reading_panics_is_a_failed_attempt() {
    let store = database::postgres().await;
    let harness = Harness::<Postgres, ()>::new(&store, ());
    let message = harness.message(Explosive { n: 1 });
    let first = harness.deliver::<explosive>(&message).await;
    assert!(
        matches!(&first, DeliveryOutcome::Retried { counted: true, error, .. } if error.contains("boom")),
        "{first:?}"
    );
    let second = harness.deliver::<explosive>(&message).await;
    assert!(matches!(second, DeliveryOutcome::DeadLettered { .. }), "{second:?}");
}

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "tests.blocked", version = 1)]
struct Blocked {
    n: i64,
}

#[event_handler(consumer = "tests.blocked", timeout = "2s")]
async fn blocked(tx: &mut Tx<'_, Postgres>, event: Delivery<Blocked>) -> HandlerResult {
    sqlx::query("UPDATE held SET n = $1").bind(event.n).execute(&mut **tx).await?;
    Ok(())
}

/// The statement goes on in the database until the lock is free; the delivery does not wait for it.
#[tokio::test]
async fn a_handler_that_is_stuck_on_a_lock_is_given_up() {
    let store = database::postgres().await;
    sqlx::raw_sql("CREATE TABLE held (n bigint); INSERT INTO held VALUES (0)")
        .execute(store.pool())
        .await
        .unwrap();
    let mut holder = store.begin().await.unwrap();
    sqlx::raw_sql("UPDATE held SET n = 1").execute(&mut *holder).await.unwrap();
    let harness = Harness::<Postgres, ()>::new(&store, ());
    let message = harness.message(Blocked { n: 2 });
    let outcome = timeout(PATIENCE, harness.deliver::<blocked>(&message)).await.expect("it is given up");
    assert!(
        matches!(&outcome, DeliveryOutcome::Retried { error, .. } if error.contains("longer than")),
        "{outcome:?}"
    );
    holder.commit().await.unwrap();
    let again = timeout(PATIENCE, harness.deliver::<blocked>(&message)).await.unwrap();
    assert_eq!(again, DeliveryOutcome::Handled);
}

async fn open(store: &Store<Postgres>, destination: &str) -> Reader<Postgres> {
    let opened = Reader::open(store, destination, Uuid::now_v7(), ReaderOptions::new()).await.unwrap();
    opened.expect("nobody else reads")
}

async fn publish(store: &Store<Postgres>, id: &str) {
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut tx, Draft::raw("tests.tick", 1, "{}").id(id)).await.unwrap();
    tx.commit().await.unwrap();
}

/// Reads and settles the next message.
async fn next(reader: &mut Reader<Postgres>) -> String {
    let entry = timeout(PATIENCE, reader.next(1)).await.expect("a message comes").unwrap().remove(0);
    reader.settle(entry.ticket);
    entry.message.id.clone()
}

async fn age_ticks(store: &Store<Postgres>) {
    let age = "UPDATE twinbox.ticks SET taken_at = date_trunc('minute', now()) - interval '20 minutes' WHERE \
               id > 0";
    sqlx::raw_sql(age).execute(owner_of(store).pool()).await.unwrap();
}

/// Whoever is behind keeps what its row names. The newest stays, because a deleted tick whose number were
/// given out again would be another snapshot, and what lies between lost.
#[tokio::test]
async fn ticks_are_thinned_whoever_is_behind() {
    let store = database::postgres().await;
    open(&store, "behind").await.close().await.unwrap();
    let mut reader = open(&store, "ahead").await;
    for n in 0..10 {
        publish(&store, &format!("a-{n}")).await;
        assert_eq!(next(&mut reader).await, format!("a-{n}"));
    }
    reader.close().await.unwrap();
    age_ticks(&store).await;
    let young = "UPDATE twinbox.ticks SET taken_at = now() WHERE id > 6";
    sqlx::raw_sql(young).execute(store.pool()).await.unwrap();
    let named = "UPDATE twinbox.cursors SET w = 5 WHERE destination = 'behind'";
    sqlx::raw_sql(named).execute(store.pool()).await.unwrap();
    let newest: i64 =
        sqlx::query_scalar("SELECT max(id) FROM twinbox.ticks").fetch_one(store.pool()).await.unwrap();
    assert!(newest > 7);
    // Another process, whose first look thins.
    let store = Store::new(store.pool().clone(), store.service()).unwrap();
    let mut reader = open(&store, "ahead").await;
    let thinned = async {
        loop {
            let _ = timeout(Duration::from_millis(20), reader.next(1)).await;
            let left: Vec<i64> = sqlx::query_scalar("SELECT id FROM twinbox.ticks WHERE id <= 7 ORDER BY id")
                .fetch_all(store.pool())
                .await
                .unwrap();
            // The first of the old second, one that a cursor names, one that was the newest just now, and a
            // young one.
            if left == [0, 1, 5, 6, 7] {
                break;
            }
        }
    };
    timeout(PATIENCE, thinned).await.expect("they are thinned");
    publish(&store, "b").await;
    assert_eq!(next(&mut reader).await, "b");
    reader.close().await.unwrap();
}

/// A standby that is promoted can lack the newest ticks, and makes others under their numbers.
#[tokio::test]
async fn a_reader_notices_that_the_database_forgot_a_tick() {
    let store = database::postgres().await;
    let forget = "DELETE FROM twinbox.ticks WHERE id = (SELECT max(id) FROM twinbox.ticks)";
    let replace = "UPDATE twinbox.ticks SET snapshot = pg_current_snapshot() WHERE id = (SELECT max(id) FROM \
                   twinbox.ticks)";
    for (n, fault) in [forget, replace].into_iter().enumerate() {
        let destination = format!("d-{n}");
        let mut reader = open(&store, &destination).await;
        publish(&store, "a").await;
        for _ in 0..=n * 2 {
            next(&mut reader).await;
        }
        // It has read up to the newest tick.
        let newest = "SELECT p = (SELECT max(id) FROM twinbox.ticks) FROM twinbox.cursors";
        let has_read = eventually(async || {
            let has_read = sqlx::query_scalar::<_, bool>(newest).fetch_one(store.pool()).await.unwrap();
            has_read.then_some(())
        });
        tokio::select! {
            () = has_read => {}
            more = reader.next(1) => panic!("there is nothing more: {more:?}"),
        }
        sqlx::raw_sql(fault).execute(store.pool()).await.unwrap();
        publish(&store, "b").await;
        let error = timeout(PATIENCE, reader.next(1)).await.expect("it is noticed").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
        drop(reader);
        sqlx::raw_sql("DELETE FROM twinbox.cursors").execute(store.pool()).await.unwrap();
    }
}

/// A text that another program wrote is whatever bytes it was.
#[tokio::test]
async fn one_row_that_is_no_utf_8_does_not_stop_the_log_of_sqlite() {
    let store = database::sqlite().await;
    let insert = "INSERT INTO twinbox_outbox (type, key, id, payload)
        VALUES ('tests.bytes', CAST(x'6bff' AS TEXT), 'a', x'7b7d'), ('tests.bytes', NULL, 'b', x'7b7d')";
    sqlx::raw_sql(insert).execute(store.pool()).await.unwrap();
    let opened = Reader::open(&store, "d", Uuid::now_v7(), ReaderOptions::new()).await.unwrap();
    let mut reader = opened.expect("nobody else reads");
    let entries = timeout(PATIENCE, reader.next(2)).await.expect("they come").unwrap();
    let keys: Vec<_> = entries.iter().map(|entry| entry.message.key.as_deref()).collect();
    assert_eq!(keys, [Some("k\u{fffd}"), None]);
}

#[tokio::test]
async fn a_time_that_no_message_can_have_is_refused() {
    let store = database::postgres().await;
    let insert = "INSERT INTO twinbox.outbox (type, time, payload) VALUES ('a', 'infinity', '')";
    let error = sqlx::raw_sql(insert).execute(store.pool()).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "23514");
}
