//! Consumers of a stream with three copies.
use super::*;
use crate::support::stores::Placed;
use sqlx::{PgPool, Row as _};
use std::collections::HashMap;
use twinbox::{Consumer, Delivery, HandlerResult, Tx, consumer::Error, event_handler};

/// What `publish` spreads its messages over.
const KEYS: i64 = 7;

#[event_handler(consumer = "tests.cluster")]
async fn in_any_order(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    handle(tx, "none", order.n).await
}

#[event_handler(consumer = "tests.cluster_in_order", order = "key")]
async fn in_order(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    handle(tx, "key", order.n).await
}

async fn handle(tx: &mut Tx<'_, Postgres>, order: &'static str, n: i64) -> HandlerResult {
    sqlx::query("INSERT INTO handled (by_order, n) VALUES ($1, $2)")
        .bind(order)
        .bind(n)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// A consumer of each order.
pub(super) struct Consumers {
    pool: PgPool,
    stop: CancellationToken,
    running: JoinHandle<Result<(), Error>>,
}

impl Consumers {
    async fn start(store: &Store<Postgres>, target: &Target) -> Self {
        let table = "CREATE TABLE handled (id bigserial, by_order text, n bigint, UNIQUE (by_order, n))";
        sqlx::raw_sql(table).execute(store.pool()).await.unwrap();
        let nats = Nats::with_options(target.existing()).unwrap();
        let consumer = Consumer::new(store.clone(), ()).transport(nats);
        let consumer = consumer.handler::<in_any_order>().handler::<in_order>();
        let stop = CancellationToken::new();
        let running = tokio::spawn(consumer.run(stop.clone()));
        Self { pool: store.pool().clone(), stop, running }
    }

    /// Waits until both have handled so many messages. Asserts that each key was handled in order.
    pub(super) async fn handled(&self, messages: u32) {
        let start = Instant::now();
        for order in ["none", "key"] {
            eventually(async || {
                assert!(!self.running.is_finished(), "the consumers run");
                (self.numbers(order).await.len() == messages as usize).then_some(())
            })
            .await;
        }
        println!("{messages} handled {:?} after they were stored", start.elapsed());
        let mut last = HashMap::new();
        for n in self.numbers("key").await {
            assert!(last.insert(n % KEYS, n).is_none_or(|before| before < n), "{n} comes late");
        }
    }

    async fn numbers(&self, order: &'static str) -> Vec<i64> {
        let rows = sqlx::query("SELECT n FROM handled WHERE by_order = $1 ORDER BY id").bind(order);
        let rows = rows.fetch_all(&self.pool).await.unwrap();
        rows.iter().map(|row| row.get("n")).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_of_a_cluster_handle_everything_once_and_in_order() {
    let mut world = World::start(true).await;
    let consumers = Consumers::start(&world.store, &world.target).await;
    let stop = consumers.stop.clone();
    world.consumers = Some(consumers);
    let consumers = survives(world).await.consumers.unwrap();
    stop.cancel();
    timeout(PATIENCE, consumers.running).await.expect("consumers stop when asked").unwrap().unwrap();
}
