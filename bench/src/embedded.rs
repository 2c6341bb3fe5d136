//! A consumer that reads the log of a SQLite file, as a ratio to a loop by hand: claim, effect, commit.
use crate::{
    consumer::{Handled, wait_for},
    failure::Failure,
    orders::{self, Placed},
    report::Report,
    spread::Spread,
};
use sqlx::{Connection as _, Row as _, Sqlite, SqlitePool};
use std::{sync::atomic::Ordering::Relaxed, time::Instant};
use twinbox::{CancellationToken, Consumer, Delivery, HandlerResult, Policy, Store, Tx, handler_fn};
use twinbox_testkit::database;

const MESSAGES: usize = 20_000;
const RUNS: usize = 5;
/// Rows that the loop reads at a time.
const PAGE: i64 = 1_000;

const EFFECT: &str = "INSERT INTO effects (order_id, n) VALUES (?, ?)";

async fn handle(handled: &Handled, tx: &mut Tx<'_, Sqlite>, order: Delivery<Placed>) -> HandlerResult {
    sqlx::query(EFFECT).bind(order.order_id.to_string()).bind(order.n).execute(&mut **tx).await?;
    handled.fetch_add(1, Relaxed);
    Ok(())
}

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let store = database::sqlite().await;
    let tables = "CREATE TABLE effects (order_id TEXT NOT NULL, n INTEGER NOT NULL);
        CREATE TABLE by_hand (consumer TEXT, message_id TEXT, PRIMARY KEY (consumer, message_id))
            WITHOUT ROWID;";
    sqlx::raw_sql(tables).execute(store.pool()).await?;
    orders::publish(&store, MESSAGES, orders::draft).await?;
    println!("{MESSAGES} messages of 0.5 KB in a SQLite file, {RUNS} interleaved runs");
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        // A task of the runtime, as a loop in a service is, and as our handlers are. sqlx's thread wakes the
        // thread of `block_on` twice as fast.
        let alone = tokio::spawn(by_hand(store.pool().clone(), run)).await??;
        let rate = handled(&store, run).await?;
        println!("  by hand {alone:>6.0}/s   consumer {rate:>6.0}/s   ratio {:.2}", rate / alone);
        ratios.push(rate / alone);
        rates.push(rate);
    }
    report.add("embedded consumer, messages/s", Spread::of(rates))?;
    report.add("embedded / loop by hand", Spread::of(ratios))
}

async fn handled(store: &Store<Sqlite>, run: usize) -> Result<f64, Failure> {
    let (count, stop) = (Handled::default(), CancellationToken::new());
    let policy = Policy::new(format!("bench.embedded-{run}").leak());
    let consumer = Consumer::new(store.clone(), count.clone()).register(handler_fn(policy, handle));
    let started = Instant::now();
    let running = tokio::spawn(consumer.run(stop.clone()));
    wait_for(&count, MESSAGES).await;
    stop.cancel();
    running.await??;
    Ok(MESSAGES as f64 / started.elapsed().as_secs_f64())
}

/// Returns messages per second. The loop has one connection, as a file has one writer.
async fn by_hand(pool: SqlitePool, run: usize) -> Result<f64, Failure> {
    let consumer = format!("by-hand-{run}");
    let started = Instant::now();
    let (mut conn, mut handled, mut after) = (pool.acquire().await?, 0, 0i64);
    while handled < MESSAGES {
        let page =
            "SELECT position, id, payload FROM twinbox_outbox WHERE position > ? ORDER BY position LIMIT ?";
        for row in sqlx::query(page).bind(after).bind(PAGE).fetch_all(&mut *conn).await? {
            after = row.try_get("position")?;
            let order: Placed = serde_json::from_slice(row.try_get("payload")?)?;
            let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
            let claim = "INSERT INTO by_hand (consumer, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING";
            let claim = sqlx::query(claim).bind(&consumer).bind(row.try_get::<String, _>("id")?);
            if claim.execute(&mut *tx).await?.rows_affected() == 1 {
                sqlx::query(EFFECT).bind(order.order_id.to_string()).bind(order.n).execute(&mut *tx).await?;
                tx.commit().await?;
            }
            handled += 1;
        }
    }
    Ok(MESSAGES as f64 / started.elapsed().as_secs_f64())
}
