//! A relay that sends a backlog to JetStream, as a ratio to the bare client.
use crate::{
    failure::Failure,
    nats::{IN_FLIGHT, Server},
    orders,
    spread::Spread,
};
use std::time::{Duration, Instant};
use twinbox::{
    CancellationToken,
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::database;

const BACKLOG: usize = 400_000;
const RUNS: usize = 5;

pub(crate) async fn run() -> Result<(), Failure> {
    let server = Server::connect().await?;
    let store = database::postgres().await;
    orders::fill(&store, BACKLOG).await?;
    println!("{BACKLOG} messages of 0.5 KB, {IN_FLIGHT} in flight, {RUNS} interleaved runs");
    server.raw(BACKLOG / 5).await?;
    let (mut raws, mut relays, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        let raw = server.raw(BACKLOG).await?;
        let raw_bytes = server.bytes_each(BACKLOG).await?;
        let destination = server.destination(run).await?;
        let relay = Relay::with_options(store.clone(), destination, RelayOptions::new().in_flight(IN_FLIGHT));
        let (stop, counters) = (CancellationToken::new(), relay.counters());
        let started = Instant::now();
        let running = tokio::spawn(relay.run(stop.clone()));
        // Until the last acknowledgement, as for the raw limit. Asking the server meanwhile would slow it
        // down.
        while counters.published() < BACKLOG as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let relayed = BACKLOG as f64 / started.elapsed().as_secs_f64();
        server.holds(BACKLOG).await?;
        let bytes = server.bytes_each(BACKLOG).await?;
        if (bytes - raw_bytes).abs() > raw_bytes / 100.0 {
            return Err(format!("a relayed message has {bytes:.0} bytes, a raw one {raw_bytes:.0}").into());
        }
        stop.cancel();
        running.await??;
        println!("  raw {raw:>9.0}/s   relay {relayed:>9.0}/s   ratio {:.2}", relayed / raw);
        raws.push(raw);
        relays.push(relayed);
        ratios.push(relayed / raw);
    }
    server.delete().await;
    println!("raw    {:.0}/s", Spread::of(raws));
    println!("relay  {:.0}/s", Spread::of(relays));
    println!("ratio  {:.2}", Spread::of(ratios));
    Ok(())
}
