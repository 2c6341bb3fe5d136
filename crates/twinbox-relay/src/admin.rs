//! The program's listener for probes and metrics.
use crate::{Breaker, BreakerState, Error, program::Failure};
use axum::{Router, extract::State, http::StatusCode, routing::get};
use metrics::{Unit, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;
use twinbox_sql::{Dialect, Store};

/// How long the database may take to answer a probe.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the recorder empties what was recorded into its buckets, whether or not anybody asks.
const UPKEEP: Duration = Duration::from_secs(5);
/// Seconds.
const LAG_BUCKETS: [f64; 13] =
    [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];

/// Destinations that were not set up as asked when they were tried last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Broken(Arc<Mutex<BTreeMap<String, (String, Breaker)>>>);

impl Broken {
    /// It is broken until the breaker of its next try closes.
    pub(crate) fn add(&self, destination: &str, error: &Error, again: Breaker) {
        let mut broken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        broken.insert(destination.to_owned(), (error.to_string(), again));
    }

    /// A line for each.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut broken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        broken.retain(|_, (_, breaker)| breaker.state() != BreakerState::Closed);
        broken.iter().map(|(id, (why, _))| format!("destination {id}: {why}")).collect()
    }
}

struct Admin<DB: Dialect> {
    store: Store<DB>,
    destinations: usize,
    broken: Broken,
    recorded: PrometheusHandle,
}

/// Installs the recorder of metrics, which has to be there before the relays are, and serves until `stop`.
///
/// # Errors
/// Nothing can listen at the address.
pub(crate) async fn serve<DB: Dialect>(
    address: SocketAddr,
    store: Store<DB>,
    destinations: usize,
    broken: Broken,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let lag = Matcher::Full("twinbox.relay.lag".to_owned());
    let recorder = PrometheusBuilder::new().with_recommended_naming(true);
    let recorded = recorder.set_buckets_for_metric(lag, &LAG_BUCKETS)?.install_recorder()?;
    describe();
    let listener = TcpListener::bind(address).await.map_err(|e| format!("`admin.listen` {address}: {e}"))?;
    tracing::info!(address = %listener.local_addr()?, "the admin listener is up");
    let admin = Arc::new(Admin { store, destinations, broken, recorded: recorded.clone() });
    let router = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz::<DB>))
        .route("/metrics", get(metrics::<DB>))
        .with_state(admin);
    let stopped = stop.clone().cancelled_owned();
    tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            recorded.run_upkeep();
        }
    }));
    Ok(())
}

/// Ready: the database answers, its tables fit, and at least one destination is set up as asked. A destination
/// that is down makes nobody unready: no other relay would do better.
async fn readyz<DB: Dialect>(State(admin): State<Arc<Admin<DB>>>) -> (StatusCode, String) {
    let mut reasons = Vec::new();
    match timeout(PATIENCE, admin.store.check()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => reasons.push(format!("database: {error}")),
        Err(_) => reasons.push("database: no answer".to_owned()),
    }
    let broken = admin.broken.all();
    if reasons.is_empty() && broken.len() < admin.destinations {
        return (StatusCode::OK, [&["ok".to_owned()], &*broken].concat().join("\n") + "\n");
    }
    reasons.extend(broken);
    (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n")
}

/// What is counted here, and what the database tells, unless it is away.
async fn metrics<DB: Dialect>(State(admin): State<Arc<Admin<DB>>>) -> String {
    let looked = timeout(PATIENCE, look(&admin.store)).await;
    let up = matches!(looked, Ok(Ok(())));
    gauge!("twinbox.relay.database.up").set(if up { 1.0 } else { 0.0 });
    admin.recorded.render()
}

async fn look<DB: Dialect>(store: &Store<DB>) -> Result<(), twinbox_sql::Error> {
    let asked_at = Instant::now();
    drop(store.pool().acquire().await?);
    gauge!("twinbox.relay.pool.wait").set(asked_at.elapsed());
    let idle = store.pool().num_idle();
    gauge!("twinbox.relay.pool.connections", "state" => "idle").set(idle as f64);
    gauge!("twinbox.relay.pool.connections", "state" => "used")
        .set(f64::from(store.pool().size()) - idle as f64);
    for reader in store.readers().await? {
        let gauge = |name: &'static str| gauge!(name, "destination" => reader.name.clone());
        gauge("twinbox.relay.backlog").set(reader.backlog as f64);
        gauge("twinbox.relay.oldest").set(reader.oldest);
        gauge("twinbox.relay.alive").set(if reader.lease.is_some() { 1.0 } else { 0.0 });
        gauge("twinbox.relay.held").set(if reader.held.is_some() { 1.0 } else { 0.0 });
        for (state, count) in
            [("waiting", reader.waiting), ("dead", reader.dead), ("blocking", reader.blocking)]
        {
            let labels = [("destination", reader.name.clone()), ("state", state.to_owned())];
            gauge!("twinbox.relay.parked", &labels).set(count as f64);
        }
    }
    Ok(())
}

fn describe() {
    describe_histogram!("twinbox.relay.lag", Unit::Seconds, "From publishing to the acknowledgement");
    describe_gauge!("twinbox.relay.backlog", "Messages that are not settled, counted up to 10,000");
    describe_gauge!("twinbox.relay.oldest", Unit::Seconds, "Age of the oldest message that is not settled");
    describe_gauge!("twinbox.relay.alive", "Whether some process relays to the destination");
    describe_gauge!("twinbox.relay.held", "Whether its breaker was opened by hand");
    describe_gauge!("twinbox.relay.parked", "Messages put aside, by state");
    describe_gauge!("twinbox.relay.pool.wait", Unit::Seconds, "How long this look waited for a connection");
    describe_gauge!("twinbox.relay.database.up", "Whether the database answered this look");
}
