//! The delays of a handler's policy, and when it gives a message up.
use crate::support::{
    cases::cases,
    stores::{Placed, TestDb, World, placed},
};
use std::time::Duration;
use twinbox::{
    Delivery, DeliveryOutcome, Dialect, HandlerResult, RetryPolicy, Tx, consumer::EventHandler, event_handler,
};

const STEADY: RetryPolicy =
    RetryPolicy::exponential(Duration::from_secs(3), Duration::from_secs(3)).jitter(0.0);
const LONG: RetryPolicy = STEADY.max_attempts(25);

#[event_handler(consumer = "tests.vendor", retry = "vendor")]
async fn vendor<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    Err("no".into())
}

#[event_handler(consumer = "tests.client", retry = "client")]
async fn client<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    Err("no".into())
}

#[event_handler(consumer = "tests.both", retry = "vendor", max_attempts = 7)]
async fn seven_times<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    Err("no".into())
}

#[event_handler(consumer = "tests.long", retry = LONG)]
async fn long<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    Err("no".into())
}

#[event_handler(consumer = "tests.steady", retry = STEADY)]
async fn steady<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    Err("no".into())
}

/// The delays in milliseconds until the message is given up.
async fn delays<DB: TestDb, H: EventHandler<DB, ()>>() -> Vec<u128> {
    let world = World::<DB>::new().await;
    let order = placed(1);
    let mut delays = Vec::new();
    loop {
        match world.deliver::<H>(&order).await {
            DeliveryOutcome::Retried { delay, counted: true, .. } => delays.push(delay.as_millis()),
            DeliveryOutcome::DeadLettered { .. } => return delays,
            other => panic!("{other:?}"),
        }
    }
}

fn assert_within(delays: &[u128], least: &[u128], spread: f64) {
    assert_eq!(delays.len(), least.len(), "{delays:?}");
    for (delay, least) in delays.iter().zip(least) {
        let most = (*least as f64 * (1.0 + spread)).ceil() as u128;
        assert!((*least..=most).contains(delay), "{delays:?}");
    }
}

/// R13, D17, D18
async fn the_vendor_profile_ends_after_its_four_delays<DB: TestDb>() {
    assert_within(&delays::<DB, vendor>().await, &[500, 2000, 5000, 30_000], 0.25);
}

/// R31, D17
async fn the_client_profile_ends_with_its_ten_seconds<DB: TestDb>() {
    let delays = delays::<DB, client>().await;
    assert_within(&delays[..4], &[100, 200, 400, 800], 1.0);
    assert_eq!(delays.len(), 7);
    assert!(delays.iter().sum::<u128>() <= 10_000, "{delays:?}");
}

async fn max_attempts_says_when_to_give_up<DB: TestDb>() {
    let least = [500, 2000, 5000, 30_000, 30_000, 30_000];
    assert_within(&delays::<DB, seven_times>().await, &least, 0.25);
}

async fn twenty_attempts_are_the_end_where_the_policy_has_none<DB: TestDb>() {
    assert_eq!(delays::<DB, steady>().await, [3000; 19]);
    assert_eq!(delays::<DB, long>().await, [3000; 24]);
}

cases! {
    all: [
        the_vendor_profile_ends_after_its_four_delays,
        the_client_profile_ends_with_its_ten_seconds,
        max_attempts_says_when_to_give_up,
        twenty_attempts_are_the_end_where_the_policy_has_none,
    ]
}
