//! The HTTP listener of the program: probes and metrics.
use crate::{database_metrics::DatabaseMetrics, failure::Failure, readiness::Readiness, recorder};
use axum::{Router, extract::State, http::StatusCode, routing::get};
use metrics_exporter_prometheus::PrometheusHandle;
use std::{net::SocketAddr, sync::Arc};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use twinbox_core::task_name::TaskName;
use twinbox_sql::Dialect;

struct Admin<DB: Dialect> {
    readiness: Arc<Readiness<DB>>,
    recorded: PrometheusHandle,
    databases: DatabaseMetrics,
}

/// Serves until `stop`.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn serve<DB: Dialect>(
    address: SocketAddr,
    readiness: Arc<Readiness<DB>>,
    recorded: PrometheusHandle,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await.map_err(|e| format!("`admin.listen` {address}: {e}"))?;
    tracing::info!(address = %listener.local_addr()?, "the admin listener is up");
    let admin = Arc::new(Admin { readiness, recorded, databases: DatabaseMetrics::default() });
    let router = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz::<DB>))
        .route("/metrics", get(metrics::<DB>))
        .with_state(admin);
    let stopped = stop.cancelled_owned();
    tokio::spawn(
        TaskName::AdminServer
            .of(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await }),
    );
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
    let recorder = recorder::prometheus().build_recorder();
    admin.databases.read(&admin.readiness.schemas, &recorder).await;
    admin.recorded.render() + &recorder.handle().render()
}
