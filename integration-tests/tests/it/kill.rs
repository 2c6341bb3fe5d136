//! Relay and consumer as processes that are killed again and again while orders flow.
mod crashing;
mod forgetful;
mod mysql;
mod ordered;
mod poison;
mod promoted;

use crate::support::{
    database::{self, TestDatabase},
    long,
    processes::{Program, Programs},
    relay::free_leases,
    roles::Roles,
    wait::{self, Pause},
};
use integration_tests::{INVOICING, OrderPlaced};
use sqlx::Postgres;
use std::{os::unix::process::ExitStatusExt as _, time::Duration};
use tokio::{
    process::{Child, Command},
    task::JoinSet,
    time::timeout,
};
use twinbox::{CancellationToken, Draft, Store};

const CUSTOMERS: i64 = 500;
/// How long everything may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Where each relay dies. None: at a random moment. The first have each place.
const RELAY_DEATHS: [Option<&str>; 10] = [
    Some("relay.after_read"),
    None,
    Some("relay.after_send"),
    Some("relay.after_ack"),
    Some("relay.after_ack:300"),
    None,
    Some("relay.after_ack:7"),
    None,
    Some("relay.after_send:5"),
    Some("relay.after_read:3"),
];
const RELAY_DEATHS_SHORT: usize = 5;

/// Where each consumer dies. The first have each place.
const CONSUMER_DEATHS: [Option<&str>; 15] = [
    Some("consumer.before_claim"),
    Some("consumer.after_claim:40"),
    Some("consumer.after_start"),
    None,
    Some("consumer.before_commit:100"),
    Some("consumer.after_commit"),
    Some("consumer.before_ack:30"),
    Some("consumer.after_ack:30"),
    Some("consumer.after_failure"),
    None,
    Some("consumer.after_commit:200"),
    None,
    Some("consumer.before_commit"),
    None,
    Some("consumer.after_ack:500"),
];
const CONSUMER_DEATHS_SHORT: usize = 9;

/// Orders at least; they flow until the last process has died.
fn orders_min() -> i64 {
    long::or(10_000, 1000)
}

/// Faults 4, 5, 6, 20, 25: R67, R68. Both programs have the documented rights and no more.
#[tokio::test(flavor = "multi_thread")]
async fn every_order_is_invoiced_once_however_often_relay_and_consumer_die() {
    let database = database::postgres().await;
    sqlx::raw_sql("CREATE TABLE invoices (order_id bigint NOT NULL, attempt bigint NOT NULL)")
        .execute(database.pool())
        .await
        .unwrap();
    let seed = seed();
    let roles = Roles::create(&database, "invoices").await;
    let programs = Programs::new(&database, &roles.runtime);
    let (relay, consumer, store) = (programs.clone(), programs.clone(), (*database).clone());
    let mut killers = JoinSet::new();
    killers.spawn(async move {
        let deaths = &RELAY_DEATHS[..long::or(RELAY_DEATHS.len(), RELAY_DEATHS_SHORT)];
        relay.die_often(Program::Relay, deaths, seed, &store).await
    });
    let store = (*database).clone();
    killers.spawn(async move {
        let deaths = &CONSUMER_DEATHS[..long::or(CONSUMER_DEATHS.len(), CONSUMER_DEATHS_SHORT)];
        consumer.die_often(Program::Consumer, deaths, seed + 1, &store).await
    });

    let orders = timeout(PATIENCE, async {
        let killed = CancellationToken::new();
        let killing = async {
            let survivors = killers.join_all().await;
            killed.cancel();
            survivors
        };
        let (orders, mut survivors) = tokio::join!(place_orders(&database, &killed), killing);
        while count(&database, "SELECT count(*) FROM twinbox.inbox").await < orders {
            wait::pause(Pause::Look, Duration::from_millis(50)).await;
        }
        for survivor in &mut survivors {
            survivor.kill().await.unwrap();
        }
        orders
    })
    .await
    .expect("everything is handled in time");

    let rows = |sql| count(&database, sql);
    assert_eq!(rows("SELECT count(*) FROM twinbox.outbox").await, orders);
    assert_eq!(rows("SELECT count(*) FROM invoices").await, orders);
    assert_eq!(rows("SELECT count(DISTINCT order_id) FROM invoices").await, orders);
    assert_eq!(rows("SELECT count(*) FROM twinbox.inbox WHERE state = 'processed'").await, orders);
    assert_eq!(rows("SELECT count(*) FROM twinbox.attempts").await, 0);
    assert_eq!(rows("SELECT count(*) FROM twinbox.dead_letters").await, 0);
    let jammed = "SELECT count(*) FROM invoices WHERE order_id % 50 = 0 AND attempt > 1";
    assert_eq!(rows(jammed).await, orders / 50);
    let consumer = database.inbox(INVOICING).dead_letters(1).await.unwrap();
    assert!(consumer.is_empty());
    roles.drop(&database).await;
}

/// Of what happens at random. `TWINBOX_TEST_SEED` makes it happen again.
fn seed() -> u64 {
    let seed = std::env::var("TWINBOX_TEST_SEED").map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or_else(|_| u64::from(std::process::id())) | 1;
    eprintln!("TWINBOX_TEST_SEED={seed}");
    seed
}

/// At a steady pace, until nobody is killed any more. Answers with how many.
async fn place_orders(store: &Store<Postgres>, killed: &CancellationToken) -> i64 {
    let mut pace = tokio::time::interval(Duration::from_millis(600));
    let mut orders = 0;
    while orders < orders_min() || !killed.is_cancelled() {
        pace.tick().await;
        let mut tx = store.begin().await.unwrap();
        let drafts = (orders..orders + 100)
            .map(|order_id| Draft::of(&OrderPlaced { order_id, customer: order_id % CUSTOMERS }).unwrap())
            .collect();
        store.outbox().publish_all(&mut tx, drafts).await.unwrap();
        tx.commit().await.unwrap();
        orders += 100;
    }
    orders
}

async fn count(store: &Store<Postgres>, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap()
}

impl Programs {
    /// Starts the program once for each death, and then one that lives on, because the others need it.
    async fn die_often(
        &self,
        program: Program,
        deaths: &[Option<&'static str>],
        seed: u64,
        store: &Store<Postgres>,
    ) -> Child {
        let mut random = seed | 1;
        for death in deaths {
            let mut child = self.start(program, *death);
            // xorshift64, so that a seed tells the moments.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let moment =
                death.map_or(Duration::from_millis(500 + random % 2000), |_| Duration::from_secs(120));
            let ended = match timeout(moment, child.wait()).await {
                Ok(ended) => ended.unwrap(),
                Err(_) => {
                    assert_eq!(*death, None, "not there in time");
                    child.start_kill().unwrap();
                    child.wait().await.unwrap()
                }
            };
            assert_eq!(ended.signal(), Some(9), "killed, not ended: {ended:?} at {death:?}");
            if let Program::Relay = program {
                free_leases(store).await;
            }
        }
        self.start(program, None)
    }
}
