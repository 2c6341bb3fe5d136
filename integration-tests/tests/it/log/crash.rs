//! A crash of Postgres gives transaction ids again that never reached the disk.
use super::*;
use sqlx::{PgPool, Postgres};
use std::collections::BTreeSet;
use twinbox_testkit::servers::{PostgresOptions, PostgresServer};

/// Nothing but a commit brings the log of transactions to disk.
fn server() -> PostgresServer {
    let options = PostgresOptions::default().set("wal_writer_delay", "10s").set("wal_level", "minimal");
    PostgresServer::start_with(options.set("max_wal_senders", "0")).unwrap()
}

async fn store(server: &PostgresServer) -> Store<Postgres> {
    Store::new(PgPool::connect(&server.url()).await.unwrap(), "test").unwrap()
}

async fn roll_back_some(store: &Store<Postgres>) {
    for _ in 0..3 {
        let mut tx = store.begin().await.unwrap();
        store.outbox().publish_draft(&mut tx, draft(None, "never")).await.unwrap();
        tx.rollback().await.unwrap();
    }
}

fn crash(server: &mut PostgresServer) {
    server.stop_immediate().unwrap();
    server.start_again().unwrap();
}

/// Fault matrix 34, with the sequence that a snapshot kept in memory does not survive: rolled-back messages,
/// an empty window, a crash, commits under the same transaction ids.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_by_a_crash_of_the_server() {
    let mut server = server();
    let store = store(&server).await;
    store.migrate().await.unwrap();
    publish(&store, None, &["first"]).await;
    let mut reader = open(&store, "d").await;
    assert_eq!(settle_until(&mut reader, "first").await, ["first"]);
    for (round, empty_window) in [true, false, true].into_iter().enumerate() {
        sqlx::raw_sql("CHECKPOINT").execute(store.pool()).await.unwrap();
        roll_back_some(&store).await;
        if empty_window {
            let tick = sqlx::query_scalar("SELECT max(id) FROM twinbox.ticks");
            let tick: i64 = tick.fetch_one(store.pool()).await.unwrap();
            run_until(&store, &mut reader, "d", |row| row.p > tick).await;
            roll_back_some(&store).await;
        }
        crash(&mut server);
        // The reader of the next round comes after the crash.
        drop(reader);
        reader = in_time(async {
            loop {
                let opened = Reader::open(&store, "d", Uuid::now_v7(), ReaderOptions::new()).await;
                if let Ok(Some(reader)) = opened {
                    return reader;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        let names = ["a", "b", "c", "d", "e"].map(|name| format!("{name}{round}"));
        publish(&store, None, &names.each_ref().map(String::as_str)).await;
        let came = settle_until(&mut reader, &names[4]).await;
        assert!(came.ends_with(&names), "lost after a crash: {came:?}");
        assert!(!came.contains(&"never".to_owned()), "{came:?}");
    }
}

/// The proof that the sequence is one that loses: it does for a reader that keeps its snapshot in memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_in_memory_loses_messages_in_a_crash() {
    let mut server = server();
    let before = store(&server).await;
    before.migrate().await.unwrap();
    publish(&before, None, &["first"]).await;
    sqlx::raw_sql("CHECKPOINT").execute(before.pool()).await.unwrap();
    roll_back_some(&before).await;
    let mut remembered = snapshot(&before).await;
    crash(&mut server);

    let after = store(&server).await;
    let names = ["a", "b", "c", "d", "e"];
    publish(&after, None, &names).await;
    let mut came = BTreeSet::new();
    for _ in 0..3 {
        let window = "SELECT convert_from(payload, 'UTF8') FROM twinbox.outbox
            WHERE (txid = ANY(ARRAY(SELECT pg_snapshot_xip($1::text::pg_snapshot)))
                OR txid >= pg_snapshot_xmax($1::text::pg_snapshot))
            AND pg_visible_in_snapshot(txid, $2::text::pg_snapshot)";
        let now = snapshot(&after).await;
        let rows = sqlx::query_scalar::<_, String>(window).bind(&remembered).bind(&now);
        came.extend(rows.fetch_all(after.pool()).await.unwrap());
        remembered = now;
    }
    assert!(came.len() < names.len(), "nothing is lost of {names:?}, so the other test proves nothing");
}

async fn snapshot(store: &Store<Postgres>) -> String {
    let sql = "SELECT pg_current_snapshot()::text";
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap()
}
