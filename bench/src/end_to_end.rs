//! The whole path of a backlog: outbox, relay, JetStream, consumer, effect.
use crate::{
    consumer::{EFFECTS_TABLE, Handled, single, wait_for},
    failure::Failure,
    nats::Server,
    orders,
    report::Report,
    spread::Spread,
};
use sqlx::Postgres;
use std::time::Instant;
use twinbox::{CancellationToken, Consumer, Policy, Store, handler_fn, relay::Relay};
use twinbox_testkit::database;

const MESSAGES: usize = 20_000;
const CONCURRENCY: usize = 8;
const RUNS: usize = 5;

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let server = Server::connect().await?;
    let store = database::postgres().await;
    sqlx::raw_sql(EFFECTS_TABLE).execute(store.pool()).await?;
    orders::fill(&store, MESSAGES).await?;
    println!("{MESSAGES} messages of 0.5 KB through relay and consumer at the same time, {RUNS} runs");
    let mut rates = Vec::new();
    for run in 0..RUNS {
        rates.push(handled(&server, &store, run).await?);
        for cleaned in ["TRUNCATE effects", "DELETE FROM twinbox.inbox", "VACUUM ANALYZE twinbox.inbox"] {
            sqlx::raw_sql(cleaned).execute(store.pool()).await?;
        }
    }
    server.delete().await;
    report.add("end to end, messages/s", Spread::of(rates))
}

/// Returns messages per second, from an empty stream until the last one is handled.
async fn handled(server: &Server, store: &Store<Postgres>, run: usize) -> Result<f64, Failure> {
    let nats = server.destination(run).await?;
    let (count, stop) = (Handled::default(), CancellationToken::new());
    let policy = Policy::new(format!("bench.end-to-end-{run}").leak()).concurrency(CONCURRENCY);
    let consumer = Consumer::new(store.clone(), count.clone()).transport(nats.clone());
    let consumer = consumer.register(handler_fn(policy, single));
    let started = Instant::now();
    let relaying = tokio::spawn(Relay::new(store.clone(), nats).run(stop.clone()));
    let consuming = tokio::spawn(consumer.run(stop.clone()));
    wait_for(&count, MESSAGES).await;
    let rate = MESSAGES as f64 / started.elapsed().as_secs_f64();
    stop.cancel();
    relaying.await??;
    consuming.await??;
    Ok(rate)
}
