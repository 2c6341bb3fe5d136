//! `twinbox replay`.
use super::shop::Deployed;
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    stores::{Placed, TestDb, World, effect},
    tool::Tool,
    wait::eventually,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};
use std::time::Duration;
use twinbox::{Consumer, Delivery, Dialect, HandlerResult, Tx, event_handler};

/// What two consumers have done, and whether the first is wrong.
#[derive(Default)]
struct Shop {
    wrong: AtomicBool,
    mails: AtomicU64,
}

#[event_handler(consumer = "billing.invoice")]
async fn invoice<DB: Dialect>(
    shop: &Arc<Shop>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    let wrong = if shop.wrong.load(SeqCst) { 1_000_000 } else { 0 };
    Ok(effect::<DB>(tx, order.n + wrong).await?)
}

#[event_handler(consumer = "mails.confirm")]
async fn confirm<DB: Dialect>(shop: &Arc<Shop>, _: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    shop.mails.fetch_add(1, SeqCst);
    Ok(())
}

fn consumers<DB: TestDb>(world: &World<DB>, shop: &Arc<Shop>) -> Consumer<DB, Arc<Shop>> {
    Consumer::new((**world).clone(), shop.clone()).handler::<invoice>().handler::<confirm>()
}

/// A handler wrote wrong rows for an hour, is mended, and runs again; the other consumer does not.
async fn a_mended_handler_runs_again_and_no_other<DB: TestDb>() {
    let (world, shop) = (World::<DB>::new().await, Arc::new(Shop::default()));
    shop.wrong.store(true, SeqCst);
    publish(&world, 0..20).await;
    run_until(consumers(&world, &shop), async || world.rows("inbox").await == 40).await;
    let tool = Tool::of(&world);
    let which = ["--consumer", "billing.invoice", "--type", "orders.*"];
    let plan = tool.json(&[&["replays", "plan", "reprocess"], &which[..]].concat()).await;
    assert_eq!(
        (plan["selected"].as_u64(), plan["destination"].as_str()),
        (Some(20), Some("consumer:billing.invoice"))
    );
    assert_eq!(plan["sample"].as_array().unwrap().len(), 5);
    let asks = tool.ends(2, &[&["replays", "run", "reprocess"], &which[..]].concat()).await;
    assert!(asks.contains("--yes"), "{asks}");
    let dry = tool.run(&[&["replays", "run", "reprocess", "--dry-run"], &which[..]].concat()).await;
    assert!(dry.err.contains("20 messages") && dry.err.contains("nothing is changed"), "{dry:?}");
    assert_eq!(world.rows("replays").await, 0);

    shop.wrong.store(false, SeqCst);
    let running = Deployed::start(consumers(&world, &shop));
    let why = ["--yes", "--reason", "wrong VAT"];
    let told = tool.ok(&[&["replays", "run", "reprocess"], &which[..], &why[..]].concat()).await;
    assert!(told.contains("is done: 20 messages"), "{told}");
    let right = "SELECT count(*) FROM effects WHERE n < 1000000";
    assert_eq!(world.number(right).await, 20);
    assert_eq!(world.rows("superseded_claims").await, 20);
    assert_eq!((world.rows("inbox").await, shop.mails.load(SeqCst)), (40, 20));
    running.stop().await;

    let replays = tool.json(&["replays", "list"]).await;
    let first = &replays[0];
    assert_eq!((first["state"].as_str(), first["done"].as_u64()), (Some("done"), Some(20)));
    assert_eq!((first["made_by"].as_str(), first["reason"].as_str()), (Some("ada"), Some("wrong VAT")));
    let audit = tool.json(&["audit", "list"]).await;
    assert_eq!(audit[0]["command"], "replays run reprocess");
    assert_eq!((audit[0]["count"].as_u64(), audit[0]["operator"].as_str()), (Some(20), Some("ada")));
    let ended = tool.ends(4, &["replays", "cancel", "1", "--yes"]).await;
    assert!(ended.contains("replay 1 is done"), "{ended}");
    tool.ends(3, &["replays", "show", "99"]).await;
}

