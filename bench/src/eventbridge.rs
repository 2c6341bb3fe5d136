//! A relay that sends a backlog to EventBridge, as a ratio to a bare loop of the SDK that sends the same
//! entries.
use crate::{failure::Failure, orders, report::Report, spread::Spread};
use aws_config::{BehaviorVersion, Region};
use aws_sdk_eventbridge::{Client, config::Credentials, primitives::DateTime, types::PutEventsRequestEntry};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use sqlx::Postgres;
use std::time::{Duration, Instant};
use twinbox::{
    CancellationToken, Store,
    aws::{EventBridge, EventBridgeOptions},
    relay::Relay,
};
use twinbox_testkit::aws::FakeEventBridge;

/// So many that the beginning, in which a relay sends few requests at a time, is a small part.
const MESSAGES: usize = 60_000;
const RUNS: usize = 5;
const BUS_TAKES: Duration = Duration::from_millis(20);
/// Requests at the same time, as many as a relay sends.
const REQUESTS: usize = 32;
/// Entries of a request.
const ENTRIES: usize = 10;
const KEY: (&str, &str) = ("AKIDEXAMPLE", "secret");

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let store = orders::filled(MESSAGES, MESSAGES).await?;
    println!(
        "{MESSAGES} messages of 0.5 KB, a bus of {} ms, {REQUESTS} requests of {ENTRIES} at the same time, \
        {RUNS} interleaved runs",
        BUS_TAKES.as_millis()
    );
    let mut ratios = Vec::new();
    for run in 0..RUNS {
        let (relayed, entries) = relay(&store, run).await?;
        let bare = bare(entries).await?;
        println!("  bare {bare:>6.0}/s   relay {relayed:>6.0}/s   ratio {:.2}", relayed / bare);
        ratios.push(relayed / bare);
    }
    report.add("EventBridge / bare SDK loop", Spread::of(ratios))
}

async fn bus() -> Result<FakeEventBridge, Failure> {
    let fake = FakeEventBridge::start("orders").await?;
    fake.delay(BUS_TAKES);
    Ok(fake)
}

/// Relays all messages. Returns messages per second, and the entries that were sent.
async fn relay(store: &Store<Postgres>, run: usize) -> Result<(f64, Vec<Value>), Failure> {
    let fake = bus().await?;
    let options = EventBridgeOptions::new("orders").id(format!("bench-{run}")).region("eu-central-1");
    let options = options.endpoint_url(fake.endpoint_url()).credentials(KEY.0, KEY.1, None);
    let relay = Relay::new(store.clone(), EventBridge::with_options(options)?);
    let (stop, counters) = (CancellationToken::new(), relay.counters());
    let started = Instant::now();
    let running = tokio::spawn(relay.run(stop.clone()));
    while counters.published() < MESSAGES as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = MESSAGES as f64 / started.elapsed().as_secs_f64();
    stop.cancel();
    running.await??;
    Ok((rate, fake.taken()))
}

/// Sends entries with the SDK. Returns entries per second.
async fn bare(entries: Vec<Value>) -> Result<f64, Failure> {
    let fake = bus().await?;
    let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .region(Region::new("eu-central-1"))
        .endpoint_url(fake.endpoint_url())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .credentials_provider(Credentials::new(KEY.0, KEY.1, None, None, "bench"));
    let client = Client::new(&config.load().await);
    let text = |entry: &Value, field: &str| entry[field].as_str().map(str::to_owned);
    let request = |entry: &Value| {
        PutEventsRequestEntry::builder()
            .event_bus_name("orders")
            .set_source(text(entry, "Source"))
            .set_detail_type(text(entry, "DetailType"))
            .set_detail(text(entry, "Detail"))
            .set_trace_header(text(entry, "TraceHeader"))
            .set_time(entry["Time"].as_f64().map(DateTime::from_secs_f64))
            .build()
    };
    let entries: Vec<_> = entries.iter().map(request).collect();
    let started = Instant::now();
    let requests = stream::iter(entries.chunks(ENTRIES).map(<[_]>::to_vec)).map(Ok::<_, Failure>);
    let send = async |entries| {
        let sent = client.put_events().set_entries(Some(entries)).send().await?;
        match sent.failed_entry_count() {
            0 => Ok(()),
            failed => Err(format!("{failed} entries failed").into()),
        }
    };
    requests.try_for_each_concurrent(REQUESTS, send).await?;
    Ok(MESSAGES as f64 / started.elapsed().as_secs_f64())
}
