//! A consumer on JetStream, as a ratio to hand-written loops with the fewest statements that still remove
//! duplicates: for single deliveries, in the order of keys, and for batches.
use crate::{
    failure::Failure,
    nats::{IN_FLIGHT, Server},
    orders::{self, Placed},
    report::Report,
    spread::Spread,
};
use async_nats::jetstream::{Message, consumer::pull};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all};
use sqlx::{PgPool, Postgres};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use twinbox::{
    BatchTx, CancellationToken, Consumer, Delivery, Dialect, HandlerResult, Policy, Store, Tx,
    consumer::{DeliveryOrder, Handler},
    handler_fn,
    nats::Nats,
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::database;

const MESSAGES: usize = 20_000;
pub(crate) const CONCURRENCY: usize = 8;
const BATCH: usize = 200;
const RUNS: usize = 5;

/// The number of deliveries whose handler has run.
pub(crate) type Handled = Arc<AtomicUsize>;

const EFFECT: &str = "INSERT INTO effects (order_id, n) VALUES ($1, $2)";
const EFFECTS: &str = "INSERT INTO effects (order_id, n) SELECT * FROM unnest($1::uuid[], $2::bigint[])";

pub(crate) async fn single(
    handled: &Handled,
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Placed>,
) -> HandlerResult {
    sqlx::query(EFFECT).bind(order.order_id).bind(order.n).execute(&mut **tx).await?;
    handled.fetch_add(1, Relaxed);
    Ok(())
}

async fn batch(
    handled: &Handled,
    tx: &mut BatchTx<'_, Postgres>,
    orders: Vec<Delivery<Placed>>,
) -> HandlerResult {
    let (ids, ns): (Vec<_>, Vec<_>) = orders.iter().map(|order| (order.order_id, order.n)).unzip();
    sqlx::query(EFFECTS).bind(ids).bind(ns).execute(&mut **tx).await?;
    handled.fetch_add(orders.len(), Relaxed);
    Ok(())
}

/// The table of the handlers.
pub(crate) const EFFECTS_TABLE: &str = "CREATE TABLE effects (order_id uuid NOT NULL, n bigint NOT NULL)";

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let server = Server::connect().await?;
    let store = database::postgres().await;
    for table in [EFFECTS_TABLE, BY_HAND_TABLE] {
        sqlx::raw_sql(table).execute(store.pool()).await?;
    }
    orders::fill(&store, MESSAGES).await?;
    let nats = relayed(&server, &store, MESSAGES).await?;
    println!(
        "{MESSAGES} messages of 0.5 KB, {CONCURRENCY} at a time, batches of {BATCH}, {RUNS} interleaved runs"
    );
    by_hand(&server, store.pool(), "warm-up").await?;
    let mut rates: [Vec<f64>; 5] = Default::default();
    for run in 0..RUNS {
        let policy = |kind| Policy::new(name(kind, run)).concurrency(CONCURRENCY);
        let found = [
            by_hand(&server, store.pool(), &format!("by-hand-{run}")).await?,
            handled(&store, &nats, handler_fn(policy("single"), single), MESSAGES).await?,
            handled(&store, &nats, handler_fn(policy("ordered").order(DeliveryOrder::Key), single), MESSAGES)
                .await?,
            batches_by_hand(&server, store.pool(), &format!("batches-by-hand-{run}")).await?,
            handled(&store, &nats, handler_fn(policy("batch").batch(BATCH), batch), MESSAGES).await?,
        ];
        let [alone, single, ordered, together, batched] = found;
        println!(
            "  by hand {alone:>6.0}/s, handler {single:>6.0}/s, in order {ordered:>6.0}/s   \
             batches by hand {together:>6.0}/s, handler {batched:>6.0}/s"
        );
        rates.iter_mut().zip(found).for_each(|(all, rate)| all.push(rate));
        for cleaned in
            ["TRUNCATE effects, by_hand", "DELETE FROM twinbox.inbox", "VACUUM ANALYZE twinbox.inbox"]
        {
            sqlx::raw_sql(cleaned).execute(store.pool()).await?;
        }
    }
    server.delete().await;
    let ratio = |a: usize, b: usize| Spread::of(rates[a].iter().zip(&rates[b]).map(|(a, b)| a / b));
    report.add("consumer: single / fewest statements", ratio(1, 0))?;
    report.add("consumer: ordered / unordered", ratio(2, 1))?;
    report.add("consumer: batch / batch by hand", ratio(4, 3))
}

/// Returns the name of a consumer, which must live as long as the program.
fn name(kind: &str, run: usize) -> &'static str {
    format!("bench.{kind}-{run}").leak()
}

/// Returns a stream that has the messages.
pub(crate) async fn relayed<DB: Dialect>(
    server: &Server,
    store: &Store<DB>,
    messages: usize,
) -> Result<Nats, Failure> {
    let nats = server.destination(0).await?;
    let relay = Relay::with_options(store.clone(), nats.clone(), RelayOptions::new().in_flight(IN_FLIGHT));
    let stop = CancellationToken::new();
    let running = tokio::spawn(relay.run(stop.clone()));
    server.holds(messages).await?;
    stop.cancel();
    running.await??;
    Ok(nats)
}

