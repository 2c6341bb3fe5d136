//! A crash of Postgres gives transaction ids again that never reached the disk.
use crate::support::{
    log::{draft, publish, run_until, settle_until},
    wait::eventually,
};
use sqlx::{PgPool, Postgres};
use std::collections::BTreeSet;
use twinbox::{
    Store,
    log::{Reader, ReaderOptions},
};
use twinbox_testkit::servers::{PostgresOptions, PostgresServer};
use uuid::Uuid;

/// Only a commit brings the log of transactions to disk, as a rule, and only the test takes transaction ids.
fn server() -> PostgresServer {
    let options = PostgresOptions::default().set("wal_writer_delay", "10s").set("wal_level", "minimal");
    PostgresServer::start_with(options.set("max_wal_senders", "0").set("autovacuum", "off")).unwrap()
}

async fn store(server: &PostgresServer) -> Store<Postgres> {
    let store = Store::new(PgPool::connect(&server.url()).await.unwrap(), "test").unwrap();
    store.migrate().await.unwrap();
    store
}

async fn checkpoint(store: &Store<Postgres>) {
    sqlx::raw_sql("CHECKPOINT").execute(store.pool()).await.unwrap();
}

async fn roll_back_some(store: &Store<Postgres>) {
    for _ in 0..20 {
        let mut tx = store.begin().await.unwrap();
        store.outbox().publish_draft(&mut tx, draft(None, "never")).await.unwrap();
        tx.rollback().await.unwrap();
    }
}

/// Crashes the server and starts it again. Returns whether it gives transaction ids again that it gave
/// before.
///
/// It does not if its WAL writer, which wakes every ten seconds, or its background writer came before the
/// crash.
async fn crash(server: &mut PostgresServer, store: &Store<Postgres>) -> bool {
    let next_id = async || {
        let sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(store.pool()).await.ok()
    };
    let before = next_id().await.unwrap();
    server.stop_immediate().unwrap();
    server.start_again().unwrap();
    eventually(next_id).await < before
}

/// Fault matrix 34, with the sequence that a snapshot kept in memory does not survive: rolled-back messages,
/// an empty window, a crash, commits under the same transaction ids.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_by_a_crash_of_the_server() {
    let mut server = server();
    let store = store(&server).await;
    publish(&store, None, &["first"]).await;
    // The readers of one process, which wait for no lease.
    let owner = Uuid::now_v7();
    let open = async || Reader::open(&store, "d", owner, ReaderOptions::new()).await;
    let mut reader = open().await.unwrap().expect("nobody has the lease");
    assert_eq!(settle_until(&mut reader, "first").await, ["first"]);
    let mut with_empty_window = vec![true, false, true];
    for round in 0.. {
        let Some(&empty_window) = with_empty_window.last() else { break };
        checkpoint(&store).await;
        roll_back_some(&store).await;
        if empty_window {
            let tick = sqlx::query_scalar("SELECT max(id) FROM twinbox.ticks");
            let tick: i64 = tick.fetch_one(store.pool()).await.unwrap();
            run_until(&store, &mut reader, "d", |row| row.p > tick).await;
            roll_back_some(&store).await;
        }
        if crash(&mut server, &store).await {
            with_empty_window.pop();
        }
        // The reader of the next round comes after the crash.
        drop(reader);
        reader = eventually(async || open().await.ok().flatten()).await;
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
    let store = store(&server).await;
    publish(&store, None, &["first"]).await;
    let mut remembered = loop {
        checkpoint(&store).await;
        roll_back_some(&store).await;
        let remembered = snapshot(&store).await;
        if crash(&mut server, &store).await {
            break remembered;
        }
    };

    let names = ["a", "b", "c", "d", "e"];
    publish(&store, None, &names).await;
    let mut came = BTreeSet::new();
    for _ in 0..3 {
        let window = "SELECT convert_from(payload, 'UTF8') FROM twinbox.outbox
            WHERE (txid = ANY(ARRAY(SELECT pg_snapshot_xip($1::text::pg_snapshot)))
                OR txid >= pg_snapshot_xmax($1::text::pg_snapshot))
            AND pg_visible_in_snapshot(txid, $2::text::pg_snapshot)";
        let now = snapshot(&store).await;
        let rows = sqlx::query_scalar::<_, String>(window).bind(&remembered).bind(&now);
        came.extend(rows.fetch_all(store.pool()).await.unwrap());
        remembered = now;
    }
    assert!(came.len() < names.len(), "nothing is lost of {names:?}, so the other test proves nothing");
}

async fn snapshot(store: &Store<Postgres>) -> String {
    let sql = "SELECT pg_current_snapshot()::text";
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap()
}
