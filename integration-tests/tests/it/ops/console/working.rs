//! Acts of operators while relays, consumers and dispatchers work.
use super::{
    acts::{audit_has, confirm, signed_in},
    shop::{Deployed, Deployment, consumer, given_up, publish, publish_sized, settled, settled_by},
};
use crate::support::{
    browser::Browser,
    console::Console,
    effects::{Dispatching, mail, plan, reaches},
    relay::{Running, Target},
    stores::{World, effect},
    tool::Tool,
    wait::eventually,
};
use integration_tests::vendors::VENDOR;
use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};
use twinbox::{
    Consumer, Delivery, Event, HandlerError, HandlerResult, RetryPolicy, Tx,
    effects::{EffectState, Recovery, profiles},
    event_handler,
    nats::Nats,
    relay::{OnExhausted, Relay, RelayOptions},
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};

/// A process works on a bulk action and stops half-way. The page is loaded again, and the rest is cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_loaded_again_and_cancelled_half_way() {
    let Some(browser) = Browser::start().await else { return };
    let (world, deployed) = given_up::<Postgres>(450).await;
    // Of the second two hundred.
    let mut held = world.pool().begin().await.unwrap();
    let hold = "
        SELECT id FROM twinbox.dead_letters
        WHERE id = (SELECT id FROM twinbox.dead_letters ORDER BY given_up_at, id OFFSET 300 LIMIT 1)
        FOR UPDATE";
    sqlx::query(hold).fetch_one(&mut *held).await.unwrap();
    let running = Deployed::start(consumer(&world, &deployed));
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/changes/discard?consumer=billing.invoice")).await;
    page.wait_for_text("This will delete 450 dead letters").await;
    confirm(&page, "test orders").await;
    let shows_progress = async || {
        page.wait_for_text("Changed\n200").await;
        page.wait_for_text("State\nrunning").await;
    };
    shows_progress().await;
    assert_eq!(page.reload().await, 200);
    shows_progress().await;
    running.stop().await;
    held.rollback().await.unwrap();
    assert_eq!(page.follow_text("Cancel").await, 200);
    confirm(&page, "some are no test orders").await;
    page.wait_for_text("State\ncancelled").await;
    page.open(&console.at("/changes/redrive?consumer=billing.invoice")).await;
    page.wait_for_text("This will hand 250 dead letters").await;
    confirm(&page, "those").await;
    let running = Deployed::start(consumer(&world, &deployed));
    page.wait_for_text("State\ndone").await;
    eventually(async || (world.effects().await.len() == 250).then_some(())).await;
    let entries = [("dead-letters redrive", 250), ("bulk-actions cancel", 1), ("dead-letters discard", 200)];
    audit_has(&world, &entries).await;
    running.stop().await;
    console.stop().await;
}

/// Both confirm what both have seen. Each dead letter is changed once, and both see what they did.
#[tokio::test(flavor = "multi_thread")]
async fn two_operators_redrive_the_same_at_once() {
    let Some(browser) = Browser::start().await else { return };
    let (world, deployed) = given_up::<Postgres>(300).await;
    let path = "/changes/redrive?consumer=billing.invoice";
    let (console, first, second) = signed_in(&world, &browser, path).await;
    for page in [&first, &second] {
        page.wait_for_text("This will hand 300 dead letters").await;
    }
    tokio::join!(confirm(&first, "mended"), confirm(&second, "mended, I think"));
    let running = Deployed::start(consumer(&world, &deployed));
    let mut changed = 0;
    for (page, name) in [(&first, "by ada"), (&second, "by eve")] {
        page.wait_for_text("State\ndone").await;
        let shown = page.text("main").await;
        assert!(shown.contains(name), "{shown}");
        let number = shown.split("Changed\n").nth(1).unwrap().lines().next().unwrap();
        changed += number.parse::<u64>().unwrap();
    }
    assert_eq!(changed, 300);
    eventually(async || (world.rows("dead_letters").await == 0).then_some(())).await;
    assert_eq!(world.effects().await, Vec::from_iter(0..300));
    running.stop().await;
    let audit = Tool::of(&world).json(&["audit", "list"]).await;
    let who = audit.as_array().unwrap().iter().map(|one| one["operator"].as_str().unwrap().to_owned());
    assert_eq!(who.collect::<HashSet<_>>(), HashSet::from(["ada", "eve"].map(str::to_owned)));
    console.stop().await;
}

/// One message a second: it is held, let go on, and left.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_paused_resumed_and_cancelled_under_way() {
    let Some(browser) = Browser::start().await else { return };
    let (world, deployed) = (World::<Postgres>::new().await, Arc::new(Deployment::default()));
    publish(&world, 0..30).await;
    let running = Deployed::start(consumer(&world, &deployed));
    settled_by(&world, "consumer:billing.invoice", 30).await;
    world.execute("DELETE FROM effects").await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/changes/reprocess?consumer=billing.invoice&since=1h&rate=1")).await;
    confirm(&page, "wrong VAT").await;
    let handled = async |more: usize| {
        eventually(async || (world.effects().await.len() >= more).then_some(())).await;
    };
    handled(1).await;
    assert_eq!(page.follow_text("Pause").await, 200);
    confirm(&page, "lunch").await;
    page.wait_for_text("paused").await;
    let at_lunch = world.effects().await.len();
    assert_eq!(page.follow_text("Resume").await, 200);
    confirm(&page, "").await;
    handled(at_lunch + 2).await;
    assert_eq!(page.follow_text("Cancel").await, 200);
    confirm(&page, "enough").await;
    page.wait_for_text("cancelled").await;
    assert!(world.effects().await.len() < 30, "it is left before its end");
    let made =
        [("replays cancel", 1), ("replays resume", 1), ("replays pause", 1), ("replays run reprocess", 30)];
    audit_has(&world, &made).await;
    running.stop().await;
    console.stop().await;
}