/// Returns deliveries per second, until the last one is acknowledged and the runtime has stopped.
pub(crate) async fn handled<DB: Dialect>(
    store: &Store<DB>,
    nats: &Nats,
    handler: Handler<DB, Handled>,
    messages: usize,
) -> Result<f64, Failure> {
    let (count, stop) = (Handled::default(), CancellationToken::new());
    let consumer = Consumer::new(store.clone(), count.clone()).transport(nats.clone()).register(handler);
    let started = Instant::now();
    let running = tokio::spawn(consumer.run(stop.clone()));
    wait_for(&count, messages).await;
    stop.cancel();
    running.await??;
    Ok(messages as f64 / started.elapsed().as_secs_f64())
}

pub(crate) async fn wait_for(handled: &Handled, count: usize) {
    while handled.load(Relaxed) < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns deliveries per second with the bare clients: claim, effect, commit, confirmed acknowledgement.
async fn by_hand(server: &Server, pool: &PgPool, consumer: &str) -> Result<f64, Failure> {
    let handle = |message| handled_by_hand(pool.clone(), consumer.to_owned(), message);
    loop_by_hand(server, consumer, MESSAGES, handle).await
}

/// Returns deliveries per second of a loop by hand, until the last one is acknowledged.
pub(crate) async fn loop_by_hand<F>(
    server: &Server,
    consumer: &str,
    messages: usize,
    handle: impl Fn(Message) -> F,
) -> Result<f64, Failure>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let config = pull::Config { durable_name: Some(consumer.to_owned()), ..Default::default() };
    let source = server.stream().await?.create_consumer(config).await?;
    let started = Instant::now();
    let source = source.stream().max_messages_per_batch(CONCURRENCY).messages().await?;
    let each = |message| {
        let task = tokio::spawn(handle(message));
        async move { task.await? }
    };
    source.take(messages).map_err(Failure::from).try_for_each_concurrent(CONCURRENCY, each).await?;
    Ok(messages as f64 / started.elapsed().as_secs_f64())
}

const BY_HAND_TABLE: &str =
    "CREATE TABLE by_hand (consumer text, message_id text, PRIMARY KEY (consumer, message_id))";
const CLAIM: &str = "INSERT INTO by_hand (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";

async fn handled_by_hand(pool: PgPool, consumer: String, message: Message) -> Result<(), Failure> {
    let order: Placed = serde_json::from_slice(&message.payload)?;
    let mut tx = pool.begin().await?;
    let claim = sqlx::query(CLAIM).bind(consumer).bind(message_id(&message));
    if claim.execute(&mut *tx).await?.rows_affected() == 1 {
        sqlx::query(EFFECT).bind(order.order_id).bind(order.n).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    message.double_ack().await
}

/// As [`by_hand`], with one transaction for each batch.
async fn batches_by_hand(server: &Server, pool: &PgPool, consumer: &str) -> Result<f64, Failure> {
    let in_flight = i64::try_from(2 * CONCURRENCY * BATCH)?;
    let config = pull::Config {
        durable_name: Some(consumer.to_owned()),
        max_ack_pending: in_flight,
        ..Default::default()
    };
    let source = server.stream().await?.create_consumer(config).await?;
    let started = Instant::now();
    let messages = source.stream().max_messages_per_batch(CONCURRENCY * BATCH).messages().await?;
    let batches = messages.take(MESSAGES).map_err(Failure::from).try_chunks(BATCH).map_err(|error| error.1);
    let each = |messages| {
        let task = tokio::spawn(batch_by_hand(pool.clone(), consumer.to_owned(), messages));
        async move { task.await? }
    };
    batches.try_for_each_concurrent(CONCURRENCY, each).await?;
    Ok(MESSAGES as f64 / started.elapsed().as_secs_f64())
}

const CLAIMS: &str = "INSERT INTO by_hand (consumer, message_id) SELECT $1, * FROM unnest($2::text[]) \
    ON CONFLICT DO NOTHING RETURNING message_id";

async fn batch_by_hand(pool: PgPool, consumer: String, messages: Vec<Message>) -> Result<(), Failure> {
    let mut tx = pool.begin().await?;
    let ids: Vec<_> = messages.iter().map(message_id).collect();
    let new: Vec<String> = sqlx::query_scalar(CLAIMS).bind(consumer).bind(&ids).fetch_all(&mut *tx).await?;
    let new: std::collections::HashSet<_> = new.into_iter().collect();
    let (mut orders, mut ns) = (Vec::new(), Vec::new());
    for (message, _) in messages.iter().zip(&ids).filter(|(_, id)| new.contains(*id)) {
        let order: Placed = serde_json::from_slice(&message.payload)?;
        orders.push(order.order_id);
        ns.push(order.n);
    }
    sqlx::query(EFFECTS).bind(orders).bind(ns).execute(&mut *tx).await?;
    tx.commit().await?;
    try_join_all(messages.iter().map(Message::double_ack)).await?;
    Ok(())
}

pub(crate) fn message_id(message: &Message) -> String {
    let header = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id"));
    header.map(ToString::to_string).unwrap_or_default()
}
