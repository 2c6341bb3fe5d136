//! The database is away, read-only, loses its answer, or has no connection to spare.
use crate::support::{
    consumer::{publish, run_until},
    database::SERVICE,
    long,
    postgres::{lacks, own, postgres_address, standby_of, store_at, through},
    relay::{Running, Target},
    stores::{Placed, World, effect, placed},
    wait::{self, Pause, eventually, in_time},
};
use sqlx::{Postgres, postgres::PgPoolOptions};
use std::time::Duration;
use twinbox::{
    CancellationToken, Consumer, Delivery, DeliveryOutcome, HandlerResult, Store, Tx, event_handler,
    nats::Nats,
};
use twinbox_testkit::{Harness, proxy::Proxy};

#[event_handler(consumer = "tests.outage", max_attempts = 1)]
async fn note(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, order.n).await?)
}

#[event_handler(consumer = "tests.outage_in_order", max_attempts = 1, order = "key")]
async fn in_order(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, 1_000_000 + order.n).await?)
}

async fn count(store: &Store<Postgres>, sql: &'static str) -> i64 {
    // While the database is away there is no answer.
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap_or(-1)
}

const INBOX: &str = "SELECT count(*) FROM twinbox.inbox";
/// A part of the statement that claims a message.
const CLAIM: &str = "INTO \"twinbox\".inbox";

/// While messages flow in from a broker, to a consumer with a durable and to one that keeps its own place.
/// With `--long` for half a minute.
#[tokio::test(flavor = "multi_thread")]
async fn row_34_the_database_is_stopped_under_load() {
    // Longer than the broker waits for an acknowledgement, and than the lease on partitions.
    let outage = Duration::from_secs(long::or(30, 6));
    let orders = long::or(3000, 800);
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    let (mut server, store) = own().await;
    sqlx::raw_sql("CREATE TABLE effects (n bigint NOT NULL UNIQUE)").execute(store.pool()).await.unwrap();
    let nats = Nats::with_options(target.existing().ack_wait(Duration::from_secs(3))).unwrap();
    publish(&world, 0..1).await;
    relay.published(1).await;
    let consumer = Consumer::new(store.clone(), ()).transport(nats).handler::<note>().handler::<in_order>();
    let stop = CancellationToken::new();
    let consuming = tokio::spawn(consumer.run(stop.clone()));
    let load = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        for n in (1..orders).step_by(10) {
            pace.tick().await;
            publish(&world, n..(n + 10).min(orders)).await;
        }
        world
    });
    eventually(async || (count(&store, INBOX).await > 200).then_some(())).await;
    server.stop_immediate().unwrap();
    // The outage itself.
    wait::pause(Pause::Outage, outage).await;
    assert!(!consuming.is_finished());
    server.start_again().unwrap();
    eventually(async || (count(&store, INBOX).await == 2 * orders).then_some(())).await;
    stop.cancel();
    in_time(consuming).await.unwrap().unwrap();
    assert_eq!(count(&store, "SELECT count(*) FROM effects").await, 2 * orders);
    for table in
        ["SELECT count(*) FROM twinbox.dead_letters", "SELECT count(*) FROM twinbox.parked_deliveries"]
    {
        assert_eq!(count(&store, table).await, 0);
    }
    // With one attempt each, a failure that was counted would be a dead letter.
    assert_eq!(count(&store, "SELECT count(*) FROM twinbox.inbox WHERE state <> 'processed'").await, 0);
    let _world = load.await.unwrap();
    relay.stop().await;
}

/// The tail that the standby lacks is delivered again by the broker or is a duplicate there: nothing is
/// counted.
#[tokio::test(flavor = "multi_thread")]
async fn row_35_failover_to_a_standby() {
    if lacks("pg_basebackup") {
        return;
    }
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    let (mut primary, before) = own().await;
    sqlx::raw_sql("CREATE TABLE effects (n bigint NOT NULL UNIQUE)").execute(before.pool()).await.unwrap();
    let proxy = Proxy::start(postgres_address(&primary.url())).await.unwrap();
    let store = store_at(&through(&primary.url(), &proxy)).await;
    publish(&world, 0..50).await;
    relay.published(50).await;
    let nats = Nats::with_options(target.existing().ack_wait(Duration::from_secs(3))).unwrap();
    let stop = CancellationToken::new();
    let consuming =
        tokio::spawn(Consumer::new(store, ()).transport(nats).handler::<note>().run(stop.clone()));
    eventually(async || (count(&before, INBOX).await == 50).then_some(())).await;
    let mut standby = tokio::task::block_in_place(|| standby_of(&primary));
    primary.stop_immediate().unwrap();
    standby.start_again().unwrap();
    proxy.lead_to(postgres_address(&standby.url()));
    publish(&world, 50..100).await;
    relay.published(100).await;
    let after = store_at(&standby.url()).await;
    // The log of a server has the statements that it refused.
    let log = standby.dir().join("log");
    let refused =
        async || String::from_utf8_lossy(&std::fs::read(&log).unwrap()).contains(CLAIM).then_some(());
    eventually(refused).await;
    assert!(!consuming.is_finished());
    assert!(sqlx::query_scalar::<_, bool>("SELECT pg_promote()").fetch_one(after.pool()).await.unwrap());
    eventually(async || (count(&after, INBOX).await == 100).then_some(())).await;
    stop.cancel();
    in_time(consuming).await.unwrap().unwrap();
    assert_eq!(count(&after, "SELECT count(*) FROM effects").await, 100);
    assert_eq!(count(&after, "SELECT count(*) FROM twinbox.dead_letters").await, 0);
    relay.stop().await;
}

/// The claim tells that it committed: neither a failed attempt nor a second effect.
#[tokio::test]
async fn row_36_the_answer_to_a_handlers_commit_is_lost() {
    let world = World::<Postgres>::new().await;
    let proxy = Proxy::start(postgres_address(world.url())).await.unwrap();
    let pool = PgPoolOptions::new().connect(&through(world.url(), &proxy)).await.unwrap();
    let harness = Harness::new(&Store::new(pool, SERVICE).unwrap(), ());
    let order = placed(1);
    proxy.lose_answer_to(b"COMMIT\0"); // and not BEGIN … READ COMMITTED
    assert_eq!(harness.deliver::<note>(&order).await, DeliveryOutcome::Duplicate);
    assert!(proxy.has_lost());
    assert_eq!(world.left_behind().await, (1, 1, 0));
    assert_eq!((world.rows("attempts").await, world.rows("dead_letters").await), (0, 0));
}

/// Eight handlers that may run, and one connection: they wait for it, and for no longer than the pool says.
#[tokio::test(flavor = "multi_thread")]
async fn row_38_a_pool_that_is_too_small_makes_handlers_wait() {
    let world = World::<Postgres>::new().await;
    publish(&world, 0..200).await;
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(1));
    let store = Store::new(pool.connect(world.url()).await.unwrap(), SERVICE).unwrap();
    let consumer = Consumer::new(store, ()).handler::<note>();
    run_until(consumer, async || world.rows("inbox").await == 200).await;
    assert_eq!(world.effects().await, Vec::from_iter(0..200));
    assert_eq!((world.rows("attempts").await, world.rows("dead_letters").await), (0, 0));
}
