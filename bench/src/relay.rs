//! A relay that sends a backlog to JetStream, as a ratio to the bare client.
use crate::{
    failure::Failure,
    nats::{IN_FLIGHT, Server},
    orders,
    spread::Spread,
};
use sqlx::Postgres;
use std::time::{Duration, Instant};
use twinbox::{
    CancellationToken, Store,
    nats::StreamOptions,
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::database;

const BACKLOG: usize = 400_000;
const RUNS: usize = 5;

pub(crate) async fn run() -> Result<(), Failure> {
    let server = Server::connect().await?;
    let (store, one_key) = (database::postgres().await, database::postgres().await);
    orders::fill(&store, BACKLOG).await?;
    orders::fill_one_key(&one_key, BACKLOG).await?;
    println!("{BACKLOG} messages of 0.5 KB, {IN_FLIGHT} in flight, {RUNS} interleaved runs");
    server.raw(BACKLOG / 5).await?;
    let in_batches = StreamOptions::default();
    let one_by_one = in_batches.clone().batches(false);
    let mut rates: [Vec<f64>; 5] = Default::default();
    for run in 0..RUNS {
        let raw = server.raw(BACKLOG).await?;
        let bytes = server.bytes_each(BACKLOG).await?;
        let batches = server.raw_in_batches(BACKLOG).await?;
        let alone = relay(&server, &store, run, &one_by_one, bytes).await?;
        let relayed = relay(&server, &store, RUNS + run, &in_batches, bytes).await?;
        let hot = relay(&server, &one_key, run, &in_batches, bytes).await?;
        let found = [raw, batches, alone, relayed, hot];
        println!(
            "  raw {raw:>7.0}/s, in batches {batches:>7.0}/s   relay one by one {alone:>7.0}/s, in batches \
             {relayed:>7.0}/s, one key {hot:>7.0}/s"
        );
        rates.iter_mut().zip(found).for_each(|(all, rate)| all.push(rate));
    }
    server.delete().await;
    let ratio = |a: usize, b: usize| Spread::of(rates[a].iter().zip(&rates[b]).map(|(a, b)| a / b));
    for (n, what) in ["raw", "raw in batches", "relay one by one", "relay in batches", "relay of one key"]
        .into_iter()
        .enumerate()
    {
        println!("{what:<36} {:.0}/s", Spread::of(rates[n].clone()));
    }
    println!("relay one by one / raw               {:.2}", ratio(2, 0));
    println!("relay in batches / raw in batches    {:.2}", ratio(3, 1));
    println!("relay in batches / raw               {:.2}", ratio(3, 0));
    println!("relay of one key / relay in batches  {:.2}", ratio(4, 3));
    Ok(())
}

/// Relays the whole backlog to a new stream. Returns messages per second, until the last acknowledgement.
async fn relay(
    server: &Server,
    store: &Store<Postgres>,
    run: usize,
    stream: &StreamOptions,
    raw_bytes: f64,
) -> Result<f64, Failure> {
    let destination = server.destination_of(run, stream).await?;
    let relay = Relay::with_options(store.clone(), destination, RelayOptions::new().in_flight(IN_FLIGHT));
    let (stop, counters) = (CancellationToken::new(), relay.counters());
    let started = Instant::now();
    let running = tokio::spawn(relay.run(stop.clone()));
    // Asking the server meanwhile would slow it down.
    while counters.published() < BACKLOG as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = BACKLOG as f64 / started.elapsed().as_secs_f64();
    server.holds(BACKLOG).await?;
    let bytes = server.bytes_each(BACKLOG).await?;
    if (bytes - raw_bytes).abs() > raw_bytes / 100.0 {
        return Err(format!("a relayed message has {bytes:.0} bytes, a raw one {raw_bytes:.0}").into());
    }
    stop.cancel();
    running.await??;
    Ok(rate)
}
