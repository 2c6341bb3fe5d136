//! Consumers of a stream with three copies.
use super::*;
use crate::support::{database::owner_of, long, stores::Placed};
use async_nats::jetstream::stream::ClusterInfo;
use sqlx::{PgPool, Row as _};
use std::collections::HashMap;
use twinbox::{Consumer, Delivery, HandlerResult, Tx, consumer::Error, event_handler, nats::StreamOptions};

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
pub(crate) struct Consumers {
    pool: PgPool,
    stop: CancellationToken,
    running: JoinHandle<Result<(), Error>>,
}

impl Consumers {
    pub(crate) async fn start(store: &Store<Postgres>, nats: Nats) -> Self {
        let table = "CREATE TABLE handled (id bigserial, by_order text, n bigint, UNIQUE (by_order, n))";
        sqlx::raw_sql(table).execute(owner_of(store).pool()).await.unwrap();
        Self::go_on(store, nats)
    }

    /// Starts where consumers have stopped.
    pub(crate) fn go_on(store: &Store<Postgres>, nats: Nats) -> Self {
        let consumer = Consumer::new(store.clone(), ()).transport(nats);
        let consumer = consumer.handler::<in_any_order>().handler::<in_order>();
        let stop = CancellationToken::new();
        let running = tokio::spawn(consumer.run(stop.clone()));
        Self { pool: store.pool().clone(), stop, running }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.running).await.expect("consumers stop when asked").unwrap().unwrap();
    }

    /// Waits until both have handled so many messages. Asserts that each key was handled in order.
    pub(crate) async fn handled(&self, messages: u32) {
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

/// The leader of the stream dies. In the long run all else happens too that happens to relays.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_of_a_cluster_handle_everything_once_and_in_order() {
    let mut world = World::start(true).await;
    let nats = Nats::with_options(world.target.existing()).unwrap();
    world.consumers = Some(Consumers::start(&world.store, nats).await);
    if long::or(true, false) {
        world = survives(world).await;
    } else {
        let leader = world.is_whole().await;
        world.cluster.server(leader).kill().unwrap();
        world.publish_with_a_new_relay().await;
        world.consumers.as_ref().unwrap().handled(world.published).await;
        world.cluster.server(leader).restart().unwrap();
        world.publish().await;
        world.consumers.as_ref().unwrap().handled(world.published).await;
        world.relay.take().unwrap().stop().await;
    }
    world.consumers.unwrap().stop().await;
}

/// The leaders of the streams are on different servers. One dies, in the long run each of them in turn.
#[tokio::test(flavor = "multi_thread")]
async fn four_streams_keep_the_order_of_keys_while_servers_die() {
    let (mut cluster, store) = (NatsCluster::start().await.unwrap(), postgres().await);
    let target = Target::at(cluster.url());
    let nats = Nats::with_options(target.existing().streams(4)).unwrap();
    let replicated = StreamOptions::default().replicas(3);
    eventually(async || nats.provision(&replicated).await.ok()).await;
    let consumers = Consumers::start(&store, nats.clone()).await;
    let running = Running::run(Relay::new((*store).clone(), nats));
    let mut published = 0;
    for server in 0..long::or(SERVERS, 1) {
        if server > 0 {
            // This one may only die when the one before has its copies again.
            eventually(async || copies_are_current(&target, 4).await.filter(|current| *current)).await;
        }
        for step in 0..20 {
            publish(&store, published..published + 10).await;
            published += 10;
            pause(Pause::Pace, Duration::from_millis(20)).await;
            if step == 5 {
                cluster.server(server).kill().unwrap();
            }
        }
        consumers.handled(published).await;
        cluster.server(server).restart().unwrap();
        publish(&store, published..published + 200).await;
        published += 200;
        consumers.handled(published).await;
    }
    consumers.stop().await;
    running.stop().await;
}

/// Whether each server has all of each stream and of its consumer, if the cluster says so.
async fn copies_are_current(target: &Target, streams: usize) -> Option<bool> {
    let jetstream = target.jetstream().await;
    let mut clusters = Vec::new();
    for number in 0..streams {
        let stream = jetstream.get_stream(format!("{}-{number}", target.name)).await.ok()?;
        clusters.push(stream.get_info().await.ok()?.cluster?);
        clusters.push(stream.consumer_info("tests_cluster").await.ok()?.cluster?);
    }
    let is_current = |cluster: &ClusterInfo| {
        let current = cluster.replicas.iter().filter(|copy| copy.current && !copy.offline).count();
        cluster.leader.is_some() && current == SERVERS - 1
    };
    Some(clusters.iter().all(is_current))
}
