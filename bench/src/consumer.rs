//! A consumer on JetStream, as a ratio to two hand-written loops, and batches as a ratio to single
//! deliveries.
//!
//! One loop runs the same statements. The other runs the fewest statements that still remove duplicates.
use crate::{
    failure::Failure,
    nats::{IN_FLIGHT, Server},
    orders,
    spread::Spread,
};
use async_nats::jetstream::{Message, consumer::pull};
use futures::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, PgPool, Postgres};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use twinbox::{
    BatchTx, CancellationToken, Consumer, Delivery, Event, HandlerResult, MessageId, Policy, Store, Tx,
    consumer::Handler,
    handler_fn,
    log::plans,
    nats::Nats,
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::database;
use uuid::Uuid;

const MESSAGES: usize = 20_000;
const CONCURRENCY: usize = 8;
const BATCH: usize = 200;
const RUNS: usize = 5;

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = order_id)]
struct Placed {
    order_id: Uuid,
    n: i64,
}

/// The number of deliveries whose handler has run.
type Handled = Arc<AtomicUsize>;

const EFFECT: &str = "INSERT INTO effects (order_id, n) VALUES ($1, $2)";

async fn single(handled: &Handled, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
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
    let effects = "INSERT INTO effects (order_id, n) SELECT * FROM unnest($1::uuid[], $2::bigint[])";
    sqlx::query(effects).bind(ids).bind(ns).execute(&mut **tx).await?;
    handled.fetch_add(orders.len(), Relaxed);
    Ok(())
}

pub(crate) async fn run() -> Result<(), Failure> {
    let server = Server::connect().await?;
    let store = database::postgres().await;
    let tables = "CREATE TABLE effects (order_id uuid NOT NULL, n bigint NOT NULL);
        CREATE TABLE by_hand (consumer text, message_id text, PRIMARY KEY (consumer, message_id))";
    sqlx::raw_sql(tables).execute(store.pool()).await?;
    let nats = relayed(&server, &store).await?;
    println!(
        "{MESSAGES} messages of 0.5 KB, {CONCURRENCY} at a time, batches of {BATCH}, {RUNS} interleaved runs"
    );
    let (same, fewest) = (Loop::same(&store), Loop::Fewest);
    by_hand(&server, store.pool(), same.clone(), "warm-up").await?;
    let (mut ratios, mut to_fewest, mut batches) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        let raw = by_hand(&server, store.pool(), same.clone(), &format!("same-{run}")).await?;
        let least = by_hand(&server, store.pool(), fewest.clone(), &format!("fewest-{run}")).await?;
        let policy = Policy::new(name("single", run)).concurrency(CONCURRENCY);
        let singly = handled(&store, &nats, handler_fn(policy, single)).await?;
        let policy = Policy::new(name("batch", run)).concurrency(CONCURRENCY).batch(BATCH);
        let batched = handled(&store, &nats, handler_fn(policy, batch)).await?;
        println!(
            "  by hand {raw:>6.0}/s, fewest {least:>6.0}/s   handler {singly:>6.0}/s   ratio {:.2}, {:.2}   \
             batches {batched:>6.0}/s   ratio {:.1}",
            singly / raw,
            singly / least,
            batched / singly
        );
        ratios.push(singly / raw);
        to_fewest.push(singly / least);
        batches.push(batched / singly);
        for cleaned in
            ["TRUNCATE effects, by_hand", "DELETE FROM twinbox.inbox", "VACUUM ANALYZE twinbox.inbox"]
        {
            sqlx::raw_sql(cleaned).execute(store.pool()).await?;
        }
    }
    server.delete().await;
    println!("handler / by hand   {:.2}", Spread::of(ratios));
    println!("handler / fewest    {:.2}", Spread::of(to_fewest));
    println!("batches / handler   {:.1}", Spread::of(batches));
    Ok(())
}

/// Returns the name of a consumer, which must live as long as the program.
fn name(kind: &str, run: usize) -> &'static str {
    format!("bench.{kind}-{run}").leak()
}

