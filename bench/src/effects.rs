//! The dispatch of a backlog of side effects, as a ratio to a bare loop of the same client that sends the
//! same requests to the same vendor. Then the dispatcher's own cost, with a vendor that answers at once.
use crate::{failure::Failure, processes::Family, report::Report, spread::Spread};
use futures::future::{BoxFuture, try_join_all};
use sqlx::Postgres;
use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tracing::{Event, Metadata, Subscriber, span};
use twinbox::{
    CancellationToken, Store,
    effects::{
        Applied, Dispatcher, EffectRequest, Effects, HttpVendor, ReqwestService, Vendor, VendorCall,
        VendorError, VendorOptions, VendorProfile, profiles,
    },
};
use twinbox_testkit::{database, vendor::FakeVendor};
use uuid::Uuid;

const EFFECTS: usize = 10_000;
const IN_FLIGHT: usize = 64;
const RUNS: usize = 5;
const VENDOR_TAKES: Duration = Duration::from_millis(20);
/// About the size of a request for a mail.
const BODY_BYTES: usize = 500;

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    println!(
        "{EFFECTS} effects, {IN_FLIGHT} in flight, a vendor of {} ms, {RUNS} interleaved runs, with fsync",
        VENDOR_TAKES.as_millis()
    );
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let bare = bare().await?;
        let dispatched = dispatched().await?;
        println!("  bare {bare:>6.0}/s   dispatched {dispatched:>6.0}/s   ratio {:.2}", dispatched / bare);
        ratios.push(dispatched / bare);
        rates.push(dispatched);
    }
    report.add("effects / bare loop", Spread::of(ratios))?;
    report.add("effects a second", Spread::of(rates))?;
    own_cost().await
}

async fn vendor() -> Result<FakeVendor, Failure> {
    let vendor = FakeVendor::start().await?;
    vendor.delay(VENDOR_TAKES);
    Ok(vendor)
}

/// Returns calls per second of a loop without a database.
async fn bare() -> Result<f64, Failure> {
    let (vendor, client) = (vendor().await?, reqwest::Client::builder().no_proxy().build()?);
    let url = vendor.url();
    let started = Instant::now();
    let sending = (0..IN_FLIGHT).map(async |_| {
        for _ in 0..EFFECTS / IN_FLIGHT {
            let request = client.post(&url).header("content-type", "application/octet-stream");
            let request = request.header("idempotency-key", Uuid::now_v7().to_string());
            let response = request.body(vec![b'x'; BODY_BYTES]).send().await?;
            response.error_for_status()?.bytes().await?;
        }
        Ok::<_, Failure>(())
    });
    try_join_all(sending).await?;
    Ok((EFFECTS / IN_FLIGHT * IN_FLIGHT) as f64 / started.elapsed().as_secs_f64())
}

/// Returns effects per second of a dispatcher that begins with all of them due.
async fn dispatched() -> Result<f64, Failure> {
    let (store, vendor) = (planned("http").await?, vendor().await?);
    let service = ReqwestService::new(reqwest::Client::builder().no_proxy())?;
    let sender = HttpVendor::new("http", profiles::RESEND, vendor.url(), service)?;
    let stop = CancellationToken::new();
    let options = VendorOptions::new().in_flight(IN_FLIGHT);
    let dispatcher = Dispatcher::new(&store).vendor_with(sender, options);
    let started = Instant::now();
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    vendor.wait_for_calls(EFFECTS).await;
    let took = started.elapsed();
    stop.cancel();
    running.await??;
    all_confirmed(&store).await?;
    Ok(EFFECTS as f64 / took.as_secs_f64())
}

/// Creates a database with effects that are due.
async fn planned(vendor: &str) -> Result<database::TestDatabase<Postgres>, Failure> {
    let store = database::postgres().await;
    let effects = Effects::new(&store);
    let mut tx = store.begin().await?;
    for _ in 0..EFFECTS {
        let request = EffectRequest::new(vendor, vec![b'x'; BODY_BYTES]);
        effects.plan(&mut tx, Uuid::now_v7(), "bench", request).await?;
    }
    tx.commit().await?;
    sqlx::raw_sql("VACUUM ANALYZE").execute(store.pool()).await?;
    Ok(store)
}

async fn all_confirmed(store: &Store<Postgres>) -> Result<(), Failure> {
    let open = "SELECT count(*) FROM twinbox.side_effects WHERE state <> 'confirmed' OR attempts <> 1";
    match sqlx::query_scalar::<_, i64>(open).fetch_one(store.pool()).await? {
        0 => Ok(()),
        open => Err(format!("{open} effects are not confirmed by their first send").into()),
    }
}

/// A vendor that answers at once.
struct Instantly(watch::Sender<usize>);

impl Vendor for Instantly {
    fn name(&self) -> &str {
        "instantly"
    }

    fn profile(&self) -> &VendorProfile {
        &profiles::RESEND
    }

    fn send<'a>(&'a self, _: &'a VendorCall) -> BoxFuture<'a, Result<Applied, VendorError>> {
        self.0.send_modify(|calls| *calls += 1);
        Box::pin(async { Ok(Applied::new()) })
    }
}

/// Prints what the dispatcher itself takes. The statements are counted in a run of their own, because the
/// count takes time.
async fn own_cost() -> Result<(), Failure> {
    let (mut wall, mut processor) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (took, worked) = instantly().await?;
        wall.push(took.as_secs_f64() * 1e6 / EFFECTS as f64);
        processor.push(worked * 1e6 / EFFECTS as f64);
    }
    tracing::subscriber::set_global_default(Statements)?;
    instantly().await?;
    let statements = STATEMENTS.load(Relaxed) as f64 / EFFECTS as f64;
    println!("a vendor that answers at once, for each effect:");
    println!("  time of this process     {:.1} µs", Spread::of(processor));
    println!("  until the next effect    {:.1} µs", Spread::of(wall));
    println!("  statements               {statements:.3}");
    Ok(())
}

/// Dispatches all effects. Returns how long it took, and the processor time of this process in seconds.
async fn instantly() -> Result<(Duration, f64), Failure> {
    let store = planned("instantly").await?;
    let stop = CancellationToken::new();
    let calls = watch::Sender::new(0);
    let mut called = calls.subscribe();
    let options = VendorOptions::new().in_flight(IN_FLIGHT);
    let dispatcher = Dispatcher::new(&store).vendor_with(Instantly(calls), options);
    STATEMENTS.store(0, Relaxed);
    let this = Family::of(std::process::id());
    let (started, worked) = (Instant::now(), this.seconds()?);
    let running = tokio::spawn(dispatcher.run(stop.clone()));
    called.wait_for(|calls| *calls >= EFFECTS).await?;
    let measured = (started.elapsed(), this.seconds()? - worked);
    stop.cancel();
    running.await??;
    all_confirmed(&store).await?;
    Ok(measured)
}

static STATEMENTS: AtomicUsize = AtomicUsize::new(0);

/// Counts the statements that sqlx tells of.
struct Statements;

impl Subscriber for Statements {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        STATEMENTS.fetch_add(1, Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
