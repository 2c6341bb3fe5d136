//! The bytes that each act writes to the log of Postgres: what a replica receives, and an archive keeps.
use crate::support::{
    effects::mail,
    log::{self, open, publish_all, run_until, settle_until},
    operations::{answer, asked, key, policy},
    postgres::store_at,
    stores::{Placed, placed},
};
use sqlx::Postgres;
use std::time::Duration;
use twinbox::{
    Delivery, DeliveryOutcome, Draft, HandlerResult, Store, Tx, effects::Effects, event_handler, log::Log,
    operation::OperationStart,
};
use twinbox_testkit::{
    Harness,
    servers::{PostgresOptions, PostgresServer},
};
use uuid::Uuid;

const PAGE: &str = include_str!("../../../docs/src/cost.md");
/// How often each act is done.
const TIMES: i64 = 200;
/// A table that grows writes more now and then, and so does a test at another time.
const TOLERANCE: f64 = 0.15;

/// Images of whole pages, which the first change of each page after a checkpoint writes, are left out: their
/// number says how often there are checkpoints.
fn server() -> PostgresServer {
    let options = PostgresOptions::default().set("full_page_writes", "off").set("autovacuum", "off");
    PostgresServer::start_with(options).unwrap()
}

async fn written(store: &Store<Postgres>) -> i64 {
    let written = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    sqlx::query_scalar(written).fetch_one(store.pool()).await.unwrap()
}

/// Returns the bytes of an act.
async fn bytes(store: &Store<Postgres>, act: impl AsyncFn(i64)) -> i64 {
    act(0).await;
    let before = written(store).await;
    for n in 1..=TIMES {
        act(n).await;
    }
    (written(store).await - before) / TIMES
}

/// One of 500 bytes, with a key.
fn draft(n: i64) -> Draft {
    Draft::raw("orders.placed", 1, "x".repeat(500)).key(format!("order-{n}"))
}

#[event_handler(consumer = "tests.wal")]
async fn nothing(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

async fn publish(store: &Store<Postgres>, n: i64) {
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut tx, draft(n)).await.unwrap();
    tx.commit().await.unwrap();
}

async fn operate(store: &Store<Postgres>, n: i64) {
    let (keys, policy) = (store.idempotency_keys(), policy(Duration::ZERO));
    let begun = keys.begin(&key(&n.to_string()), &asked("{}"), &policy).await.unwrap();
    let OperationStart::Open(operation) = begun else { panic!("{n} is taken") };
    operation.commit(&answer("{}")).await.unwrap();
}

async fn plan(store: &Store<Postgres>) {
    let mut tx = store.begin().await.unwrap();
    Effects::new(store).plan(&mut tx, Uuid::now_v7(), "email.welcome", mail("hello")).await.unwrap();
    tx.commit().await.unwrap();
}

/// Returns the bytes of a message that is purged from the log.
async fn purge_log(store: &Store<Postgres>) -> i64 {
    log::publish(store, None, &["last"]).await;
    let mut reader = open(store, "d").await;
    settle_until(&mut reader, "last").await;
    run_until(store, &mut reader, "d", |row| row.p > 0 && row.p == row.w).await;
    reader.close().await.unwrap();
    let before = written(store).await;
    let purged = Log::new(store).purge(Duration::ZERO).await.unwrap().messages;
    assert!(purged > 100, "{purged} purged");
    (written(store).await - before) / i64::try_from(purged).unwrap()
}

async fn purge_claims(store: &Store<Postgres>) -> i64 {
    let before = written(store).await;
    let purged = store.inbox("tests.wal").purge(Duration::ZERO).await.unwrap();
    assert!(purged > 100, "{purged} purged");
    (written(store).await - before) / i64::try_from(purged).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_costs_says_how_much_wal_each_act_writes() {
    let server = tokio::task::spawn_blocking(server).await.unwrap();
    let store = store_at(&server.url()).await;
    store.migrate().await.unwrap();
    // The first pages of a log are summarized at once, and cost more: later ones not before a VACUUM.
    for _ in 0..5 {
        publish_all(&store, (0..1_000).map(draft).collect()).await;
    }
    let harness = Harness::new(&store, ());
    let handle = async |n: i64| {
        assert_eq!(harness.deliver::<nothing>(&placed(n)).await, DeliveryOutcome::Handled);
    };
    let many = async |n: i64| publish_all(&store, (0..100).map(|m| draft(n * 100 + m)).collect()).await;
    let measured = [
        ("publish", bytes(&store, async |n| publish(&store, n).await).await),
        ("publish many", bytes(&store, many).await / 100),
        ("handle", bytes(&store, handle).await),
        ("a request with a key", bytes(&store, async |n| operate(&store, n).await).await),
        ("plan a side effect", bytes(&store, async |_| plan(&store).await).await),
        ("purge a message", purge_log(&store).await),
        ("purge a claim", purge_claims(&store).await),
    ];
    println!("{measured:#?}");
    for (act, bytes) in measured {
        let said = PAGE.lines().filter_map(|line| line.strip_prefix(&format!("| {act} | ")));
        let said = said.filter_map(|rest| rest.split_once(" bytes").map(|(bytes, _)| bytes)).next();
        let said: f64 = said.expect(act).replace(',', "").parse().unwrap();
        assert!((said / bytes as f64 - 1.0).abs() < TOLERANCE, "{act}: the page says {said}, not {bytes}");
    }
}
