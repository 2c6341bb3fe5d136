//! Ten thousand parked messages of one key: the time of one look at them, and the rate at which the key
//! drains.
//!
//! Measured on the relay and on a consumer that keeps the order of keys, while messages of other keys arrive.
use crate::{failure::Failure, nats::Server, report::Report, spread::Spread};
use sqlx::{AssertSqlSafe, Postgres};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use twinbox::{
    CancellationToken, Consumer, Delivery, Event, HandlerResult, Policy, Store, Tx,
    consumer::DeliveryOrder,
    handler_fn,
    log::{StartPosition, plans},
    nats::{Nats, NatsOptions, StreamOptions},
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::database;

const PARKED: i64 = 10_000;
/// Messages of other keys that are published meanwhile.
const OTHERS: i64 = 5_000;
const LOOKS: u32 = 50;

#[derive(Debug, serde::Serialize, serde::Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = n)]
struct Placed {
    n: i64,
}

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let server = Server::connect().await?;
    let drains = relay(&server).await?;
    report.add("relay: a key with 10,000 parked drains, /s", Spread::of([drains]))?;
    let drains = consumer(&server).await?;
    report.add("consumer: a key with 10,000 parked drains, /s", Spread::of([drains]))
}

const ROW: &str = "'orders.placed', convert_to('{\"n\":' || n || '}' || repeat(' ', 400), 'UTF8')";

/// Returns how many messages of the key are sent a second.
async fn relay(server: &Server) -> Result<f64, Failure> {
    let store = database::postgres().await;
    let log = format!(
        "INSERT INTO twinbox.outbox (key, type, payload) SELECT 'hot', {ROW} FROM generate_series(1, $1) n"
    );
    sqlx::query(AssertSqlSafe(log)).bind(PARKED).execute(store.pool()).await?;
    let parked = "INSERT INTO twinbox.parked_messages (destination, position, key, type, state, blocks_key, \
                  attempts, \
        next_attempt_at, first_error, last_error, fingerprint) \
        SELECT 'parked', position, key, type, 'waiting', true, 0, now(), '', '', '' FROM twinbox.outbox";
    sqlx::query(parked).execute(store.pool()).await?;
    sqlx::raw_sql("ANALYZE twinbox.parked_messages").execute(store.pool()).await?;
    println!("relay, {PARKED} parked of one key");
    println!("  a look          {:.2} ms", look(&store, &plans::parked_heads(&store), "parked", None).await?);
    let nats = server.named(server.url(), "parked").await?;
    let stop = CancellationToken::new();
    // The relay reads only parked messages, and messages that are published from now on.
    let relay = Relay::with_options(store.clone(), nats, RelayOptions::new().start(StartPosition::Now));
    let counters = relay.counters();
    let running = tokio::spawn(relay.run(stop.clone()));
    let others = format!(
        "INSERT INTO twinbox.outbox (key, type, payload) \
        SELECT 'k-' || n % 500, {ROW} FROM generate_series(1, $1) n"
    );
    while counters.published() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let started = Instant::now();
    sqlx::query(AssertSqlSafe(others)).bind(OTHERS).execute(store.pool()).await?;
    drained(&store, "SELECT count(*) FROM twinbox.parked_messages").await?;
    let drains = PARKED as f64 / started.elapsed().as_secs_f64();
    while counters.published() < (PARKED + OTHERS).unsigned_abs() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!(
        "  all             {:.2} s, with {OTHERS} messages of other keys",
        started.elapsed().as_secs_f64()
    );
    stop.cancel();
    running.await??;
    server.delete_named("parked").await;
    Ok(drains)
}

/// Returns how many messages of the key are handled a second.
async fn consumer(server: &Server) -> Result<f64, Failure> {
    let store = database::postgres().await;
    let options = NatsOptions::new(server.url()).id("parked").stream("PARKED").prefix("parked").partitions(1);
    let nats = Nats::with_options(options)?;
    nats.provision(&StreamOptions::default()).await?;
    let parked = format!(
        "INSERT INTO twinbox.parked_deliveries (consumer, partition, next_attempt_at, message_id, event_id, \
        source, version, key, time, content_type, type, payload) \
        SELECT 'bench.parked', 0, now(), gen_random_uuid(), 'p-' || n, 'bench', 1, 'hot', now(), \
        'application/json', {ROW} FROM generate_series(1, $1) n"
    );
    sqlx::query(AssertSqlSafe(parked)).bind(PARKED).execute(store.pool()).await?;
    sqlx::raw_sql("ANALYZE twinbox.parked_deliveries").execute(store.pool()).await?;
    println!("consumer in order, {PARKED} parked of one key");
    let heads = plans::deliveries_heads(&store);
    println!("  a look          {:.2} ms", look(&store, &heads, "bench.parked", Some(0)).await?);
    let (handled, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let policy = Policy::new("bench.parked").order(DeliveryOrder::Key);
    async fn count(
        handled: &Arc<AtomicUsize>,
        _: &mut Tx<'_, Postgres>,
        order: Delivery<Placed>,
    ) -> HandlerResult {
        assert!(order.n > 0);
        handled.fetch_add(1, Relaxed);
        Ok(())
    }
    let consumer = Consumer::new(store.clone(), handled.clone()).transport(nats.clone());
    let mut running = tokio::spawn(consumer.register(handler_fn(policy, count)).run(stop.clone()));
    while handled.load(Relaxed) == 0 && !running.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let started = Instant::now();
    let drained = drained(&store, "SELECT count(*) FROM twinbox.parked_deliveries");
    tokio::select! {
        drained = drained => drained?,
        ended = &mut running => ended??,
    }
    let drains = PARKED as f64 / started.elapsed().as_secs_f64();
    stop.cancel();
    running.await??;
    server.delete_named("PARKED").await;
    Ok(drains)
}

/// Returns the milliseconds of the statement that looks at the parked messages of all keys.
async fn look(
    store: &Store<Postgres>,
    sql: &str,
    owner: &str,
    partition: Option<i64>,
) -> Result<f64, Failure> {
    let started = Instant::now();
    for _ in 0..LOOKS {
        let mut look = sqlx::query(AssertSqlSafe(sql.to_owned()));
        for _ in 0..3 {
            look = look.bind(owner.to_owned());
            if let Some(partition) = partition {
                look = look.bind(partition);
            }
        }
        assert_eq!(look.fetch_all(store.pool()).await?.len(), 1);
    }
    Ok(started.elapsed().as_secs_f64() * 1000.0 / f64::from(LOOKS))
}

async fn drained(store: &Store<Postgres>, sql: &'static str) -> Result<(), Failure> {
    while sqlx::query_scalar::<_, i64>(sql).fetch_one(store.pool()).await? > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
