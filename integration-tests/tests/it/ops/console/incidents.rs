//! Incidents of the runbook, each solved through the page alone.
use super::{
    acts::{audit_has, confirm},
    shop::{Deployed, Deployment, consumer, publish, settled, settled_by},
};
use crate::support::{
    browser::Browser,
    console::Console,
    effects::{Dispatching, mail, plan, reaches},
    relay::{Running, Target},
    stores::World,
    tool::Tool,
    wait::eventually,
};
use sqlx::Postgres;
use std::sync::{Arc, atomic::Ordering::SeqCst};
use twinbox::effects::{EffectState, Recovery, profiles};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_deployment_gives_up_many_messages() {
    let Some(browser) = Browser::start().await else { return };
    let (world, deployed) = (World::<Postgres>::new().await, Arc::new(Deployment::default()));
    deployed.rejects.store(true, SeqCst);
    publish(&world, 0..500).await;
    let bad = Deployed::start(consumer(&world, &deployed));
    eventually(async || (world.rows("dead_letters").await > 100).then_some(())).await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/consumers?name=billing.invoice")).await;
    assert_eq!(page.follow_text("Pause").await, 200);
    confirm(&page, "bad deployment").await;
    bad.stop().await;
    deployed.rejects.store(false, SeqCst);
    let mended = Deployed::start(consumer(&world, &deployed));
    assert_eq!(page.follow_text("Resume").await, 200);
    confirm(&page, "mended").await;
    page.open(&console.at("/dead-letters")).await;
    assert_eq!(page.follow("a[href^='/changes/redrive']").await, 200);
    confirm(&page, "mended").await;
    page.wait_for_text("done").await;
    eventually(async || (world.effects().await.len() == 500).then_some(())).await;
    page.open(&console.at("/dead-letters")).await;
    page.wait_for_text("There is no dead letter.").await;
    mended.stop().await;
    console.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_wrote_wrong_rows() {
    let Some(browser) = Browser::start().await else { return };
    let (world, deployed) = (World::<Postgres>::new().await, Arc::new(Deployment::default()));
    deployed.wrong.store(true, SeqCst);
    publish(&world, 0..50).await;
    let running = Deployed::start(consumer(&world, &deployed));
    eventually(async || (world.effects().await.len() == 50).then_some(())).await;
    settled_by(&world, "consumer:billing.invoice", 50).await;
    deployed.wrong.store(false, SeqCst);
    world.execute("DELETE FROM effects").await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/replays")).await;
    page.fill("form[action='/changes/reprocess'] [name=since]", "1h").await;
    assert_eq!(page.follow_text("Preview a reprocess").await, 200);
    page.wait_for_text("This will run 50 messages again with billing.invoice").await;
    confirm(&page, "wrong VAT").await;
    page.wait_for_text("50 of 50").await;
    eventually(async || (world.effects().await == Vec::from_iter(0..50)).then_some(())).await;
    audit_has(&world, &[("replays run reprocess", 50)]).await;
    running.stop().await;
    console.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_is_stuck() {
    let Some(browser) = Browser::start().await else { return };
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    publish(&world, 0..1).await;
    let relay = Running::start(&*world, &target);
    relay.published(1).await;
    relay.stop().await;
    // As a relay with `on_exhausted = "park_key"` leaves it.
    publish(&world, 7..8).await;
    publish(&world, 107..108).await;
    world
        .execute(
            "INSERT INTO twinbox.parked_messages (destination, position, key, type, state, blocks_key,
                attempts,
                next_attempt_at, first_error, last_error, fingerprint)
             SELECT 'nats', position, key, type, 'dead', true, 1, now(), 'nats.too_large', 'nats.too_large',
                 'f'
             FROM twinbox.outbox WHERE id = 'order-7'",
        )
        .await;
    let relay = Running::start(&*world, &target);
    let parked = "SELECT count(*) FROM twinbox.parked_messages WHERE state = 'waiting'";
    eventually(async || (world.number(parked).await == 1).then_some(())).await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/keys")).await;
    page.fill("[name=key]", "customer-7").await;
    assert_eq!(page.follow_text("Show its messages").await, 200);
    let shown = page.text("main").await;
    assert!(
        shown.contains("dead for nats: later ones wait") && shown.contains("parked for nats, behind"),
        "{shown}"
    );
    assert_eq!(page.follow("a[href^='/changes/unblock-key']").await, 200);
    confirm(&page, "the first one is too large").await;
    page.wait_for_text("The key is released.").await;
    audit_has(&world, &[("keys unblock", 1)]).await;
    eventually(async || (world.number(parked).await == 0).then_some(())).await;
    relay.stop().await;
    console.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_lost_data() {
    let Some(browser) = Browser::start().await else { return };
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    publish(&world, 0..60).await;
    let relay = Running::start(&*world, &target);
    relay.published(60).await;
    settled(&world, 60).await;
    target.jetstream().await.get_stream(&target.name).await.unwrap().purge().await.unwrap();
    assert_eq!(target.count().await, 0);
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/replays")).await;
    page.fill("form[action='/changes/resend'] [name=since]", "2h").await;
    assert_eq!(page.follow_text("Preview a resend").await, 200);
    confirm(&page, "the stream was lost").await;
    page.wait_for_text("60 of 60").await;
    eventually(async || (target.count().await == 60).then_some(())).await;
    relay.stop().await;
    console.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_unknown() {
    let Some(browser) = Browser::start().await else { return };
    let (world, vendor) = (World::<Postgres>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_next([VendorAnswer::ActThenCut]);
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND.recovery(Recovery::Operator));
    let source = plan(&world, mail("first").key("ada")).await;
    reaches(&world, source, EffectState::Unknown).await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/")).await;
    page.wait_for_text("1 side effect unknown").await;
    assert_eq!(page.follow("a[href='/effects?state=unknown']").await, 200);
    assert_eq!(page.follow("tbody th a").await, 200);
    assert_eq!(page.follow_text("It has acted").await, 200);
    page.wait_for_text("This will confirm the effect").await;
    confirm(&page, "it is in their log").await;
    page.wait_for_text("The effect is changed.").await;
    reaches(&world, source, EffectState::Confirmed).await;
    audit_has(&world, &[("effects resolve", 1)]).await;
    assert_eq!(vendor.calls().len(), 1);
    dispatching.stop().await;
    console.stop().await;
}
