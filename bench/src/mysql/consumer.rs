//! A consumer on JetStream and MariaDB, as a ratio to a loop by hand with the fewest statements that still
//! remove duplicates.
use crate::{
    consumer::{Handled, wait_for},
    failure::Failure,
    nats::{IN_FLIGHT, Server},
    orders::{self, Placed},
    report::Report,
    spread::Spread,
};
use async_nats::jetstream::{Message, consumer::pull};
use futures::{StreamExt as _, TryStreamExt as _};
use sqlx::{MySql, MySqlPool};
use std::time::Instant;
use twinbox::{
    CancellationToken, Consumer, Delivery, HandlerResult, Policy, Store, Tx, handler_fn,
    nats::Nats,
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::database;

const MESSAGES: usize = 5_000;
const CONCURRENCY: usize = 8;
const RUNS: usize = 5;

const TABLES: &str = "
    CREATE TABLE effects (order_id BINARY(16) NOT NULL, n BIGINT NOT NULL);
    CREATE TABLE by_hand (consumer VARBINARY(120), message_id VARBINARY(64),
        PRIMARY KEY (consumer, message_id))";
const EFFECT: &str = "INSERT INTO effects (order_id, n) VALUES (?, ?)";
const CLAIM: &str = "INSERT IGNORE INTO by_hand (consumer, message_id) VALUES (?, ?)";

pub(super) async fn run(report: &mut Report) -> Result<(), Failure> {
    let server = Server::connect().await?;
    let store = database::mysql().await;
    sqlx::raw_sql(TABLES).execute(store.pool()).await?;
    let nats = relayed(&server, &store).await?;
    println!("consumer: {MESSAGES} messages, {CONCURRENCY} at a time, {RUNS} interleaved runs");
    by_hand(&server, store.pool(), "warm-up").await?;
    let (mut alone, mut handled) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        alone.push(by_hand(&server, store.pool(), &format!("by-hand-{run}")).await?);
        handled.push(by_handler(&store, &nats, format!("bench.single-{run}").leak()).await?);
        println!("  by hand {:.0}/s, handler {:.0}/s", alone[run], handled[run]);
    }
    server.delete().await;
    let ratios = handled.iter().zip(&alone).map(|(handled, alone)| handled / alone);
    report.add("MySQL: consumer: single / fewest statements", Spread::of(ratios))
}

/// Returns a stream that has the messages.
async fn relayed(server: &Server, store: &Store<MySql>) -> Result<Nats, Failure> {
    orders::publish(store, MESSAGES, orders::draft).await?;
    let nats = server.destination(0).await?;
    let relay = Relay::with_options(store.clone(), nats.clone(), RelayOptions::new().in_flight(IN_FLIGHT));
    let stop = CancellationToken::new();
    let running = tokio::spawn(relay.run(stop.clone()));
    server.holds(MESSAGES).await?;
    stop.cancel();
    running.await??;
    Ok(nats)
}

async fn single(handled: &Handled, tx: &mut Tx<'_, MySql>, order: Delivery<Placed>) -> HandlerResult {
    sqlx::query(EFFECT).bind(order.order_id).bind(order.n).execute(&mut **tx).await?;
    handled.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Ok(())
}

/// Returns deliveries per second, until the last one is acknowledged and the runtime has stopped.
async fn by_handler(store: &Store<MySql>, nats: &Nats, name: &'static str) -> Result<f64, Failure> {
    let (count, stop) = (Handled::default(), CancellationToken::new());
    let handler = handler_fn(Policy::new(name).concurrency(CONCURRENCY), single);
    let consumer = Consumer::new(store.clone(), count.clone()).transport(nats.clone()).register(handler);
    let started = Instant::now();
    let running = tokio::spawn(consumer.run(stop.clone()));
    wait_for(&count, MESSAGES).await;
    stop.cancel();
    running.await??;
    Ok(MESSAGES as f64 / started.elapsed().as_secs_f64())
}

/// Returns deliveries per second of a loop by hand, until the last one is acknowledged.
async fn by_hand(server: &Server, pool: &MySqlPool, consumer: &str) -> Result<f64, Failure> {
    let config = pull::Config { durable_name: Some(consumer.to_owned()), ..Default::default() };
    let source = server.stream().await?.create_consumer(config).await?;
    let started = Instant::now();
    let messages = source.stream().max_messages_per_batch(CONCURRENCY).messages().await?;
    let each = |message| {
        let task = tokio::spawn(handled_by_hand(pool.clone(), consumer.to_owned(), message));
        async move { task.await? }
    };
    let messages = messages.take(MESSAGES).map_err(Failure::from);
    messages.try_for_each_concurrent(CONCURRENCY, each).await?;
    Ok(MESSAGES as f64 / started.elapsed().as_secs_f64())
}

async fn handled_by_hand(pool: MySqlPool, consumer: String, message: Message) -> Result<(), Failure> {
    let order: Placed = serde_json::from_slice(&message.payload)?;
    let header = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id"));
    let id = header.map(ToString::to_string).unwrap_or_default();
    let mut tx = pool.begin().await?;
    if sqlx::query(CLAIM).bind(consumer).bind(id).execute(&mut *tx).await?.rows_affected() == 1 {
        sqlx::query(EFFECT).bind(order.order_id).bind(order.n).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    message.double_ack().await
}
