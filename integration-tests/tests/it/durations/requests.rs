//! Options of web services.
use super::{is_long, tried};
use crate::support::{
    refunds::{Refunds, Strategy, send},
    stores::World,
    webhooks::{now, secret},
};
use axum::{
    Router,
    http::{Request, StatusCode},
    routing,
};
use integration_tests::refunds::Does::Answers;
use sqlx::Sqlite;
use std::time::Duration;
use twinbox::http::{
    IdemTx, Idempotency, ServerError,
    webhook::{Inbound, Scheme, Verifier},
};

async fn respond(
    strategy: Strategy,
    set: fn(Idempotency<Sqlite>, Duration) -> Idempotency<Sqlite>,
    duration: Duration,
) {
    let app = Refunds::<Sqlite>::with(strategy, |layer| set(layer, duration)).await;
    let status = app.refund("a", 1, Answers).await.status;
    assert!(status == 201 || !is_long(duration) && (status == 504 || status == 408), "{status}");
    let plain = Refunds::another(&app.world, strategy, |layer| layer, app.shop.clone());
    let another = crate::support::refunds::post("/refunds", "b");
    let another = another.body(crate::support::refunds::asked(1, Answers).into()).unwrap();
    assert_eq!(send(&plain, another).await.status, 201);
}

async fn receive(
    set: fn(Inbound<Sqlite>, Duration) -> Inbound<Sqlite>,
    tolerance: Duration,
    duration: Duration,
) {
    async fn receive(_: IdemTx<Sqlite>) -> Result<StatusCode, ServerError> {
        Ok(StatusCode::OK)
    }
    let world = World::<Sqlite>::new().await;
    let verifier = Verifier::new(Scheme::Standard, [secret(1)]).tolerance(tolerance);
    let inbound = set(Inbound::new((*world).clone(), "tests", "hooks", verifier), duration);
    let app = Router::new().route("/hooks", routing::post(receive).layer(inbound));
    let headers = secret(1).sign(Scheme::Standard, "msg_1", now(), b"a");
    let hook = headers.into_iter().fold(Request::post("/hooks"), |r, (name, value)| r.header(name, value));
    let status = send(&app, hook.body("a".into()).unwrap()).await.status;
    assert!(status == 200 || !is_long(duration) && (status.is_client_error() || status == 504), "{status}");
}

const MINUTES: Duration = Duration::from_secs(300);

tried! {
    "Idempotency::retention": |d| respond(Strategy::Tx, Idempotency::retention, d),
    "Idempotency::wait": |d| respond(Strategy::Tx, Idempotency::wait, d),
    "Idempotency::handler_timeout": |d| respond(Strategy::Tx, Idempotency::handler_timeout, d),
    "Idempotency::lease": |d| respond(Strategy::Lease, Idempotency::lease, d),
    "Idempotency::body_timeout": |d| respond(Strategy::Tx, Idempotency::body_timeout, d),
    "Inbound::retention": |d| receive(Inbound::retention, MINUTES, d),
    "Inbound::handler_timeout": |d| receive(Inbound::handler_timeout, MINUTES, d),
    "Inbound::body_timeout": |d| receive(Inbound::body_timeout, MINUTES, d),
    "Verifier::tolerance": |d| receive(|inbound, _| inbound, d, d),
}
