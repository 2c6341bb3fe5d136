//! The metrics as a scrape sees them, read by the checker of Prometheus.
use super::{
    application::{Recorded, plan, with_vendor},
    consumers::fine,
};
use crate::support::{
    database::{self, SERVICE},
    program::{Program, destination},
    relay::{Target, publish},
    stores::World,
    wait::{eventually, in_time},
};
use axum::{body::Body, http::Request};
use sqlx::Sqlite;
use std::{ffi::OsStr, io::Write as _, process::Stdio, time::Duration};
use tower::ServiceExt as _;
use twinbox::{
    CancellationToken, Consumer, Store,
    effects::{
        Dispatcher,
        jobs::{Job, JobRunner},
        profiles,
    },
    log::Keeper,
};
use twinbox_testkit::skipped;

/// Asserts that the checker has nothing to say about a page.
fn is_checked(promtool: &OsStr, page: &str) {
    let mut check = std::process::Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(checked.status.success() && said.is_empty(), "{said}\nof\n{page}");
}

fn has(page: &str, metrics: &[&str]) {
    for metric in metrics {
        let described = format!("# HELP {metric} ");
        assert!(page.lines().any(|line| line.starts_with(&described)), "no {described}in\n{page}");
    }
}

/// R33
#[tokio::test(flavor = "multi_thread")]
async fn prometheus_has_no_complaint_about_the_metrics_of_the_relay() {
    let Some(promtool) = std::env::var_os("TWINBOX_PROMTOOL") else {
        return skipped("metrics of the relay: promtool is not there; TWINBOX_PROMTOOL names it");
    };
    let (store, target) = (database::postgres().await, Target::shared());
    publish(&store, 0..20).await;
    let of = destination("events", &target, "create_stream = true");
    let program = Program::start(&store, &of).await;
    program.shows("twinbox_relay_publish_results_total{destination=\"events\",error_type=\"\"} 20").await;
    program.shows("twinbox_relay_leased{destination=\"events\"} 1").await;
    let (status, page) = program.get("/metrics").await;
    assert_eq!(status, 200);
    has(&page, &["twinbox_relay_lag_seconds", "twinbox_relay_dead_letters_total"]);
    has(&page, &["twinbox_relay_backlog_messages", "twinbox_relay_unfinished_idempotency_keys"]);
    is_checked(&promtool, &page);
}

/// The recorder is one that an application would have.
#[tokio::test]
async fn prometheus_has_no_complaint_about_the_metrics_of_an_application() {
    let Some(promtool) = std::env::var_os("TWINBOX_PROMTOOL") else {
        return skipped("metrics of an application: promtool is not there; TWINBOX_PROMTOOL names it");
    };
    let (recorded, world, stop) = (Recorded::start(), World::<Sqlite>::new().await, CancellationToken::new());
    let often = Duration::from_secs(1);
    let keeper = Keeper::new(&*world).every(often).first_look(often);
    let consumer = Consumer::new((*world).clone(), ()).keeper(keeper).handler::<fine>();
    let (dispatcher, _vendor) = with_vendor(Dispatcher::new(&*world), "mail", profiles::RESEND).await;
    let job = Job::new("report", "* * * * * *").unwrap().handler(async |_| Ok(()));
    let running = (
        tokio::spawn(consumer.run(stop.clone())),
        tokio::spawn(dispatcher.run(stop.clone())),
        tokio::spawn(JobRunner::new(&*world).job(job).run(stop.clone())),
    );
    crate::support::consumer::publish(&world, 0..3).await;
    plan(&world, "mail").await;
    let payments = payments::app(Store::new(world.pool().clone(), SERVICE).unwrap()).await.unwrap();
    let payment = Request::post("/payments")
        .header("authorization", "Bearer alice-1")
        .header("content-type", "application/json")
        .header("idempotency-key", "order-7")
        .body(Body::from("{\"cents\": 4200, \"currency\": \"INR\"}"));
    assert_eq!(payments.oneshot(payment.unwrap()).await.unwrap().status(), 201);
    let metrics = [
        "twinbox_consumer_process_seconds",
        "twinbox_effects_confirmed_total",
        "twinbox_http_responses_stored_total",
        "twinbox_jobs_attempts_total",
        "twinbox_keeper_runs_total",
    ];
    let page = eventually(async || {
        Some(recorded.page()).filter(|page| metrics.iter().all(|metric| page.contains(metric)))
    })
    .await;
    has(&page, &metrics);
    is_checked(&promtool, &page);
    stop.cancel();
    in_time(running.0).await.unwrap().unwrap();
    in_time(running.1).await.unwrap().unwrap();
    in_time(running.2).await.unwrap().unwrap();
}
