//! Exports traces and metrics to a collector, by the protocol of OpenTelemetry over HTTP (OTLP).
//!
//! The environment variables of OpenTelemetry turn it on and set it up. A collector that is away costs spans
//! and values, never a message: what waits for it is bounded, by 2048 spans unless `OTEL_BSP_MAX_QUEUE_SIZE`
//! says otherwise.
mod client;
mod recorder;

use crate::{database_metrics::DatabaseMetrics, failure::Failure, https, schemas::Schemas};
use client::CollectorClient;
use opentelemetry::{
    KeyValue,
    metrics::MeterProvider as _,
    trace::{Tracer, TracerProvider as _},
};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider, trace::SdkTracerProvider};
use recorder::OtlpRecorder;
use std::{env, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use tracing_opentelemetry::OpenTelemetryLayer;
use twinbox_core::task_name::TaskName;
use twinbox_sql::Dialect;

const PROTOCOLS: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
];
const ENDPOINTS: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
];
/// The name of the service in traces, unless the environment gives one.
const SERVICE: &str = "twinbox-relay";
/// How often metrics are exported, unless `OTEL_METRIC_EXPORT_INTERVAL` says otherwise.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long the program waits at its end for what is not exported yet.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// The export of traces and metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Otlp {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

impl Otlp {
    /// Starts the export that the environment asks for. `None`: it names no collector. Call it inside the
    /// runtime, which sends the requests.
    ///
    /// # Errors
    /// A variable cannot be read, asks for another protocol than OTLP over HTTP, or names a collector on
    /// another machine without TLS, unless `allow_plain`.
    pub(crate) fn from_env(allow_plain: bool) -> Result<Option<Self>, Failure> {
        let Exporters { traces, metrics, .. } = Exporters::from_env(allow_plain)?;
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        let resource = resource();
        let traces = traces.map(|exporter| {
            let traces = SdkTracerProvider::builder().with_resource(resource.clone());
            traces.with_batch_exporter(exporter).build()
        });
        let metrics = metrics.map(|exporter| {
            let metrics = SdkMeterProvider::builder().with_resource(resource);
            metrics.with_periodic_exporter(exporter).build()
        });
        Ok(Some(Self { traces, metrics }))
    }

    /// Fails as [`from_env`](Self::from_env) does, and exports nothing. Returns what an operator should know
    /// about the connection.
    pub(crate) fn check_env(allow_plain: bool) -> Result<Vec<String>, Failure> {
        Exporters::from_env(allow_plain).map(|exporters| exporters.warnings)
    }

    /// Returns the layer of `tracing` that exports spans.
    pub(crate) fn layer<S>(&self) -> Option<OpenTelemetryLayer<S, impl Tracer<Span: Send + Sync> + use<S>>>
    where
        S: tracing::Subscriber + for<'lookup> tracing_subscriber::registry::LookupSpan<'lookup>,
    {
        let tracer = self.traces.as_ref()?.tracer(SERVICE);
        Some(tracing_opentelemetry::layer().with_tracer(tracer))
    }

    /// Returns the recorder that exports metrics.
    pub(crate) fn recorder(&self) -> Option<OtlpRecorder> {
        Some(OtlpRecorder::new(self.metrics.as_ref()?.meter(SERVICE)))
    }

    /// Reads the metrics of the databases as often as metrics are exported, until `stop`.
    pub(crate) fn read_databases<DB: Dialect>(&self, schemas: Arc<Schemas<DB>>, stop: CancellationToken) {
        let Some(recorder) = self.recorder() else { return };
        let millis = variable("OTEL_METRIC_EXPORT_INTERVAL").and_then(|text| text.parse().ok());
        let interval = millis.map_or(INTERVAL, Duration::from_millis);
        let databases = DatabaseMetrics::default();
        tokio::spawn(TaskName::DatabaseMetrics.of(stop.run_until_cancelled_owned(async move {
            loop {
                databases.read(&schemas, &recorder).await;
                tokio::time::sleep(interval).await;
            }
        })));
    }

    /// Exports what is left, for at most five seconds for each of both. Not for tasks: it blocks.
    pub(crate) fn shut_down(self) {
        let traces = self.traces.map(|traces| traces.shutdown_with_timeout(FLUSH_MAX));
        let metrics = self.metrics.map(|metrics| metrics.shutdown_with_timeout(FLUSH_MAX));
        for error in [traces, metrics].into_iter().flatten().filter_map(Result::err) {
            tracing::warn!(%error, "not all traces and metrics were exported");
        }
    }
}

/// The exporters that the environment asks for.
#[derive(Default)]
struct Exporters {
    traces: Option<SpanExporter>,
    metrics: Option<MetricExporter>,
    warnings: Vec<String>,
}

impl Exporters {
    fn from_env(allow_plain: bool) -> Result<Self, Failure> {
        let has_traces = is_exported("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER");
        let has_metrics = is_exported("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_METRICS_EXPORTER");
        if !(has_traces || has_metrics) || variable("OTEL_SDK_DISABLED").as_deref() == Some("true") {
            return Ok(Self::default());
        }
        check_protocol()?;
        let warnings = check_endpoints(allow_plain)?;
        let client = CollectorClient::new()?;
        let traces = || SpanExporter::builder().with_http().with_http_client(client.clone()).build();
        let metrics = || MetricExporter::builder().with_http().with_http_client(client.clone()).build();
        let traces = has_traces.then(traces).transpose()?;
        let metrics = has_metrics.then(metrics).transpose()?;
        Ok(Self { traces, metrics, warnings })
    }
}

/// Returns whether the environment names a collector for traces, or for metrics, and does not turn them off.
fn is_exported(endpoint: &str, exporter: &str) -> bool {
    let endpoint = variable("OTEL_EXPORTER_OTLP_ENDPOINT").or_else(|| variable(endpoint));
    endpoint.is_some() && variable(exporter).as_deref() != Some("none")
}

fn check_protocol() -> Result<(), Failure> {
    for name in PROTOCOLS {
        if let Some(protocol) = variable(name).filter(|protocol| protocol != "http/protobuf") {
            let what = format!(
                "{name} is {protocol:?}: the program speaks only `http/protobuf`, for which collectors \
                 listen at port 4318"
            );
            return Err(what.into());
        }
    }
    Ok(())
}

/// Refuses a collector on another machine without TLS, unless `allow_plain`. Then it is a warning.
fn check_endpoints(allow_plain: bool) -> Result<Vec<String>, Failure> {
    let mut warnings = Vec::new();
    for (name, url) in ENDPOINTS.iter().filter_map(|name| Some((name, variable(name)?))) {
        match https::protection(&url, allow_plain) {
            Ok(protection) => warnings.extend(protection.warning()),
            Err(refused) => {
                let what = format!("{name}: {refused}, or set `allow_plain = true` in `[collector]`");
                return Err(what.into());
            }
        }
    }
    Ok(warnings)
}

fn resource() -> Resource {
    let named = Resource::builder().build();
    let name = named.get(&"service.name".into()).map(|name| name.to_string()).unwrap_or_default();
    let builder =
        Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let is_unnamed = name.is_empty() || name.starts_with("unknown_service");
    if is_unnamed { builder.with_service_name(SERVICE).build() } else { builder.build() }
}

/// Returns a variable of the environment. An empty one counts as unset, as OpenTelemetry has it.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
