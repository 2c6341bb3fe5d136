//! Many effects, and a vendor that fails in every way.
use crate::support::{
    effects::{Dispatching, WELCOME},
    stores::World,
    wait::eventually,
};
use integration_tests::vendors::{VENDOR, http_vendor};
use sqlx::Postgres;
use std::{collections::HashMap, time::Duration};
use twinbox::{
    RetryPolicy,
    effects::{Dispatcher, EffectRequest, Effects, VendorOptions, VendorProfile},
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};
use uuid::Uuid;

const EFFECTS: usize = 10_000;
/// How long the vendor remembers a key.
const WINDOW: Duration = Duration::from_secs(600);
/// How long the vendor says nothing, from time to time.
const STALL: Duration = Duration::from_secs(2);

const RETRIES: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(100); 12]);

/// 5 % failures, pauses that the vendor asks for, and calls that take 2 s and end without a response.
fn answer(nth: usize) -> VendorAnswer {
    match nth {
        nth if nth % 20 == 7 => VendorAnswer::Status(500),
        nth if nth % 2000 == 500 => VendorAnswer::RetryAfter(429, 1),
        nth if nth % 500 == 13 => VendorAnswer::ActThenStall,
        _ => VendorAnswer::Act,
    }
}

/// By two dispatchers. R13, R69, t26
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_effects_are_confirmed_by_a_vendor_that_fails() {
    let (world, vendor) = (World::<Postgres>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_with(answer);
    let effects = Effects::new(&world);
    let mut tx = world.begin().await.unwrap();
    for n in 0..EFFECTS {
        let request = EffectRequest::json(VENDOR, &n).unwrap();
        effects.plan(&mut tx, Uuid::now_v7(), WELCOME, request).await.unwrap();
    }
    tx.commit().await.unwrap();
    let profile = VendorProfile::with_key("failing", WINDOW);
    let options = VendorOptions::new().timeout(STALL).retries(RETRIES);
    let both = [(); 2].map(|()| {
        let sender = http_vendor(&vendor.url(), profile.clone()).unwrap();
        Dispatching::start(Dispatcher::new(&world).vendor_with(sender, options))
    });
    let confirmed = "SELECT count(*) FROM twinbox.side_effects WHERE state = 'confirmed'";
    eventually(async || (world.number(confirmed).await == EFFECTS as i64).then_some(())).await;
    for dispatching in both {
        dispatching.stop().await;
    }
    let calls = vendor.calls();
    let mut by_key = HashMap::new();
    for call in &calls {
        by_key.entry(call.key.clone().unwrap()).or_insert_with(Vec::new).push(call.at);
    }
    assert_eq!((by_key.len(), vendor.acts().len()), (EFFECTS, EFFECTS));
    for times in by_key.values() {
        assert!(times[times.len() - 1] - times[0] < WINDOW * 9 / 10, "a key was sent outside of its window");
    }
    assert!(calls.iter().any(|call| matches!(call.answer, VendorAnswer::RetryAfter(..))));
    // Calls that were under way when the vendor asked for a pause are on the wire already.
    assert_eq!(vendor.early_calls(Duration::from_millis(300)), 0, "calls while the vendor asked for none");
}
