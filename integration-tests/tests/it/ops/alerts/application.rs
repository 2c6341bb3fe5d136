//! The metrics of an application in this process, and faults of its side effects, jobs and keeper.
use super::watch::{ONLY, Watch};
use crate::support::{
    database::SERVICE,
    effects::{QUICK, WELCOME},
    jobs::{RunningJobs, registered},
    roles::Roles,
    stores::World,
    tool::Tool,
    wait::{eventually, in_time},
};
use axum::{Router, routing::get};
use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use sqlx::{AssertSqlSafe, Postgres, Sqlite, postgres::PgPoolOptions};
use std::{net::SocketAddr, time::Duration};
use tokio::net::TcpListener;
use twinbox::{
    CancellationToken, Dialect, RetryPolicy, Store, Timestamp,
    effects::{
        Dispatcher, EffectRequest, Effects, HttpVendor, Recovery, ReqwestService, VendorOptions,
        VendorProfile,
        jobs::{Job, JobRunner, Jobs, Misfire},
        profiles,
    },
    log::Keeper,
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};
use uuid::Uuid;

/// Records the metrics of this thread, on which all tasks of the test run.
pub(super) struct Recorded {
    handle: PrometheusHandle,
    _guard: LocalRecorderGuard<'static>,
}

impl Recorded {
    pub(super) fn start() -> Self {
        let recorder: &'static PrometheusRecorder =
            Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self { handle: recorder.handle(), _guard: metrics::set_default_local_recorder(recorder) }
    }

    pub(super) fn page(&self) -> String {
        self.handle.render()
    }

    /// Serves the page, as an application would.
    pub(super) async fn serve(&self) -> SocketAddr {
        let handle = self.handle.clone();
        let router = Router::new().route("/metrics", get(async move || handle.render()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, router).into_future());
        address
    }
}

/// Plans an effect that a vendor gets.
pub(super) async fn plan<DB: Dialect>(store: &Store<DB>, vendor: &str) {
    let request = EffectRequest::json(vendor, &"hello").unwrap().target("/emails");
    let mut tx = store.begin().await.unwrap();
    Effects::new(store).plan(&mut tx, Uuid::now_v7(), WELCOME, request).await.unwrap();
    tx.commit().await.unwrap();
}

/// Adds a vendor on loopback to a dispatcher.
pub(super) async fn with_vendor<DB: Dialect>(
    dispatcher: Dispatcher<DB>,
    name: &str,
    profile: VendorProfile,
) -> (Dispatcher<DB>, FakeVendor) {
    const RETRIES: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(1); 30]);
    let fake = FakeVendor::start().await.unwrap();
    let service = ReqwestService::new(reqwest::Client::builder().no_proxy()).unwrap();
    let vendor = HttpVendor::new(name, profile, fake.url(), service).unwrap();
    (dispatcher.vendor_with(vendor, VendorOptions::new().retries(RETRIES)), fake)
}

/// Goes through the faults of vendors, each with a vendor of its own.
pub(super) async fn effects(watch: &Watch) {
    let world = World::<Sqlite>::new().await;
    let profile = profiles::RESEND;
    let dispatcher = Dispatcher::new(&*world).poll(Duration::from_millis(50));
    let (dispatcher, paused) = with_vendor(dispatcher, "paused", profile.clone()).await;
    let unsafe_to_repeat = profile.clone().recovery(Recovery::Operator);
    let (dispatcher, cutting) = with_vendor(dispatcher, "cutting", unsafe_to_repeat).await;
    let (dispatcher, refusing) = with_vendor(dispatcher, "refusing", profile.clone()).await;
    let (dispatcher, locked) = with_vendor(dispatcher, "locked", profile.clone()).await;
    let (dispatcher, down) = with_vendor(dispatcher, "down", profile).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    let at_once = async |alert, vendor, fake: &FakeVendor, answer| {
        let alert = watch.silent(alert, ("vendor", vendor)).await;
        fake.answer_next([answer]);
        plan(&world, vendor).await;
        alert.fires().await;
        alert.clears().await;
    };
    tokio::join!(
        at_once("TwinboxEffectsUnknown", "cutting", &cutting, VendorAnswer::ActThenCut),
        at_once("TwinboxEffectsFailed", "refusing", &refusing, VendorAnswer::Status(400)),
        at_once("TwinboxCredentialsRefused", "locked", &locked, VendorAnswer::Status(401)),
        async {
            let waits = watch.silent("TwinboxEffectsWait", ("vendor", "paused")).await;
            let tool = Tool::of(&world);
            // A vendor is known by its effects.
            plan(&world, "paused").await;
            paused.wait_for_calls(1).await;
            tool.ok(&["vendors", "pause", "paused", "--yes", "--reason", "their maintenance"]).await;
            plan(&world, "paused").await;
            waits.fires().await;
            tool.ok(&["vendors", "resume", "paused", "--yes"]).await;
            waits.clears().await;
        },
        async {
            let is_down = watch.silent("TwinboxVendorDown", ("vendor", "down")).await;
            down.answer_with(|_| VendorAnswer::Status(503));
            plan(&world, "down").await;
            is_down.fires().await;
            down.answer_with(|_| VendorAnswer::Act);
            is_down.clears().await;
        },
    );
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
}

/// Goes through a run that fails, and through runs that no process was there for.
pub(super) async fn jobs(watch: &Watch) {
    let world = World::<Sqlite>::new().await;
    let failed = watch.silent("TwinboxJobFailed", ("job_id", "failing")).await;
    let failing = Job::new("failing", "0 0 1 1 *").unwrap().retries(QUICK);
    let failing = failing.handler(async |_| Err("the printer is jammed".into()));
    let days = "0 30 2 27-31 3 * 2026";
    let noon = Timestamp::parse("2026-03-26T12:00:00Z").unwrap();
    registered(&world, ["late", days, "UTC"], noon).await;
    let missed = watch.silent("TwinboxJobMissed", ("job_id", "late")).await;
    let late = Job::new("late", days).unwrap().misfire(Misfire::Skip).handler(async |_| Ok(()));
    let running = RunningJobs::start(JobRunner::new(&*world).job(failing).job(late));
    eventually(async || Jobs::new(&*world).run_now("failing").await.ok()).await;
    tokio::join!(failed.fires(), missed.fires());
    tokio::join!(failed.clears(), missed.clears());
    running.stop().await;
}

/// Goes through a keeper whose role may not delete, until it is granted to.
pub(super) async fn keeper(watch: &Watch) {
    let world = World::<Postgres>::new().await;
    let grows = watch.silent("TwinboxTablesGrow", ONLY).await;
    let roles = Roles::create(&world, "effects").await;
    let options = (*world.pool().connect_options()).clone().username(&roles.runtime);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    let store = Store::<Postgres>::new(pool.clone(), SERVICE).unwrap();
    let (stop, often) = (CancellationToken::new(), Duration::from_secs(1));
    let keeper = Keeper::new(&store).every(often).first_look(often);
    let running = tokio::spawn(keeper.run(stop.clone()));
    grows.fires().await;
    let grant = format!("GRANT {} TO {}", roles.keeper, roles.runtime);
    sqlx::raw_sql(AssertSqlSafe(grant)).execute(world.pool()).await.unwrap();
    grows.clears().await;
    stop.cancel();
    in_time(running).await.unwrap();
    pool.close().await;
    roles.drop(&world).await;
}
