//! The HTTP listener of the program: probes and metrics.
use crate::{
    failure::Failure,
    metrics::{
        BACKLOG_MESSAGES, DATABASE_UP, LAG, LEASED, Metric, OLDEST_MESSAGE_AGE, PARKED_MESSAGES, PAUSED,
        POOL_CONNECTIONS, POOL_WAIT, UNFINISHED_IDEMPOTENCY_KEYS,
    },
    readiness::{DATABASE_TIMEOUT, Readiness},
    schemas::Schema,
};
use axum::{Router, extract::State, http::StatusCode, routing::get};
use futures::future::join_all;
use metrics::{Label, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;
use twinbox_ops::Ops;
use twinbox_sql::Dialect;

/// How often the recorder moves new samples into its buckets. Without that they pile up while nobody scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// The buckets of the lag, in seconds.
const LAG_BUCKETS: [f64; 13] =
    [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];

struct Admin<DB: Dialect> {
    readiness: Arc<Readiness<DB>>,
    recorded: PrometheusHandle,
}

/// Installs the recorder of metrics and serves until `stop`. Call it before the relays start: they record
/// from then on.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn serve<DB: Dialect>(
    address: SocketAddr,
    readiness: Arc<Readiness<DB>>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let lag = Matcher::Full(LAG.name.to_owned());
    let recorder = PrometheusBuilder::new().with_recommended_naming(true);
    let recorded = recorder.set_buckets_for_metric(lag, &LAG_BUCKETS)?.install_recorder()?;
    let listener = TcpListener::bind(address).await.map_err(|e| format!("`admin.listen` {address}: {e}"))?;
    tracing::info!(address = %listener.local_addr()?, "the admin listener is up");
    let admin = Arc::new(Admin { readiness, recorded: recorded.clone() });
    let router = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz::<DB>))
        .route("/metrics", get(metrics::<DB>))
        .with_state(admin);
    let stopped = stop.clone().cancelled_owned();
    tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            recorded.run_upkeep();
        }
    }));
    Ok(())
}

/// Reports whether the program is ready, with a line for each fault.
async fn readyz<DB: Dialect>(State(admin): State<Arc<Admin<DB>>>) -> (StatusCode, String) {
    match admin.readiness.check().await {
        Ok(faults) => (StatusCode::OK, [&["ok".to_owned()], &*faults].concat().join("\n") + "\n"),
        Err(faults) => (StatusCode::SERVICE_UNAVAILABLE, faults.join("\n") + "\n"),
    }
}

/// The recorded metrics, and those that are read from each database that responds.
async fn metrics<DB: Dialect>(State(admin): State<Arc<Admin<DB>>>) -> String {
    let schemas = &admin.readiness.schemas;
    let (databases, are_several) = (schemas.by_database(), schemas.are_several());
    let reads = databases.iter().map(async |schemas| {
        let labels = if databases.len() > 1 { vec![label(schemas[0])] } else { Vec::new() };
        let read = timeout(DATABASE_TIMEOUT, read_database(schemas, &labels, are_several)).await;
        let up = matches!(read, Ok(Ok(())));
        gauge!(DATABASE_UP.name, labels).set(if up { 1.0 } else { 0.0 });
    });
    join_all(reads).await;
    admin.recorded.render()
}

fn label<DB: Dialect>(schema: &Schema<DB>) -> Label {
    Label::new("schema", schema.name.clone())
}

/// Reads the schemas of one database.
async fn read_database<DB: Dialect>(
    schemas: &[&Schema<DB>],
    labels: &[Label],
    are_several: bool,
) -> Result<(), twinbox_sql::Error> {
    let pool = schemas[0].store.pool();
    let started_at = Instant::now();
    drop(pool.acquire().await?);
    gauge!(POOL_WAIT.name, labels.to_vec()).set(started_at.elapsed());
    let idle = pool.num_idle();
    for (state, count) in [("idle", idle as f64), ("used", f64::from(pool.size()) - idle as f64)] {
        gauge!(POOL_CONNECTIONS.name, [labels, &[Label::new("state", state)]].concat()).set(count);
    }
    let mut result = Ok(());
    for schema in schemas {
        result = result.and(read_schema(schema, are_several).await);
    }
    result
}

/// `with_label`: several schemas may have readers of one name, so each metric names its schema.
async fn read_schema<DB: Dialect>(schema: &Schema<DB>, with_label: bool) -> Result<(), twinbox_sql::Error> {
    for reader in Ops::new(&schema.store).readers().await? {
        let mut labels = vec![Label::new("destination", reader.name)];
        labels.extend(with_label.then(|| label(schema)));
        let gauge = |metric: Metric| gauge!(metric.name, labels.clone());
        gauge(BACKLOG_MESSAGES).set(reader.backlog as f64);
        gauge(OLDEST_MESSAGE_AGE).set(reader.oldest);
        gauge(LEASED).set(if reader.lease.is_some() { 1.0 } else { 0.0 });
        gauge(PAUSED).set(if reader.pause_reason.is_some() { 1.0 } else { 0.0 });
        for (state, count) in
            [("waiting", reader.waiting), ("dead", reader.dead_letters), ("blocking", reader.blocking)]
        {
            let state = Label::new("state", state);
            gauge!(PARKED_MESSAGES.name, [&*labels, &[state]].concat()).set(count as f64);
        }
    }
    let labels = with_label.then(|| label(schema));
    let unfinished = schema.store.idempotency_keys().count_unfinished().await?;
    gauge!(UNFINISHED_IDEMPOTENCY_KEYS.name, Vec::from_iter(labels)).set(unfinished as f64);
    Ok(())
}
