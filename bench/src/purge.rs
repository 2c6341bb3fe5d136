//! A log and an inbox at a steady rate while a keeper deletes what is old. Days are shortened to seconds:
//! what is purged a second is what is published a second, as after the first week.
use crate::{failure::Failure, nats::Server, orders::TYPE, report::Report, spread::Spread};
use futures::future::{try_join, try_join_all};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, MySql, Postgres};
use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};
use twinbox::{
    BatchTx, CancellationToken, Consumer, Delivery, Dialect, Draft, Event, HandlerResult, Policy, Store,
    handler_fn,
    log::Keeper,
    nats::StreamOptions,
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::database;

const PER_SECOND: usize = 5_000;
/// Transactions a second, each with as many messages.
const TRANSACTIONS: usize = 50;
const BATCH: usize = 200;
/// How old messages and claims become.
const KEPT: Duration = Duration::from_secs(60);
const PURGED_EVERY: Duration = Duration::from_secs(5);
const SAMPLED_EVERY: Duration = Duration::from_secs(30);
/// Without an argument.
const MINUTES: u64 = 30;
const CONSUMER: &str = "bench.purged";
const NAMES: [&str; 3] =
    ["purge: p99, ms", "purge: p99, last third / first", "purge: bytes of tables, last third / first"];
const NAMES_ON_MYSQL: [&str; 3] = [
    "MySQL: purge: p99, ms",
    "MySQL: purge: p99, last third / first",
    "MySQL: purge: bytes of tables, last third / first",
];

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed {
    /// Microseconds since the benchmark began.
    at: u64,
    note: String,
}

/// The latencies since the last sample, from before the transaction of a message to its handler.
#[derive(Clone)]
struct Latencies {
    began: Instant,
    micros: Arc<Mutex<Vec<f64>>>,
}

impl Latencies {
    fn since_beginning(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    fn take(&self) -> Vec<f64> {
        mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<f64>> {
        self.micros.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A database that says how many bytes its tables have.
trait Measured: Dialect {
    const ROWS: &str;
    const BYTES: &str;
}

impl Measured for Postgres {
    const ROWS: &str = "SELECT (SELECT count(*) FROM twinbox.outbox) + (SELECT count(*) FROM twinbox.inbox)";
    const BYTES: &str = "SELECT (pg_total_relation_size('twinbox.outbox')
        + pg_total_relation_size('twinbox.inbox'))::bigint";
}

impl Measured for MySql {
    const ROWS: &str = "SELECT (SELECT count(*) FROM twinbox_outbox) + (SELECT count(*) FROM twinbox_inbox)";
    const BYTES: &str = "SELECT CAST(sum(file_size) AS SIGNED)
        FROM information_schema./*M! innodb_sys_tablespaces */ /*!80400 innodb_tablespaces */
        WHERE name IN (concat(database(), '/twinbox_outbox'), concat(database(), '/twinbox_inbox'))";
}

struct Sample {
    p99: f64,
    megabytes: f64,
}

pub(crate) async fn run(argument: Option<&String>, report: &mut Report) -> Result<(), Failure> {
    measure(&*database::postgres().await, during(argument)?, NAMES, report).await
}

pub(crate) async fn run_mysql(argument: Option<&String>, report: &mut Report) -> Result<(), Failure> {
    measure(&*database::mysql().await, during(argument)?, NAMES_ON_MYSQL, report).await
}

fn during(minutes: Option<&String>) -> Result<Duration, Failure> {
    let minutes = minutes.map_or(Ok(MINUTES), |minutes| minutes.parse::<u64>())?;
    Ok(Duration::from_secs(60 * minutes))
}

async fn measure<DB: Measured>(
    store: &Store<DB>,
    during: Duration,
    [p99, p99_growth, growth_of_tables]: [&'static str; 3],
    report: &mut Report,
) -> Result<(), Failure> {
    let server = Server::connect().await?;
    let nats =
        server.destination_of(0, &StreamOptions::default().max_age(KEPT).duplicate_window(KEPT)).await?;
    let latencies = Latencies { began: Instant::now(), micros: Arc::default() };
    let policy = Policy::new(CONSUMER).batch(BATCH).concurrency(4);
    let consumer = Consumer::new(store.clone(), latencies.clone())
        .transport(nats.clone())
        .register(handler_fn(policy, handle));
    let (stop, relay) = (CancellationToken::new(), RelayOptions::new());
    let running = [
        tokio::spawn(publish(store.clone(), latencies.clone(), stop.clone())),
        tokio::spawn(failing(Relay::with_options(store.clone(), nats, relay).run(stop.clone()))),
        tokio::spawn(failing(consumer.run(stop.clone()))),
        tokio::spawn(purge(store.clone(), stop.clone())),
    ];
    println!("{PER_SECOND} messages a second, kept for {KEPT:?}, during {during:?}");
    let running = try_join_all(running.map(async |task| task.await?));
    let sampling = async {
        let samples = sample(store, &latencies, during).await;
        stop.cancel();
        samples
    };
    let measured = try_join(running, sampling).await;
    server.delete().await;
    let (_, samples) = measured?;
    // Tables grow until the first rows are old.
    let steady = &samples[samples.len() / 6..];
    let (first, last) = (&steady[..steady.len() / 3], &steady[steady.len() * 2 / 3..]);
    let median = |samples: &[Sample], of: fn(&Sample) -> f64| Spread::of(samples.iter().map(of)).median();
    let growth = |of: fn(&Sample) -> f64| Spread::of([median(last, of) / median(first, of)]);
    report.add(p99, Spread::of(steady.iter().map(|sample| sample.p99)))?;
    report.add(p99_growth, growth(|sample| sample.p99))?;
    report.add(growth_of_tables, growth(|sample| sample.megabytes))
}

async fn failing<E>(running: impl Future<Output = Result<(), E>>) -> Result<(), Failure>
where
    Failure: From<E>,
{
    Ok(running.await?)
}

async fn handle<DB: Dialect>(
    latencies: &Latencies,
    _: &mut BatchTx<'_, DB>,
    orders: Vec<Delivery<Placed>>,
) -> HandlerResult {
    let now = latencies.since_beginning(Instant::now());
    let all = orders.iter().map(|order| now.saturating_sub(order.at) as f64);
    latencies.lock().extend(all);
    Ok(())
}

async fn publish<DB: Dialect>(
    store: Store<DB>,
    latencies: Latencies,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(TRANSACTIONS)?);
    // One that is late makes up for it: the rate is steady.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while let Some(due) = stop.run_until_cancelled(ticks.tick()).await {
        // A transaction that waits for the one before it is late for its reader too.
        let at = latencies.since_beginning(due.into_std());
        let order = |_| serde_json::to_vec(&Placed { at, note: "x".repeat(400) });
        let payloads: Vec<_> = (0..PER_SECOND / TRANSACTIONS).map(order).collect::<Result<_, _>>()?;
        let mut tx = store.begin().await?;
        let drafts = payloads.into_iter().map(|payload| Draft::raw(TYPE, 1, payload)).collect();
        store.outbox().publish_all(&mut tx, drafts).await?;
        tx.commit().await?;
    }
    Ok(())
}

async fn purge<DB: Dialect>(store: Store<DB>, stop: CancellationToken) -> Result<(), Failure> {
    let (keeper, inbox) = (Keeper::new(&store).keep(KEPT), store.inbox(CONSUMER));
    let mut ticks = interval(PURGED_EVERY);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if let Some(error) = keeper.purge().await.error {
            return Err(error.into());
        }
        inbox.purge(KEPT).await?;
    }
    Ok(())
}

async fn sample<DB: Measured>(
    store: &Store<DB>,
    latencies: &Latencies,
    during: Duration,
) -> Result<Vec<Sample>, Failure> {
    let mut samples = Vec::new();
    let mut ticks = interval(SAMPLED_EVERY);
    ticks.tick().await;
    while latencies.began.elapsed() < during {
        ticks.tick().await;
        let handled = Spread::of(latencies.take());
        let ms = |share: f64| handled.quantile(share) / 1000.0;
        let sample =
            Sample { p99: ms(0.99), megabytes: number(store, DB::BYTES).await? as f64 / 1_000_000.0 };
        let rate = handled.values().len() as f64 / SAMPLED_EVERY.as_secs_f64();
        println!(
            "  {:>5.0} s: handled {rate:>5.0}/s, p50 {:>6.1} ms, p99 {:>7.1} ms, {:>8} rows, {:>7.1} MB",
            latencies.began.elapsed().as_secs_f64(),
            ms(0.5),
            sample.p99,
            number(store, DB::ROWS).await?,
            sample.megabytes
        );
        samples.push(sample);
    }
    Ok(samples)
}

async fn number<DB: Dialect>(store: &Store<DB>, sql: &'static str) -> Result<i64, Failure> {
    let mut conn = store.pool().acquire().await?;
    Ok(sqlx::query_scalar::<DB, i64>(AssertSqlSafe(sql)).fetch_one(&mut *conn).await?)
}