/// I10: to send again what was handled does nothing, however often.
async fn what_is_sent_again_does_nothing_twice<DB: TestDb>() {
    let (world, shop) = (World::<DB>::new().await, Arc::new(Shop::default()));
    publish(&world, 0..10).await;
    run_until(consumers(&world, &shop), async || world.rows("inbox").await == 20).await;
    let tool = Tool::of(&world);
    let running = Deployed::start(consumers(&world, &shop));
    for _ in 0..2 {
        tool.ok(&["replays", "run", "resend", "--to", "consumer:mails.confirm", "--all", "--yes"]).await;
    }
    assert_eq!((world.effects().await.len(), shop.mails.load(SeqCst)), (10, 10));
    running.stop().await;
}

/// One at a second: it can be held, let go on, and left.
async fn a_replay_is_paced_held_and_cancelled<DB: TestDb>() {
    let (world, shop) = (World::<DB>::new().await, Arc::new(Shop::default()));
    publish(&world, 0..30).await;
    run_until(consumers(&world, &shop), async || world.rows("inbox").await == 60).await;
    let tool = Tool::of(&world);
    let run = [
        "replays",
        "run",
        "reprocess",
        "--consumer",
        "mails.confirm",
        "--all",
        "--rate",
        "1",
        "--yes",
        "--no-wait",
    ];
    tool.ok(&run).await;
    tool.ok(&["replays", "pause", "1", "--yes", "--reason", "lunch"]).await;
    let status = tool.json(&["replays", "show", "1"]).await;
    assert_eq!(
        (status["state"].as_str(), status["state_text"].as_str()),
        (Some("paused"), Some("paused (lunch)"))
    );
    let running = Deployed::start(consumers(&world, &shop));
    tool.ok(&["replays", "resume", "1", "--yes"]).await;
    eventually(async || (shop.mails.load(SeqCst) > 31).then_some(())).await;
    tool.ok(&["replays", "cancel", "1", "--yes"]).await;
    let ended = tool.json(&["replays", "show", "1"]).await;
    assert_eq!(ended["state"], "cancelled");
    running.stop().await;
    assert!(shop.mails.load(SeqCst) < 60, "it was paced");
}

/// The interlock: what a consumer has forgotten is not sent again by mistake.
async fn what_a_consumer_has_forgotten_is_not_sent_again_by_mistake<DB: TestDb>() {
    let (world, shop) = (World::<DB>::new().await, Arc::new(Shop::default()));
    publish(&world, 0..5).await;
    run_until(consumers(&world, &shop), async || world.rows("inbox").await == 10).await;
    assert_eq!(world.inbox("mails.confirm").purge(Duration::ZERO).await.unwrap(), 5);
    let tool = Tool::of(&world);
    let run = ["replays", "run", "resend", "--to", "consumer:mails.confirm", "--all", "--no-wait"];
    let refused = tool.run(&[&run[..], &["--yes"]].concat()).await;
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.out.contains("mails.confirm") && refused.err.contains("--force"), "{refused:?}");
    let other = World::<DB>::new().await;
    tool.ends(2, &[&run[..], &["--yes", "--force"]].concat()).await;
    // Another consumer has forgotten nothing; one elsewhere may have.
    let to_other = ["replays", "plan", "resend", "--to", "consumer:billing.invoice"];
    assert_eq!(tool.json(&to_other).await["purged"], serde_json::json!([]));
    let elsewhere = Tool::of(&other);
    let asked = [&to_other[..], &["--consumer-database", elsewhere.url()]].concat();
    assert_eq!(tool.json(&asked).await["purged"], serde_json::json!([]));
    let asked = [&to_other[..], &["--consumer-database", tool.url()]].concat();
    assert_eq!(tool.json(&asked).await["purged"][0]["consumer"], "mails.confirm");
    tool.ok(&[&run[..], &["--yes", "--force", "--reason", "we know"]].concat()).await;
    assert_eq!(world.rows("replays").await, 1);
}

cases! {
    all: [
        a_mended_handler_runs_again_and_no_other,
        what_is_sent_again_does_nothing_twice,
        a_replay_is_paced_held_and_cancelled,
        what_a_consumer_has_forgotten_is_not_sent_again_by_mistake,
    ]
}