/// Returns a stream that has the messages.
async fn relayed(server: &Server, store: &Store<Postgres>) -> Result<Nats, Failure> {
    orders::fill(store, MESSAGES).await?;
    let nats = server.destination(0).await?;
    let relay = Relay::with_options(store.clone(), nats.clone(), RelayOptions::new().in_flight(IN_FLIGHT));
    let stop = CancellationToken::new();
    let running = tokio::spawn(relay.run(stop.clone()));
    server.holds(MESSAGES).await?;
    stop.cancel();
    running.await??;
    Ok(nats)
}

/// Returns deliveries per second, until the last one is acknowledged and the runtime has stopped.
async fn handled(
    store: &Store<Postgres>,
    nats: &Nats,
    handler: Handler<Postgres, Handled>,
) -> Result<f64, Failure> {
    let (count, stop) = (Handled::default(), CancellationToken::new());
    let consumer = Consumer::new(store.clone(), count.clone()).transport(nats.clone()).register(handler);
    let started = Instant::now();
    let running = tokio::spawn(consumer.run(stop.clone()));
    while count.load(Relaxed) < MESSAGES {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    stop.cancel();
    running.await??;
    Ok(MESSAGES as f64 / started.elapsed().as_secs_f64())
}

/// The statements of a hand-written loop around the effect.
#[derive(Clone)]
enum Loop {
    /// The statements of Twinbox: the claim as text, and the check before COMMIT.
    Same(Arc<str>),
    /// A claim of two columns, and no check before COMMIT.
    Fewest,
}

const FEWEST: &str = "INSERT INTO by_hand (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";

impl Loop {
    fn same(store: &Store<Postgres>) -> Self {
        Self::Same(plans::claim_one(store).into())
    }
}

/// Returns deliveries per second with the bare clients: claim, effect, commit, confirmed acknowledgement.
async fn by_hand(server: &Server, pool: &PgPool, statements: Loop, consumer: &str) -> Result<f64, Failure> {
    let config = pull::Config { durable_name: Some(consumer.to_owned()), ..Default::default() };
    let source = server.stream().await?.create_consumer(config).await?;
    let started = Instant::now();
    let messages = source.stream().max_messages_per_batch(CONCURRENCY).messages().await?;
    let each = |message| {
        let task =
            tokio::spawn(handled_by_hand(pool.clone(), statements.clone(), consumer.to_owned(), message));
        async move { task.await? }
    };
    let messages = messages.take(MESSAGES).map_err(Failure::from);
    messages.try_for_each_concurrent(CONCURRENCY, each).await?;
    Ok(MESSAGES as f64 / started.elapsed().as_secs_f64())
}

async fn handled_by_hand(
    pool: PgPool,
    statements: Loop,
    consumer: String,
    message: Message,
) -> Result<(), Failure> {
    let header = |name| message.headers.as_ref().and_then(|headers| headers.get(name));
    let header = |name| header(name).map(|value| value.as_str()).unwrap_or_default();
    let order: Placed = serde_json::from_slice(&message.payload)?;
    let mut tx = pool.begin().await?;
    let mut claimed = None;
    match &statements {
        Loop::Same(claim) => {
            let id = MessageId::of(header("ce-source"), header("ce-id"));
            let claim = sqlx::query_as::<_, (String,)>(AssertSqlSafe(claim.clone()))
                .bind(consumer)
                .bind(id.as_uuid())
                .bind(header("ce-source"))
                .bind(header("ce-id"))
                .bind(Sha256::digest(&message.payload).to_vec())
                .bind(OffsetDateTime::parse(header("ce-time"), &Rfc3339)?);
            claimed = claim.fetch_optional(&mut *tx).await?.map(|(transaction,)| transaction);
        }
        Loop::Fewest => {
            let claim = sqlx::query(FEWEST).bind(consumer).bind(header("Nats-Msg-Id"));
            if claim.execute(&mut *tx).await?.rows_affected() == 1 {
                claimed = Some(String::new());
            }
        }
    }
    if let Some(transaction) = claimed {
        sqlx::query(EFFECT).bind(order.order_id).bind(order.n).execute(&mut *tx).await?;
        if matches!(statements, Loop::Same(_)) {
            sqlx::query(plans::ALLOW_COMMIT).bind(transaction).execute(&mut *tx).await?;
        }
        tx.commit().await?;
    }
    message.double_ack().await
}
