//! A consumer on JetStream and MariaDB, as a ratio to a loop by hand with the fewest statements that still
//! remove duplicates.
use crate::{
    consumer::{CONCURRENCY, Handled, handled, loop_by_hand, message_id, relayed},
    failure::Failure,
    nats::Server,
    orders::{self, Placed},
    report::Report,
    spread::Spread,
};
use async_nats::jetstream::Message;
use sqlx::{MySql, MySqlPool};
use twinbox::{Delivery, HandlerResult, Policy, Tx, handler_fn};
use twinbox_testkit::database;

const MESSAGES: usize = 5_000;
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
    orders::publish(&store, MESSAGES, orders::draft).await?;
    let nats = relayed(&server, &store, MESSAGES).await?;
    println!("consumer: {MESSAGES} messages, {CONCURRENCY} at a time, {RUNS} interleaved runs");
    by_hand(&server, store.pool(), "warm-up").await?;
    let (mut alone, mut by_handler) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        alone.push(by_hand(&server, store.pool(), &format!("by-hand-{run}")).await?);
        let policy = Policy::new(format!("bench.single-{run}").leak()).concurrency(CONCURRENCY);
        by_handler.push(handled(&store, &nats, handler_fn(policy, single), MESSAGES).await?);
        println!("  by hand {:.0}/s, handler {:.0}/s", alone[run], by_handler[run]);
    }
    server.delete().await;
    let ratios = by_handler.iter().zip(&alone).map(|(handler, alone)| handler / alone);
    report.add("MySQL: consumer: single / fewest statements", Spread::of(ratios))
}

async fn single(handled: &Handled, tx: &mut Tx<'_, MySql>, order: Delivery<Placed>) -> HandlerResult {
    sqlx::query(EFFECT).bind(order.order_id).bind(order.n).execute(&mut **tx).await?;
    handled.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Ok(())
}

/// Returns deliveries per second with the bare clients: claim, effect, commit, confirmed acknowledgement.
async fn by_hand(server: &Server, pool: &MySqlPool, consumer: &str) -> Result<f64, Failure> {
    let handle = |message| handled_by_hand(pool.clone(), consumer.to_owned(), message);
    loop_by_hand(server, consumer, MESSAGES, handle).await
}

async fn handled_by_hand(pool: MySqlPool, consumer: String, message: Message) -> Result<(), Failure> {
    let order: Placed = serde_json::from_slice(&message.payload)?;
    let id = message_id(&message);
    let mut tx = pool.begin().await?;
    if sqlx::query(CLAIM).bind(consumer).bind(id).execute(&mut *tx).await?.rows_affected() == 1 {
        sqlx::query(EFFECT).bind(order.order_id).bind(order.n).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    message.double_ack().await
}
