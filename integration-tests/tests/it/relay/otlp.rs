//! Traces and metrics that the relay's program sends to a collector.
use super::*;
use crate::support::{
    helper,
    program::{Program, destination, logged},
    wait::eventually,
};
use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    metrics::v1::{metric::Data, number_data_point::Value as Number},
    trace::v1::Span,
};
use prost::Message as _;
use std::sync::{Arc, Mutex};
use tokio::{net::TcpListener, process::Command};

/// The endpoint of a collector: what it was sent, by the protocol's own messages.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Received>>);

#[derive(Default)]
struct Received {
    traces: Vec<ExportTraceServiceRequest>,
    metrics: Vec<ExportMetricsServiceRequest>,
    credentials: Vec<String>,
}

impl Collector {
    async fn start() -> (Self, String) {
        let (collector, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/v1/traces", post(traces))
            .route("/v1/metrics", post(metrics))
            .with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (collector, url)
    }

    fn spans(&self) -> Vec<Span> {
        let received = self.0.lock().unwrap();
        let scopes = received.traces.iter().flat_map(|request| &request.resource_spans);
        let scopes = scopes.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// The sum of a metric in the newest export, where each metric is there once.
    fn metric(&self, name: &str) -> Option<f64> {
        let received = self.0.lock().unwrap();
        let scopes = received.metrics.last()?.resource_metrics.iter().flat_map(|it| &it.scope_metrics);
        let mut named = scopes.flat_map(|scope| &scope.metrics).filter(|metric| metric.name == name);
        let (found, another) = (named.next()?, named.next());
        assert!(another.is_none() && !found.description.is_empty(), "{found:?} {another:?}");
        let points = match found.data.as_ref()? {
            Data::Sum(sum) => &sum.data_points,
            Data::Gauge(gauge) => &gauge.data_points,
            Data::Histogram(histogram) => {
                return Some(histogram.data_points.iter().map(|point| point.count as f64).sum());
            }
            other => panic!("{other:?}"),
        };
        let numbers = points.iter().map(|point| match point.value.unwrap() {
            Number::AsDouble(number) => number,
            Number::AsInt(number) => number as f64,
        });
        Some(numbers.sum())
    }
}

async fn traces(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) {
    let credential = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let mut received = collector.0.lock().unwrap();
    received.credentials.extend(credential);
    received.traces.push(ExportTraceServiceRequest::decode(body).unwrap());
}

async fn metrics(State(collector): State<Collector>, body: Bytes) {
    collector.0.lock().unwrap().metrics.push(ExportMetricsServiceRequest::decode(body).unwrap());
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn publish_traced(store: &Store<Postgres>, traceparent: &str) {
    let mut tx = store.begin().await.unwrap();
    let draft = Draft::raw("orders.placed", 1, "{}").traceparent(traceparent).tracestate("vendor=1");
    store.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_spans_and_metrics() {
    let (store, target) = (database::postgres().await, Target::shared());
    let (collector, url) = Collector::start().await;
    publish_traced(&store, TRACE).await;
    publish_traced(&store, &TRACE.replace("-01", "-00")).await;
    publish(&store, 0..3).await;
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*url),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-the-team"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
        // The end of the program does not wait for it.
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
    ];
    let text = destination("events", &target, "create_stream = true");
    let program = Program::run_with(store.url(), &[], &env, &text).await;
    let wanted = [
        ("twinbox_relay_publish_results_total", 5.0),
        ("twinbox_relay_lag_seconds", 5.0),
        ("twinbox_relay_backlog_messages", 0.0),
        ("twinbox_relay_leased", 1.0),
        ("twinbox_relay_database_up", 1.0),
        ("twinbox_relay_circuit_breaker", 1.0),
    ];
    for (name, value) in wanted {
        let arrived = eventually(async || (collector.metric(name) == Some(value)).then_some(()));
        assert!(timeout(PATIENCE, arrived).await.is_ok(), "{name}: {:?}", collector.metric(name));
    }
    program.shows("twinbox_relay_publish_results_total{destination=\"events\",error_type=\"\"} 5").await;
    assert!(collector.spans().is_empty());
    program.stop().await;

    let spans = collector.spans();
    let [span] = &spans[..] else { panic!("one message was recorded by its producer: {spans:?}") };
    let [link] = &span.links[..] else { panic!("{span:?}") };
    assert_eq!((&*span.name, &*link.trace_state), ("send orders.placed", "vendor=1"));
    assert_eq!(hex(&link.trace_id) + "-" + &hex(&link.span_id), TRACE[3..52]);
    let received = collector.0.lock().unwrap();
    assert_eq!(received.credentials, ["Bearer of-the-team"]);
    let resource = received.traces[0].resource_spans[0].resource.clone().unwrap();
    let service = resource.attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
    assert!(format!("{service:?}").contains("twinbox-relay"), "{service:?}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_stops_no_message() {
    let (store, target) = (database::postgres().await, Target::shared());
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    publish_traced(&store, TRACE).await;
    let url = format!("http://{nobody}");
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*url), ("OTEL_BSP_SCHEDULE_DELAY", "50")];
    let text = destination("events", &target, "create_stream = true");
    let mut program = Program::run_with(store.url(), &[], &env, &text).await;
    logged(&mut program.log, "export").await;
    assert_eq!(target.count().await, 1);
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_protocol_is_refused() {
    let store = database::postgres().await;
    let program = Program::run(store.url(), &[], &destination("events", &Target::shared(), "")).await;
    let ran = Command::new(helper::program("twinbox-relay"))
        .args(["run", "--config"])
        .arg(program.config())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(
        ran.status.code() == Some(1) && said.contains("OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\""),
        "{said}"
    );
}
