//! The program's listener for probes and metrics.
use crate::{
    Breaker, BreakerState, Error,
    program::Failure,
    schemas::{Schema, Schemas},
};
use axum::{Router, extract::State, http::StatusCode, routing::get};
use futures::future::join_all;
use metrics::{Label, Unit, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;
use twinbox_sql::Dialect;

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
    schemas: Arc<Schemas<DB>>,
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
    schemas: Arc<Schemas<DB>>,
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
    let admin = Arc::new(Admin { schemas, destinations, broken, recorded: recorded.clone() });
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

/// Ready: the database answers, its tables fit in every schema, and at least one destination is set up as asked. A
/// destination that is down makes nobody unready: no other relay would do better.
async fn readyz<DB: Dialect>(State(admin): State<Arc<Admin<DB>>>) -> (StatusCode, String) {
    let mut reasons = Vec::new();
    let looks =
        admin.schemas.all().iter().map(async |schema| match timeout(PATIENCE, schema.store.check()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{}: {error}", schema.title)),
            Err(_) => Some(format!("{}: no answer", schema.title)),
        });
    reasons.extend(join_all(looks).await.into_iter().flatten());
    let broken = admin.broken.all();
    if reasons.is_empty() && broken.len() < admin.destinations {
        return (StatusCode::OK, [&["ok".to_owned()], &*broken].concat().join("\n") + "\n");
    }
    reasons.extend(broken);
    (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n")
}

/// What is counted here, and what the database tells, unless it is away.
async fn metrics<DB: Dialect>(State(admin): State<Arc<Admin<DB>>>) -> String {
    let looked = timeout(PATIENCE, look(&admin.schemas)).await;
    let up = matches!(looked, Ok(Ok(())));
    gauge!("twinbox.relay.database.up").set(if up { 1.0 } else { 0.0 });
    admin.recorded.render()
}

async fn look<DB: Dialect>(schemas: &Schemas<DB>) -> Result<(), twinbox_sql::Error> {
    let pool = schemas.all()[0].store.pool();
    let asked_at = Instant::now();
    drop(pool.acquire().await?);
    gauge!("twinbox.relay.pool.wait").set(asked_at.elapsed());
    let idle = pool.num_idle();
    gauge!("twinbox.relay.pool.connections", "state" => "idle").set(idle as f64);
    gauge!("twinbox.relay.pool.connections", "state" => "used").set(f64::from(pool.size()) - idle as f64);
    let mut looked = Ok(());
    for schema in schemas.all() {
        looked = looked.and(look_at(schema, schemas.are_several()).await);
    }
    looked
}

/// Two schemas may have readers of one name: with several they are told apart.
async fn look_at<DB: Dialect>(schema: &Schema<DB>, told_apart: bool) -> Result<(), twinbox_sql::Error> {
    for reader in schema.store.readers().await? {
        let mut labels = vec![Label::new("destination", reader.name)];
        labels.extend(told_apart.then(|| Label::new("schema", schema.name.clone())));
        let gauge = |name: &'static str| gauge!(name, labels.clone());
        gauge("twinbox.relay.backlog").set(reader.backlog as f64);
        gauge("twinbox.relay.oldest").set(reader.oldest);
        gauge("twinbox.relay.alive").set(if reader.lease.is_some() { 1.0 } else { 0.0 });
        gauge("twinbox.relay.held").set(if reader.held.is_some() { 1.0 } else { 0.0 });
        for (state, count) in
            [("waiting", reader.waiting), ("dead", reader.dead), ("blocking", reader.blocking)]
        {
            let state = Label::new("state", state);
            gauge!("twinbox.relay.parked", [&*labels, &[state]].concat()).set(count as f64);
        }
    }
    let labels = told_apart.then(|| Label::new("schema", schema.name.clone()));
    let unfinished = schema.store.count_unfinished().await?;
    gauge!("twinbox.keys.unfinished", Vec::from_iter(labels)).set(unfinished as f64);
    Ok(())
}

fn describe() {
    describe_histogram!("twinbox.relay.lag", Unit::Seconds, "From publishing to the acknowledgement");
    describe_gauge!("twinbox.relay.backlog", "Messages that are not settled, counted up to 10,000");
    describe_gauge!("twinbox.relay.oldest", Unit::Seconds, "Age of the oldest message that is not settled");
    describe_gauge!("twinbox.relay.alive", "Whether some process relays to the destination");
    describe_gauge!("twinbox.relay.held", "Whether its breaker was opened by hand");
    describe_gauge!("twinbox.relay.parked", "Messages put aside, by state");
    let unfinished =
        "Idempotency keys whose request called somebody, or may have, and never ended, up to 10,000";
    describe_gauge!("twinbox.keys.unfinished", unfinished);
    describe_gauge!("twinbox.relay.pool.wait", Unit::Seconds, "How long this look waited for a connection");
    describe_gauge!("twinbox.relay.database.up", "Whether the database answered this look");
}
