//! A service moves from an outbox table of its own, by the statements of the page, while it writes.
use crate::support::{
    relay::{Running, Target},
    stores::World,
    wait::{eventually, in_time},
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Row as _};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use tokio::task::JoinHandle;
use twinbox::{
    log::StartPosition,
    relay::{Relay, RelayOptions},
};

const PAGE: &str = include_str!("../../../../docs/src/moving.md");
const WRITERS: usize = 4;
/// Rows that a writer has committed when the next step of the move comes.
const SOME: i64 = 40;

/// The statements of the page, in its order.
fn statements() -> [&'static str; 6] {
    let blocks = PAGE.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    Vec::from_iter(blocks).try_into().expect("the page has six")
}

async fn run(world: &World<Postgres>, sql: &'static str) {
    sqlx::raw_sql(sql).execute(world.pool()).await.unwrap();
}

/// Numbers by key, in the order in which they came.
type Numbers = BTreeMap<String, Vec<i64>>;

fn number(payload: &[u8]) -> i64 {
    serde_json::from_slice::<Value>(payload).unwrap()["n"].as_i64().unwrap()
}

/// An application that inserts rows and never stops.
struct Application {
    stop: Arc<AtomicBool>,
    committed: Arc<[std::sync::atomic::AtomicI64; WRITERS]>,
    writers: Vec<JoinHandle<()>>,
}

async fn insert(pool: impl sqlx::PgExecutor<'_>, key: &str, n: i64) {
    let sql = "INSERT INTO app_outbox (type, aggregate_id, payload) VALUES ('orders.placed', $1, $2::jsonb)";
    sqlx::query(sql).bind(key).bind(format!("{{\"n\": {n}}}")).execute(pool).await.unwrap();
}

impl Application {
    fn start(pool: &PgPool) -> Self {
        let (stop, committed) = (Arc::default(), Arc::default());
        let mut application = Self { stop, committed, writers: Vec::new() };
        for writer in 0..WRITERS {
            let (pool, stop, committed) =
                (pool.clone(), application.stop.clone(), application.committed.clone());
            application.writers.push(tokio::spawn(async move {
                for n in 0.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    let mut tx = pool.begin().await.unwrap();
                    insert(&mut *tx, &format!("order-{writer}"), n).await;
                    tx.commit().await.unwrap();
                    committed[writer].store(n + 1, SeqCst);
                }
            }));
        }
        application
    }

    /// Waits until each writer has committed some more rows.
    async fn writes_some(&self) {
        let committed = || self.committed.each_ref().map(|count| count.load(SeqCst));
        let enough = committed().map(|count| count + SOME);
        eventually(async || committed().iter().zip(enough).all(|(is, enough)| *is >= enough).then_some(()))
            .await;
    }

    async fn stop(self) {
        self.stop.store(true, SeqCst);
        for writer in self.writers {
            in_time(writer).await.unwrap();
        }
    }
}

/// The program that the service had: it sends what is pending, and marks it.
struct OldRelay {
    sent: Arc<Mutex<Numbers>>,
    task: JoinHandle<()>,
}

impl OldRelay {
    fn start(pool: &PgPool) -> Self {
        let (pool, sent) = (pool.clone(), Arc::<Mutex<Numbers>>::default());
        let log = sent.clone();
        let task = tokio::spawn(async move {
            loop {
                let sql = "SELECT id, aggregate_id, payload::text FROM app_outbox WHERE status = 'pending'
                    ORDER BY id";
                for row in sqlx::query(sql).fetch_all(&pool).await.unwrap() {
                    let (key, payload): (String, String) = (row.get(1), row.get(2));
                    log.lock().unwrap().entry(key).or_default().push(number(payload.as_bytes()));
                    let mark = sqlx::query("UPDATE app_outbox SET status = 'sent' WHERE id = $1");
                    mark.bind(row.get::<i64, _>(0)).execute(&pool).await.unwrap();
                }
            }
        });
        Self { sent, task }
    }

