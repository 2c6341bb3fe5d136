//! Side effects, and a vendor on loopback for them.
use super::{
    stores::{TestDb, World},
    wait::{eventually, in_time},
};
use integration_tests::vendors::{VENDOR, http_vendor};
use std::time::Duration;
use tokio::task::JoinHandle;
use twinbox::{
    CancellationToken, Dialect, RetryPolicy, Store,
    effects::{
        Dispatcher, EffectRequest, EffectState, Effects, SideEffect, VendorOptions, VendorProfile, profiles,
    },
};
use twinbox_testkit::vendor::FakeVendor;
use uuid::Uuid;

/// The kind of effects of tests.
pub(crate) const WELCOME: &str = "email.welcome";
/// Short delays between sends, so that a test need not wait.
pub(crate) const QUICK: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(1); 4]);

pub(crate) fn mail(text: &str) -> EffectRequest {
    EffectRequest::json(VENDOR, &serde_json::json!({ "text": text })).unwrap().target("/emails")
}

/// Plans an effect in a transaction of its own, and returns its source.
pub(crate) async fn plan<DB: Dialect>(store: &Store<DB>, request: EffectRequest) -> Uuid {
    let source = Uuid::now_v7();
    plan_at(store, source, request).await;
    source
}

/// Plans an effect of a source in a transaction of its own.
pub(crate) async fn plan_at<DB: Dialect>(store: &Store<DB>, source: Uuid, request: EffectRequest) {
    let mut tx = store.begin().await.unwrap();
    Effects::new(store).plan(&mut tx, source, WELCOME, request).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) async fn found<DB: Dialect>(store: &Store<DB>, source: Uuid) -> SideEffect {
    Effects::new(store).find(source, WELCOME).await.unwrap().expect("the effect is planned")
}

/// Waits until the effect has a state.
pub(crate) async fn reaches<DB: Dialect>(store: &Store<DB>, source: Uuid, state: EffectState) -> SideEffect {
    eventually(async || Some(found(store, source).await).filter(|effect| effect.state == state)).await
}

/// A dispatcher that runs beside a test.
pub(crate) struct Dispatching {
    stop: CancellationToken,
    running: JoinHandle<Result<(), twinbox::Error>>,
}

impl Dispatching {
    pub(crate) fn start<DB: Dialect>(dispatcher: Dispatcher<DB>) -> Self {
        let stop = CancellationToken::new();
        let running = tokio::spawn(dispatcher.poll(Duration::from_millis(10)).run(stop.clone()));
        Self { stop, running }
    }

    /// Sends to the vendor with short delays.
    pub(crate) fn to<DB: Dialect>(store: &Store<DB>, vendor: &FakeVendor, profile: VendorProfile) -> Self {
        let vendor = http_vendor(&vendor.url(), profile).unwrap();
        Self::start(Dispatcher::new(store).vendor_with(vendor, VendorOptions::new().retries(QUICK)))
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        in_time(self.running).await.unwrap().unwrap();
    }
}

/// A database, a vendor, and a dispatcher with the profile of Resend.
pub(crate) async fn all<DB: TestDb>() -> (World<DB>, FakeVendor, Dispatching) {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    (world, vendor, dispatching)
}
