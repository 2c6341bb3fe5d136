//! Handlers that keep, share or roll back what they got.
use super::store;
use crate::{
    caller::Caller, decision::Decision, idem_lease::IdemLease, idem_tx::IdemTx, idempotency::Idempotency,
    server_error::ServerError,
};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{MethodRouter, post},
};
use sqlx::Sqlite;
use std::{future::pending, time::Duration};
use tower::ServiceExt as _;

async fn effect(idem: &mut IdemTx<Sqlite>) {
    sqlx::query("INSERT INTO effects (n) VALUES (1)").execute(&mut *idem.tx()).await.unwrap();
}

/// Sends one request twice, and returns the status and the error code of both responses, and how many effects
/// there are.
async fn twice(
    route: MethodRouter,
    set: impl FnOnce(Idempotency<Sqlite>) -> Idempotency<Sqlite>,
) -> ([(u16, String); 2], i64) {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let layer = set(Idempotency::new(store.clone(), Caller::single).wait(Duration::ZERO));
    let app = Router::new().route("/", route.layer(layer));
    let mut responses = Vec::new();
    for _ in 0..2 {
        let request = Request::post("/").header("idempotency-key", "a").body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        responses.push((status, problem["error_code"].as_str().unwrap_or_default().to_owned()));
    }
    let effects = sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(store.pool()).await.unwrap();
    (responses.try_into().unwrap(), effects)
}

#[tokio::test]
async fn a_rolled_back_transaction_cannot_commit() {
    let route = post(async |mut idem: IdemTx<Sqlite>| {
        effect(&mut idem).await;
        idem.roll_back().await;
        StatusCode::CREATED
    });
    let refusal = (500, "INTERNAL.idempotency.not_used".to_owned());
    assert_eq!(twice(route, |layer| layer).await, ([refusal.clone(), refusal], 0));
}

#[tokio::test]
async fn a_handler_gets_one_transaction_at_a_time() {
    let route = post(async |_first: IdemTx<Sqlite>, _second: IdemTx<Sqlite>| StatusCode::CREATED);
    let refusal = (500, String::new());
    assert_eq!(twice(route, |layer| layer).await, ([refusal.clone(), refusal], 0));
}

async fn writes_first(mut idem: IdemTx<Sqlite>, request: Request, next: Next) -> Response {
    effect(&mut idem).await;
    drop(idem);
    next.run(request).await
}

#[tokio::test]
async fn an_inner_layer_and_the_handler_write_in_the_same_transaction() {
    let route = post(async |mut idem: IdemTx<Sqlite>| {
        effect(&mut idem).await;
        StatusCode::CREATED
    });
    let created = (201, String::new());
    let route = route.layer(from_fn(writes_first));
    assert_eq!(twice(route, |layer| layer).await, ([created.clone(), created], 2));
}

/// Moves the lease into a task that never ends, and responds.
async fn keeps_its_lease(
    lease: IdemLease<Sqlite>,
    response: impl IntoResponse,
) -> Result<impl IntoResponse, ServerError> {
    let mut idem = lease.begin().await?;
    effect(&mut idem).await;
    drop(idem);
    tokio::spawn(async move {
        pending::<()>().await;
        drop(lease);
    });
    Ok(response)
}

#[tokio::test]
async fn a_transaction_commits_without_its_lease() {
    let route = post(async |lease: IdemLease<Sqlite>| keeps_its_lease(lease, StatusCode::CREATED).await);
    let created = (201, String::new());
    let leased = |layer: Idempotency<Sqlite>| layer.lease(Duration::from_secs(300));
    assert_eq!(twice(route, leased).await, ([created.clone(), created], 1));
}

/// A final refusal needs a transaction without the handler's writes, and the task still holds the key.
#[tokio::test]
async fn a_refusal_cannot_be_stored_without_the_lease() {
    let route = post(async |lease: IdemLease<Sqlite>| {
        let refusal = (StatusCode::PAYMENT_REQUIRED, Decision::RejectAndStore, "no funds");
        keeps_its_lease(lease, refusal).await
    });
    let refusal = (409, "CONFLICT.idempotency.in_progress".to_owned());
    let leased = |layer: Idempotency<Sqlite>| layer.lease(Duration::from_secs(300));
    assert_eq!(twice(route, leased).await, ([refusal.clone(), refusal], 0));
}
