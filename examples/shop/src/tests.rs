//! The promises of the shop, on a real database.
use super::*;
use axum::{
    body::Body,
    http::{Request, header::CONTENT_TYPE},
};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;
use twinbox_testkit::{
    Harness,
    database::{self, TestDatabase},
};

/// The database lives as long as the first value.
async fn shop() -> (TestDatabase<Postgres>, Store<Postgres>, Router) {
    let database = database::empty_postgres().await;
    let (store, app) = app(database.pool().clone()).await.unwrap();
    (database, store, app)
}

async fn order(app: &Router, cents: i64) -> (StatusCode, Vec<u8>) {
    let body = format!(r#"{{"cents": {cents}}}"#);
    let request = Request::post("/orders").header(CONTENT_TYPE, "application/json").body(Body::from(body));
    let response = app.clone().oneshot(request.unwrap()).await.unwrap();
    (response.status(), response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

async fn count(store: &Store<Postgres>, table: &'static str) -> i64 {
    let count = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(store.pool()).await.unwrap()
}

#[tokio::test]
async fn an_order_is_published_with_its_row() {
    let (_database, store, app) = shop().await;
    let (status, _) = order(&app, 4200).await;
    assert_eq!((status, count(&store, "orders").await), (StatusCode::CREATED, 1));
    let published = Harness::new(&store, ()).published::<OrderPlaced>().await;
    assert_eq!(published, [OrderPlaced { order_id: 1, cents: 4200 }]);
}

#[tokio::test]
async fn an_order_that_is_refused_is_not_published() {
    let (_database, store, app) = shop().await;
    let (status, _) = order(&app, -1).await;
    assert_eq!((status, count(&store, "orders").await), (StatusCode::UNPROCESSABLE_ENTITY, 0));
    assert_eq!(Harness::new(&store, ()).published::<OrderPlaced>().await, []);
}

/// The harness delivers the event again, and crashes between the steps.
#[tokio::test]
async fn an_order_has_one_invoice_however_often_its_event_comes() {
    let (_database, store, _app) = shop().await;
    let harness = Harness::new(&store, ());
    harness.assert_idempotent::<invoice>(OrderPlaced { order_id: 7, cents: 4200 }).await;
    assert_eq!(count(&store, "invoices").await, 1);
}
