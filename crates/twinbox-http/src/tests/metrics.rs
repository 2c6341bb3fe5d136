//! The metrics of requests and webhooks, as Prometheus renders them.
use super::store;
use crate::{
    caller::Caller,
    idem_tx::IdemTx,
    idempotency::Idempotency,
    server_error::ServerError,
    webhook::{Inbound, Scheme, Secret, Verifier},
};
use axum::{Router, body::Body, http::Request, routing::post};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sqlx::Sqlite;
use std::time::UNIX_EPOCH;
use tower::ServiceExt as _;
use twinbox_sql::Store;

const SECRET: [u8; 32] = [1; 32];

async fn nothing(mut idem: IdemTx<Sqlite>) -> Result<(), ServerError> {
    sqlx::query("SELECT 1").execute(&mut *idem.tx()).await?;
    Ok(())
}

fn app(store: &Store<Sqlite>, with_aliases: bool) -> Router {
    let idempotency = Idempotency::new(store.clone(), Caller::single);
    let idempotency = if with_aliases { idempotency.alias_names() } else { idempotency };
    let verifier = Verifier::new(Scheme::Stripe, [Secret::from_bytes(SECRET).unwrap()]);
    let inbound = Inbound::new(store.clone(), "tests", "hooks", verifier);
    Router::new()
        .route("/pay", post(nothing).layer(idempotency.clone()))
        .route("/unused", post(async || {}).layer(idempotency))
        .route("/hooks", post(nothing).layer(inbound))
}

async fn request(app: &Router, path: &str, header: (&str, &str), body: &'static str) -> u16 {
    let request = Request::post(path).header(header.0, header.1).body(Body::from(body)).unwrap();
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

async fn webhook(app: &Router, body: &'static str) -> u16 {
    let now_s = UNIX_EPOCH.elapsed().unwrap().as_secs();
    let headers = Secret::from_bytes(SECRET).unwrap().sign(Scheme::Stripe, "", now_s, body.as_bytes());
    request(app, "/hooks", (headers[0].0, &headers[0].1), body).await
}

/// Runs `requests` with a recorder of its own, on one thread: the recorder is local to it.
fn recorded(requests: impl AsyncFnOnce(Store<Sqlite>)) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let rendered: PrometheusHandle = recorder.handle();
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            requests(store(folder.path()).await).await;
        });
    });
    rendered.render()
}

#[test]
fn requests_and_webhooks_are_counted() {
    let rendered = recorded(async |store| {
        let app = app(&store, false);
        for (key, body, status) in [("a", "1", 200), ("a", "1", 200), ("a", "2", 409), ("", "1", 400)] {
            assert_eq!(request(&app, "/pay", ("idempotency-key", key), body).await, status);
        }
        assert_eq!(request(&app, "/unused", ("idempotency-key", "a"), "").await, 500);
        for (body, status) in [(r#"{"id":"1"}"#, 200), (r#"{"id":"1"}"#, 200), (r#"{"id":"1","b":2}"#, 200)] {
            assert_eq!(webhook(&app, body).await, status);
        }
        assert_eq!(webhook(&app, "{}").await, 200);
        assert_eq!(request(&app, "/hooks", ("stripe-signature", "t=1"), "").await, 401);
        store.pool().close().await;
        assert_eq!(request(&app, "/pay", ("idempotency-key", "b"), "1").await, 503);
    });
    for (metric, count) in [
        ("twinbox_http_responses_stored_total{scope=\"POST_/pay\"}", 1),
        ("twinbox_http_responses_replayed_total{scope=\"POST_/pay\"}", 1),
        ("twinbox_http_key_mismatches_total{scope=\"POST_/pay\"}", 1),
        ("twinbox_http_store_errors_total{scope=\"POST_/pay\"}", 1),
        ("twinbox_http_unused_transactions_total{scope=\"POST_/unused\"}", 1),
        ("twinbox_http_key_wait_seconds_count{scope=\"POST_/pay\"}", 4),
        ("twinbox_http_webhooks_received_total{provider=\"tests\"}", 2),
        ("twinbox_http_webhook_duplicates_total{provider=\"tests\"}", 1),
        ("twinbox_http_webhook_mismatches_total{provider=\"tests\"}", 1),
        ("twinbox_http_webhooks_unverified_total{provider=\"tests\"}", 1),
        ("twinbox_http_webhooks_without_id_total{provider=\"tests\"}", 1),
    ] {
        assert!(rendered.contains(&format!("{metric} {count}\n")), "{metric} {count}\n{rendered}");
    }
    for line in rendered.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(name.starts_with("twinbox_http_"), "{name}");
        assert!(rendered.contains(&format!("# HELP {name} ")), "{name} is not described\n{rendered}");
    }
}

/// D24, R39, R43
#[test]
fn aliases_count_only_where_a_route_asks_for_them() {
    let requests = async |store: Store<Sqlite>, with_aliases| {
        let app = app(&store, with_aliases);
        for body in ["1", "1", "2"] {
            request(&app, "/pay", ("idempotency-key", "a"), body).await;
        }
    };
    let aliases = ["created", "replayed", "replays", "conflict", "conflicts"].map(|name| {
        // Prometheus has no dots in names.
        format!("idempotent_{name}{{scope=\"POST_/pay\"}} 1\n")
    });
    let rendered = recorded(async |store| requests(store, true).await);
    assert!(aliases.iter().all(|alias| rendered.contains(alias)), "{rendered}");
    assert!(rendered.contains("twinbox_http_responses_stored_total{"));
    let rendered = recorded(async |store| requests(store, false).await);
    assert!(!rendered.contains("idempotent_"), "{rendered}");
}