    async fn has_sent_all(self, world: &World<Postgres>, count: &'static str) -> Numbers {
        let pending = async || sqlx::query_scalar::<_, i64>(count).fetch_one(world.pool()).await.unwrap();
        eventually(async || (pending().await == 0).then_some(())).await;
        self.task.abort();
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

async fn published(world: &World<Postgres>) -> Numbers {
    let mut numbers = Numbers::new();
    for message in world.published("orders.placed", 100_000).await.unwrap() {
        numbers.entry(message.key.unwrap()).or_default().push(number(&message.payload));
    }
    numbers
}

/// The first ones went the old way and the others the new way: none twice, none missing, none out of order.
#[track_caller]
fn assert_whole(old: &Numbers, new: &Numbers, keys: usize) {
    assert_eq!((old.len(), new.len()), (keys, keys));
    for (key, old) in old {
        let all = Vec::from_iter(old.iter().chain(&new[key]).copied());
        assert_eq!(all, Vec::from_iter(0..all.len() as i64), "{key}");
    }
}

/// One transaction has written before the cut and commits after it was asked for.
#[tokio::test]
async fn a_table_with_a_status_is_left_without_a_gap_while_the_application_writes() {
    let world = World::<Postgres>::new().await;
    let [table, cut, count, end, ..] = statements();
    run(&world, table).await;
    let (application, old) = (Application::start(world.pool()), OldRelay::start(world.pool()));
    application.writes_some().await;
    let mut open = world.pool().begin().await.unwrap();
    insert(&mut *open, "open", 0).await;

    let waiting = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND query LIKE '%CREATE TRIGGER%')";
    let mut own = sqlx::pool::PoolOptions::<Postgres>::new().max_connections(1);
    own = own.test_before_acquire(false);
    let own = own.connect(world.owner_url()).await.unwrap();
    let cutting = tokio::spawn(async move { sqlx::raw_sql(cut).execute(&own).await.map(drop) });
    let waits = async || sqlx::query_scalar::<_, bool>(waiting).fetch_one(world.pool()).await.unwrap();
    eventually(async || waits().await.then_some(())).await;
    open.commit().await.unwrap();
    in_time(cutting).await.unwrap().unwrap();
    insert(world.pool(), "open", 1).await;
    application.writes_some().await;

    let sent = old.has_sent_all(&world, count).await;
    let target = Target::shared();
    let options = RelayOptions::new().start(StartPosition::Beginning);
    let relay = Running::run(Relay::with_options((*world).clone(), target.destination(), options));
    application.writes_some().await;
    application.stop().await;
    let log = published(&world).await;
    assert_whole(&sent, &log, WRITERS + 1);
    let count = log.values().map(Vec::len).sum();
    relay.published(count as u64).await;
    target.whole(count).await;
    relay.stop().await;
    run(&world, end).await;
    insert(world.pool(), "open", 2).await;
    assert_eq!(published(&world).await, log, "the trigger is gone");
}

#[tokio::test]
async fn a_move_is_taken_back_before_the_relay_has_run() {
    let world = World::<Postgres>::new().await;
    let [table, cut, count, _, back, _] = statements();
    run(&world, table).await;
    let (application, old) = (Application::start(world.pool()), OldRelay::start(world.pool()));
    application.writes_some().await;
    run(&world, cut).await;
    application.writes_some().await;
    run(&world, back).await;
    application.writes_some().await;
    application.stop().await;
    let sent = old.has_sent_all(&world, count).await;
    assert!(published(&world).await.is_empty());
    for (key, numbers) in &sent {
        assert_eq!(*numbers, Vec::from_iter(0..numbers.len() as i64), "{key}");
    }
    assert_eq!(sent.len(), WRITERS);
}

/// Debezium would send a row that is stored.
#[tokio::test]
async fn a_connector_sees_nothing_of_what_was_moved() {
    let world = World::<Postgres>::new().await;
    let [table, cut, .., without_rows] = statements();
    run(&world, table).await;
    let trigger = cut.split_inclusive(';').find(|statement| statement.contains("CREATE TRIGGER")).unwrap();
    run(&world, without_rows).await;
    run(&world, trigger).await;
    for n in 0..3 {
        insert(world.pool(), "order-7", n).await;
    }
    let rows: i64 = sqlx::query_scalar(AssertSqlSafe("SELECT count(*) FROM app_outbox"))
        .fetch_one(world.pool())
        .await
        .unwrap();
    assert_eq!((rows, published(&world).await["order-7"].clone()), (0, vec![0, 1, 2]));
}
