//! Jobs that are requests to a service.
use super::march;
use crate::support::{
    cases::cases,
    effects::QUICK,
    jobs::{RunningJobs, ended},
    stores::{TestDb, World},
};
use reqwest::header::HeaderMap;
use std::time::Duration;
use twinbox::effects::{
    ReqwestService,
    jobs::{HttpTarget, Misfire, RunState},
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};

fn target(service: &FakeVendor) -> HttpTarget<ReqwestService> {
    let client = ReqwestService::new(reqwest::Client::builder().no_proxy()).unwrap();
    let target =
        HttpTarget::new(service.url(), "/v1/admin/commission-locks/release-expired", client).unwrap();
    target.scopes(["membership:admin"]).authorize(|scopes| {
        Box::pin(async move {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", format!("Bearer for {}", scopes.join(" ")).parse()?);
            Ok(headers)
        })
    })
}

/// R14, t29: the connection is cut after the service has acted, and the key of the next attempt is the same.
async fn each_attempt_of_a_run_sends_its_id_as_the_key<DB: TestDb>() {
    let (world, service) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    service.answer_next([VendorAnswer::ActThenCut, VendorAnswer::Status(409), VendorAnswer::Status(503)]);
    let job = march(&world, Misfire::RunOnce).await.retries(QUICK).http(target(&service));
    let running = RunningJobs::of(&world, job).await;
    let [run] = &ended(&world, "march", 1).await[..] else { panic!("one run") };
    running.stop().await;
    assert_eq!((run.state, run.attempts, run.http_code), (RunState::Done, 4, Some(200)), "{run:?}");
    let (calls, id) = (service.calls(), run.run_id.to_string());
    assert_eq!((calls.len(), service.acts().len()), (4, 1));
    for call in calls {
        assert_eq!(
            (call.method.as_str(), call.path.as_str()),
            ("POST", "/v1/admin/commission-locks/release-expired")
        );
        assert_eq!(call.key.as_deref(), Some(id.as_str()));
        let header =
            |name: &str| call.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        assert_eq!(header("x-job-run-id"), Some(id.as_str()));
        assert_eq!(header("x-job-scheduled-for"), Some("2026-03-31T00:30:00Z"));
        assert_eq!(header("authorization"), Some("Bearer for membership:admin"));
        assert!(call.body.is_empty());
    }
}

/// R13, R30
async fn a_service_that_asks_to_wait_is_not_called_earlier<DB: TestDb>() {
    let (world, service) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    service.answer_next([VendorAnswer::RetryAfter(429, 1)]);
    let job = march(&world, Misfire::RunOnce).await.retries(QUICK).http(target(&service));
    let running = RunningJobs::of(&world, job).await;
    let [run] = &ended(&world, "march", 1).await[..] else { panic!("one run") };
    running.stop().await;
    assert_eq!((run.state, run.attempts, service.calls().len()), (RunState::Done, 2, 2));
    assert_eq!(service.early_calls(Duration::ZERO), 0);
}

async fn a_refused_request_fails_the_run_at_once<DB: TestDb>() {
    let (world, service) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    service.answer_with(|_| VendorAnswer::Status(404));
    let job = march(&world, Misfire::RunOnce).await.retries(QUICK).http(target(&service));
    let running = RunningJobs::of(&world, job).await;
    let [run] = &ended(&world, "march", 1).await[..] else { panic!("one run") };
    running.stop().await;
    assert_eq!((run.state, run.attempts, run.http_code), (RunState::Failed, 1, Some(404)));
    assert_eq!(run.last_error.as_deref(), Some("the service answered 404: the request was refused"));
}

cases! {
    all: [
        a_refused_request_fails_the_run_at_once,
        a_service_that_asks_to_wait_is_not_called_earlier,
        each_attempt_of_a_run_sends_its_id_as_the_key,
    ]
}
