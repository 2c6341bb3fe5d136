//! Options of dispatchers, clients of vendors, jobs, the drift check and movers.
use super::{is_long, tried};
use crate::support::{
    effects::{QUICK, WELCOME, found, mail, plan},
    stores::{Placed, World},
    wait::{eventually, in_time},
};
use integration_tests::vendors::{charge, http_vendor};
use sqlx::Sqlite;
use std::time::Duration;
use twinbox::{
    CancellationToken, Draft, Error, Timestamp,
    effects::{
        Dispatcher, EffectState, ReqwestService, VendorOptions, VendorProfile,
        client::ClientLayer,
        drift::{Drift, Expectation, Sweep},
        jobs::{Job, JobRunner, Jobs, RunState},
        profiles,
    },
    relay::DelayedMessageMover,
};
use twinbox_testkit::vendor::FakeVendor;

type Running = futures::future::BoxFuture<'static, Result<(), Error>>;

/// Runs a program until something holds, and stops it.
async fn run_until(run: impl FnOnce(CancellationToken) -> Running, is_done: impl AsyncFn() -> bool) {
    let stop = CancellationToken::new();
    let running = tokio::spawn(run(stop.clone()));
    eventually(async || (is_done().await || running.is_finished()).then_some(())).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
}

/// Sends an effect. One whose time is over at once has failed or may have been sent.
async fn dispatch(
    profile: VendorProfile,
    options: VendorOptions,
    set: impl FnOnce(Dispatcher<Sqlite>) -> Dispatcher<Sqlite>,
    must: bool,
) {
    let (world, vendor) = (World::<Sqlite>::new().await, FakeVendor::start().await.unwrap());
    let source = plan(&world, mail("hello")).await;
    let sender = http_vendor(&vendor.url(), profile).unwrap();
    let dispatcher = set(Dispatcher::new(&world).vendor_with(sender, options.retries(QUICK)));
    run_until(
        |stop| Box::pin(dispatcher.run(stop)),
        async || match found(&world, source).await.state {
            EffectState::Confirmed => true,
            _ if must => false,
            state => state != EffectState::Pending,
        },
    )
    .await;
}

async fn call(set: impl FnOnce(ClientLayer) -> ClientLayer, age: Option<Duration>, must: bool) {
    let vendor = FakeVendor::start().await.unwrap();
    let service = ReqwestService::new(reqwest::Client::builder().no_proxy()).unwrap();
    let client = set(ClientLayer::new(profiles::STRIPE_V1).retries(QUICK)).client(service);
    let mut charge = charge(&vendor.url());
    if let Some(age) = age {
        charge = charge.key_age(age);
    }
    let answered = in_time(client.send(charge)).await;
    assert!(answered.is_ok() || !must, "{answered:?}");
}

/// Runs a job that was asked for.
async fn run_job(
    set: impl FnOnce(JobRunner<Sqlite>) -> JobRunner<Sqlite>,
    set_job: impl FnOnce(Job) -> Job,
    must: bool,
) {
    let world = World::<Sqlite>::new().await;
    let job = set_job(Job::new("asked", "0 0 1 1 *").unwrap().retries(QUICK).handler(async |_| Ok(())));
    let runner = set(JobRunner::new(&world).job(job));
    let jobs = Jobs::new(&world);
    let asked = std::sync::Mutex::new(None);
    run_until(
        |stop| Box::pin(runner.run(stop)),
        async || {
            let known = *asked.lock().unwrap();
            let Some(run) = known else {
                // It is refused until the job is registered.
                *asked.lock().unwrap() = jobs.run_now("asked").await.ok();
                return false;
            };
            // One that ended may have been deleted.
            let state = jobs.run(run).await.unwrap().map(|run| run.state);
            state.is_none_or(|state| state == RunState::Done || !must && state == RunState::Failed)
        },
    )
    .await;
}

async fn look(expectation: Expectation, set: impl FnOnce(Drift<Sqlite>) -> Drift<Sqlite>) {
    let world = World::<Sqlite>::new().await;
    world.execute("CREATE TABLE payments (id BLOB PRIMARY KEY, at INTEGER)").await;
    // An expectation that no row can meet is refused.
    let Ok(drift) = Drift::new(&world).expect(expectation) else { return };
    set(drift).run_once(Sweep::Full).await.unwrap();
}

const PAID: Expectation = Expectation::exactly(1).of(WELCOME).per("payments").after(Duration::ZERO, "at");

async fn move_due(set: impl FnOnce(DelayedMessageMover<Sqlite>) -> DelayedMessageMover<Sqlite>) {
    let world = World::<Sqlite>::new().await;
    let mut tx = world.begin().await.unwrap();
    let due = Draft::of(&Placed { n: 1 }).unwrap().not_before(Timestamp::from_micros(0));
    world.outbox().publish_draft(&mut tx, due).await.unwrap();
    tx.commit().await.unwrap();
    let mover = set(DelayedMessageMover::new((*world).clone()));
    run_until(
        |stop| {
            Box::pin(async move {
                mover.run(stop).await.unwrap();
                Ok(())
            })
        },
        async || world.rows("outbox").await == 1,
    )
    .await;
}

const OPTIONS: VendorOptions = VendorOptions::new();

tried! {
    "Dispatcher::poll": |d| dispatch(profiles::RESEND, OPTIONS, |dispatcher| dispatcher.poll(d), true),
    "VendorOptions::timeout": |d| dispatch(profiles::RESEND, OPTIONS.timeout(d), |it| it, is_long(d)),
    "VendorProfile::with_key": |d| dispatch(
        VendorProfile::with_key("any", d), OPTIONS, |dispatcher| dispatcher, is_long(d)),
    "ClientLayer::budget": |d| call(|layer| layer.budget(d), None, is_long(d)),
    "ClientLayer::timeout": |d| call(|layer| layer.timeout(d), None, is_long(d)),
    "Call::key_age": |d| call(|layer| layer, Some(d), !is_long(d)),
    "JobRunner::poll": |d| run_job(|runner| runner.poll(d), |job| job, true),
    "JobRunner::lease": |d| run_job(|runner| runner.lease(d), |job| job, true),
    "JobRunner::keep": |d| run_job(|runner| runner.keep(d), |job| job, true),
    "JobRunner::drain": |d| run_job(|runner| runner.drain(d), |job| job, true),
    "Job::timeout": |d| run_job(|runner| runner, |job| job.timeout(d), is_long(d)),
    "Expectation::after": |d| look(PAID.after(d, "at"), |drift| drift),
    "Expectation::within": |d| look(PAID.within(d), |drift| drift),
    "Drift::stuck_after": |d| look(PAID, |drift| drift.stuck_after(d)),
    "DelayedMessageMover::idle_poll": |d| move_due(|mover| mover.idle_poll(d)),
}