/// A vendor that is paused gets nothing. What failed and what is unknown is sent again under new keys.
#[tokio::test(flavor = "multi_thread")]
async fn effects_are_held_and_sent_again() {
    let Some(browser) = Browser::start().await else { return };
    let (world, vendor) = (World::<Postgres>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_next([VendorAnswer::Status(422), VendorAnswer::Act, VendorAnswer::Cut]);
    let profile = profiles::RESEND.recovery(Recovery::Operator);
    let dispatching = Dispatching::to(&world, &vendor, profile);
    let refused = plan(&world, mail("refused")).await;
    let failed = reaches(&world, refused, EffectState::Failed).await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at(&format!("/effects?id={}", failed.position))).await;
    assert_eq!(page.follow_text("Send again").await, 200);
    confirm(&page, "the address is mended there").await;
    reaches(&world, refused, EffectState::Confirmed).await;

    let cut = plan(&world, mail("cut")).await;
    let unknown = reaches(&world, cut, EffectState::Unknown).await;
    page.open(&console.at(&format!("/effects?id={}", unknown.position))).await;
    assert_eq!(page.follow_text("It did nothing: send again").await, 200);
    confirm(&page, "not in their log").await;
    reaches(&world, cut, EffectState::Confirmed).await;
    let keys = HashSet::<_>::from_iter(vendor.calls().into_iter().map(|call| call.key.unwrap()));
    assert_eq!((vendor.calls().len(), keys.len()), (4, 4));

    page.open(&console.at(&format!("/changes/pause-vendor?name={VENDOR}"))).await;
    confirm(&page, "their outage").await;
    page.wait_for_text("It is paused").await;
    let later = plan(&world, mail("later")).await;
    page.open(&console.at("/")).await;
    page.wait_for_text("their outage").await;
    assert_eq!(vendor.calls().len(), 4);
    page.open(&console.at(&format!("/changes/resume-vendor?name={VENDOR}"))).await;
    confirm(&page, "").await;
    reaches(&world, later, EffectState::Confirmed).await;
    let made = [("vendors resume", 1), ("vendors pause", 1), ("effects resolve", 1), ("effects retry", 1)];
    audit_has(&world, &made).await;
    dispatching.stop().await;
    console.stop().await;
}

/// The broker takes no message of this size, and the destination waits for a person.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_holds_a_destination_is_skipped() {
    let Some(browser) = Browser::start().await else { return };
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let small =
        async_nats::jetstream::stream::Config { max_message_size: 1024, ..target.config(&["orders.placed"]) };
    target.create(small).await;
    let options = RelayOptions::new().on_exhausted(OnExhausted::Block);
    let destination = Nats::with_options(target.existing()).unwrap();
    let relay = Running::run(Relay::with_options((*world).clone(), destination, options));
    publish_sized(&world, 1..2, 4000).await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/")).await;
    page.wait_for_text("blocks nats").await;
    publish(&world, 2..5).await;
    page.open(&console.at("/messages?id=order-1")).await;
    assert_eq!(page.follow("a[href^='/changes/skip-message']").await, 200);
    confirm(&page, "it is too large").await;
    page.wait_for_text("The message is skipped.").await;
    settled(&world, 3).await;
    assert_eq!(target.count().await, 3);
    audit_has(&world, &[("messages skip", 1)]).await;
    relay.stop().await;
    console.stop().await;
}

/// The orders of the shop, whose customers may not be overtaken.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = n)]
struct Ordered {
    n: i64,
}

#[event_handler(consumer = "billing.ordered", order = "key", retry = HOURLY, max_attempts = 100)]
async fn ordered(
    deployed: &Arc<Deployment>,
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Ordered>,
) -> HandlerResult {
    if deployed.rejects.load(SeqCst) {
        return Err(HandlerError::from("the customer service is away"));
    }
    Ok(effect::<Postgres>(tx, order.n).await?)
}

const HOURLY: RetryPolicy = RetryPolicy::exponential(Duration::from_secs(3600), Duration::from_secs(3600));

/// Deliveries that a consumer has parked for an hour run at once.
#[tokio::test(flavor = "multi_thread")]
async fn parked_deliveries_are_tried_at_once() {
    let Some(browser) = Browser::start().await else { return };
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let deployed = Arc::new(Deployment::default());
    deployed.rejects.store(true, SeqCst);
    publish(&world, 0..3).await;
    let relay = Running::run(Relay::new(
        (*world).clone(),
        Nats::with_options(target.options().partitions(1)).unwrap(),
    ));
    relay.published(3).await;
    let nats = Nats::with_options(target.existing().partitions(1)).unwrap();
    let ordered = Consumer::new((*world).clone(), deployed.clone()).transport(nats).handler::<ordered>();
    let running = Deployed::start(ordered);
    eventually(async || (world.rows("parked_deliveries").await == 3).then_some(())).await;
    deployed.rejects.store(false, SeqCst);
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/keys?key=customer-2")).await;
    page.wait_for_text("billing.ordered").await;
    page.open(&console.at("/consumers?name=billing.ordered")).await;
    assert_eq!(page.follow("a[href^='/changes/retry-parked']").await, 200);
    page.wait_for_text("Parked: 3.").await;
    confirm(&page, "the customer service is back").await;
    page.wait_for_text("The parked deliveries are due now.").await;
    eventually(async || (world.effects().await == [0, 1, 2]).then_some(())).await;
    eventually(async || (world.rows("parked_deliveries").await == 0).then_some(())).await;
    audit_has(&world, &[("messages retry", 3)]).await;
    running.stop().await;
    relay.stop().await;
    console.stop().await;
}
