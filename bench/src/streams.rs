//! A destination on a cluster of three servers, with one stream and with four. All servers run on this
//! machine, so the ratio shows what spreading costs, and not what three machines win.
use crate::{failure::Failure, nats::IN_FLIGHT, orders, report::Report, spread::Spread};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use twinbox::{
    CancellationToken, Store,
    nats::{Nats, NatsOptions, StreamOptions},
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::cluster::NatsCluster;

const MESSAGES: usize = 100_000;
const RUNS: usize = 5;
const STREAMS: [u32; 2] = [1, 4];

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let cluster = NatsCluster::start().await?;
    let store = orders::filled(MESSAGES, MESSAGES).await?;
    println!("messages of 0.5 KB, three copies, {RUNS} interleaved runs");
    let mut rates: [Vec<f64>; STREAMS.len()] = Default::default();
    for run in 0..RUNS {
        for (rates, streams) in rates.iter_mut().zip(STREAMS) {
            rates.push(relayed(&cluster.url(), &store, streams, run).await?);
        }
        println!("  one stream {:.0}/s, four {:.0}/s", rates[0][run], rates[1][run]);
    }
    let ratio = Spread::of(rates[1].iter().zip(&rates[0]).map(|(four, one)| four / one));
    report.add("relay to a cluster, one stream, messages/s", Spread::of(rates[0].clone()))?;
    report.add("relay to a cluster: four streams / one", ratio)
}

/// Returns messages a second, between a tenth and 95 % of the backlog.
async fn relayed(url: &str, store: &Store<sqlx::Postgres>, streams: u32, run: usize) -> Result<f64, Failure> {
    let name = format!("bench-{streams}-{run}");
    let options = NatsOptions::new(url).id(&name).stream(&name).prefix(&name).streams(streams);
    let nats = Nats::with_options(options)?;
    let replicated = StreamOptions::default().replicas(3);
    while nats.provision(&replicated).await.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    let relay = Relay::with_options(store.clone(), nats, RelayOptions::new().in_flight(IN_FLIGHT));
    let (counters, stop) = (relay.counters(), CancellationToken::new());
    let running = tokio::spawn(relay.run(stop.clone()));
    let mut times = [MESSAGES / 10, MESSAGES * 95 / 100].map(|count| (count as u64, Instant::now()));
    for (count, at) in &mut times {
        while counters.published() < *count {
            sleep(Duration::from_millis(1)).await;
        }
        (*count, *at) = (counters.published(), Instant::now());
    }
    stop.cancel();
    running.await??;
    let jetstream =
        async_nats::jetstream::new(async_nats::connect(url.split(',').next().unwrap_or(url)).await?);
    for number in 0..streams {
        let stream = if streams == 1 { name.clone() } else { format!("{name}-{number}") };
        jetstream.delete_stream(stream).await?;
    }
    let [(first, began), (last, ended)] = times;
    Ok((last - first) as f64 / (ended - began).as_secs_f64())
}
