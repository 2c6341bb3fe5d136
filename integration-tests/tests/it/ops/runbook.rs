//! The incidents of the tool's README, each from its cause to its end. What is run is what stands there.
use super::shop::{Deployed, Deployment, consumer, publish, publish_sized, settled};
use crate::support::{
    book::{Book, README},
    consumer::run_until,
    effects::{Dispatching, found, mail, plan, reaches},
    long,
    relay::{Running, Target},
    stores::{TestDb, World},
    wait::eventually,
};
use sqlx::Postgres;
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};
use twinbox::{
    consumer::{ConsumerState, ConsumerStatus},
    effects::{EffectState, Recovery, profiles},
    log::{Log, StartPosition},
    nats::Nats,
    ops::Ops,
    relay::{OnExhausted, Relay, RelayOptions},
};
use twinbox_testkit::{
    servers::NatsServer,
    vendor::{FakeVendor, VendorAnswer},
};

fn relay(world: &World<Postgres>, target: &Target, options: RelayOptions) -> Running {
    Running::run(Relay::with_options(
        (**world).clone(),
        Nats::with_options(target.existing()).unwrap(),
        options,
    ))
}

/// Fault 14: JetStream's store is wiped, and every consumer ends with one effect for each message.
#[tokio::test(flavor = "multi_thread")]
async fn row_14_a_broker_lost_its_disk() {
    let (world, mut server) = (World::<Postgres>::new().await, NatsServer::start().unwrap());
    let (target, deployed) = (Target::at(server.url()), Arc::new(Deployment::default()));
    publish(&world, 0..300).await;
    let running = Running::start(&world, &target);
    running.published(300).await;
    settled(&world, 300).await;
    // A consumer that has handled the first hundred of them.
    let over_nats = || consumer(&world, &deployed).transport(target.destination());
    let consuming = Deployed::start(over_nats());
    eventually(async || (world.effects().await.len() >= 100).then_some(())).await;
    consuming.stop().await;

    server.kill().unwrap();
    server.wipe_store().unwrap();
    server.restart().unwrap();
    publish(&world, 300..320).await;
    running.published(320).await;
    settled(&world, 320).await;
    assert_eq!(target.count().await, 20, "the rest is lost");

    let mut book = Book::open(&world, "A broker lost data");
    book.says("Resend 320 messages to nats").await;
    book.says("is done: 320 messages").await;
    let consuming = Deployed::start(over_nats());
    eventually(async || (world.effects().await.len() == 320).then_some(())).await;
    book.says("Nothing is wrong").await;
    book.close();
    consuming.stop().await;
    running.stop().await;
    assert_eq!(world.effects().await, Vec::from_iter(0..320));
    assert_eq!(world.rows("dead_letters").await, 0);
}

async fn a_bad_deployment_gives_up_many_messages<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    deployed.rejects.store(true, SeqCst);
    // More than are given up before the consumer hears that it is paused.
    let (orders, given_up) = long::or((4000, 1000), (1500, 100));
    publish(&world, 0..orders).await;
    let bad = consumer(&world, &deployed);
    let status = bad.status();
    let bad = Deployed::start(bad);
    eventually(async || (world.rows("dead_letters").await > given_up).then_some(())).await;
    let mut book = Book::open(&world, "A bad deployment gives up many messages");
    book.says("Consumer billing.invoice is paused").await;
    let paused = |one: &ConsumerStatus| one.state == ConsumerState::Paused && one.in_flight == 0;
    eventually(async || status.consumers().iter().all(paused).then_some(())).await;
    book.says("has no customer").await;
    book.others("deploy the fixed version");
    bad.stop().await;
    deployed.rejects.store(false, SeqCst);
    let mended = Deployed::start(consumer(&world, &deployed));
    book.says("Consumer billing.invoice is resumed").await;
    book.says("being retried").await;
    let effects = "SELECT count(*) FROM effects";
    eventually(async || (world.number(effects).await == orders).then_some(())).await;
    book.says("There are no dead letters").await;
    book.close();
    mended.stop().await;
}

async fn a_handler_wrote_wrong_rows_for_an_hour<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    deployed.wrong.store(true, SeqCst);
    publish(&world, 0..50).await;
    let bad = Deployed::start(consumer(&world, &deployed));
    eventually(async || (world.effects().await.len() == 50).then_some(())).await;
    let mut book = Book::open(&world, "A handler wrote wrong rows for an hour");
    book.says("Consumer billing.invoice is paused").await;
    book.others("deploy the fixed version, and remove");
    bad.stop().await;
    deployed.wrong.store(false, SeqCst);
    world.execute("DELETE FROM effects WHERE n >= 1000000").await;
    // Some more come before anybody goes on, and are right at once.
    publish(&world, 50..60).await;
    let mended = Deployed::start(consumer(&world, &deployed));
    book.says("Reprocess 50 messages with billing.invoice").await;
    book.says("Replay 1 is made").await;
    book.says("Consumer billing.invoice is resumed").await;
    book.says("is done: 50 messages").await;
    book.close();
    eventually(async || (world.effects().await.len() == 60).then_some(())).await;
    mended.stop().await;
    assert_eq!(world.rows("superseded_claims").await, 50);
    assert_eq!(world.effects().await, Vec::from_iter(0..60));
}

/// A stream that takes no large message.
async fn narrow() -> Target {
    let target = Target::shared();
    let config =
        async_nats::jetstream::stream::Config { max_message_size: 1024, ..target.config(&["orders.placed"]) };
    target.create(config).await;
    target
}

async fn arrived(target: &Target, count: usize) -> HashSet<u64> {
    target.messages(count).await.into_iter().map(|(.., sequence)| sequence).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_is_stuck() {
    let (world, target) = (World::<Postgres>::new().await, narrow().await);
    publish_sized(&world, 7..8, 4000).await;
    publish(&world, 107..108).await;
    publish(&world, 1..3).await;
    let running = relay(&world, &target, RelayOptions::new().on_exhausted(OnExhausted::ParkKey));
    running.published(2).await;
    eventually(async || (world.rows("parked_messages").await == 2).then_some(())).await;
    let mut book = Book::open(&world, "One key is stuck");
    book.says("customer-7").await;
    book.says("blocked by 1 dead letter").await;
    running.published(3).await;
    assert_eq!(arrived(&target, 3).await, HashSet::from([2, 3, 4]));
    eventually(async || (world.rows("parked_messages").await == 1).then_some(())).await;
    book.says("Nothing is wrong").await;
    book.close();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_blocks_a_whole_destination() {
    let (world, target) = (World::<Postgres>::new().await, narrow().await);
    publish_sized(&world, 13..14, 4000).await;
    let running = relay(&world, &target, RelayOptions::new().on_exhausted(OnExhausted::Block));
    eventually(async || (world.rows("parked_messages").await == 1).then_some(())).await;
    publish(&world, 1..3).await;
    let mut book = Book::open(&world, "One message blocks a whole destination");
    let ran = book.ran().await;
    assert!(ran.code == 7 && ran.out.contains("a dead letter blocks nats"), "{ran:?}");
    book.says("The message is skipped").await;
    running.published(2).await;
    book.says("Nothing is wrong").await;
    book.close();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_relay_is_running() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    publish(&world, 0..10).await;
    let first = Running::start(&world, &target);
    first.published(10).await;
    first.stop().await;
    publish(&world, 10..20).await;
    let mut book = Book::open(&world, "No relay is running");
    eventually(async || {
        let readers = Ops::new(&world).readers().await.unwrap();
        (readers[0].unowned > Duration::from_secs(1)).then_some(())
    })
    .await;
    let ran = book.ran().await;
    assert!(ran.code == 7 && ran.out.contains("no process has run nats for"), "{ran:?}");
    book.others("start the relay");
    let second = Running::start(&world, &target);
    second.published(10).await;
    book.says("Nothing is wrong").await;
    book.close();
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_has_to_be_paused() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    publish(&world, 0..10).await;
    let running = Running::start(&world, &target);
    running.published(10).await;
    let mut book = Book::open(&world, "A destination has to be paused");
    book.says("Destination nats is paused").await;
    running.stop().await;
    publish(&world, 10..20).await;
    let restarted = Running::start(&world, &target);
    book.says("maintenance of the broker").await;
    assert_eq!((restarted.counters.published(), target.count().await), (0, 10), "it holds over restarts");
    book.others("the maintenance is over");
    book.says("Destination nats is resumed").await;
    restarted.published(10).await;
    book.close();
    restarted.stop().await;
}

async fn an_effect_is_unknown<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_next([VendorAnswer::ActThenCut]);
    let profile = profiles::RESEND.recovery(Recovery::Operator);
    let dispatching = Dispatching::to(&world, &vendor, profile);
    let source = plan(&world, mail("hello").key("ada")).await;
    reaches(&world, source, EffectState::Unknown).await;
    let next = plan(&world, mail("next").key("ada")).await;
    let mut book = Book::open(&world, "An effect is unknown");
    book.says("PROVIDER.indeterminate").await;
    book.says(&vendor.calls()[0].key.clone().unwrap()).await;
    book.others("look for the key");
    book.says("Effect 1 is confirmed").await;
    reaches(&world, next, EffectState::Confirmed).await;
    book.says("Nothing is wrong").await;
    book.close();
    dispatching.stop().await;
    assert_eq!(vendor.acts().len(), 2);
}

async fn a_vendor_is_down<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let first = plan(&world, mail("first")).await;
    let mut book = Book::open(&world, "A vendor is down");
    book.says("Vendor mail is paused").await;
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    book.says("their maintenance").await;
    book.others("the vendor is back");
    assert_eq!((vendor.calls().len(), found(&world, first).await.attempts), (0, 0));
    book.says("Vendor mail is resumed").await;
    reaches(&world, first, EffectState::Confirmed).await;
    book.says("There are no such effects").await;
    book.says("Nothing is wrong").await;
    book.close();
    dispatching.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_was_added_late() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    publish(&world, 0..50).await;
    target.create(target.config(&["orders.placed"])).await;
    let running = relay(&world, &target, RelayOptions::new().start(StartPosition::Now));
    eventually(async || (!Ops::new(&world).readers().await.unwrap().is_empty()).then_some(())).await;
    publish(&world, 50..60).await;
    running.published(10).await;
    let mut book = Book::open(&world, "A destination was added late");
    book.says("is done: 50 messages").await;
    book.close();
    running.stop().await;
    assert_eq!(arrived(&target, 60).await, HashSet::from_iter(1..=60));
}

async fn a_message_is_missing<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    publish(&world, 13..14).await;
    run_until(consumer(&world, &deployed), async || world.effects().await.len() == 1).await;
    let mut book = Book::open(&world, "A message is missing");
    book.says("billing.invoice: processed at").await;
    book.says("order-13").await;
    book.close();
}

async fn no_handler_can_ever_take_some_messages<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    publish(&world, -3..1).await;
    run_until(consumer(&world, &deployed), async || world.rows("inbox").await == 4).await;
    assert_eq!(world.rows("dead_letters").await, 3);
    let mut book = Book::open(&world, "No handler can ever take some messages");
    book.says("3 dead letters written").await;
    book.others("mend the payloads in dead-letters.jsonl");
    let file = book.folder.path().join("dead-letters.jsonl");
    let mended = std::fs::read_to_string(&file).unwrap().replace("\"n\":-", "\"n\":10");
    std::fs::write(&file, mended).unwrap();
    book.says("3 messages imported").await;
    book.says("3 dead letters discarded").await;
    book.close();
    run_until(consumer(&world, &deployed), async || world.effects().await.len() == 4).await;
    assert_eq!(world.effects().await, [0, 101, 102, 103]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_does_not_shrink() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let bus = Nats::with_options(target.options().id("bus")).unwrap();
    let gone = Running::run(Relay::new((*world).clone(), bus));
    publish(&world, 0..10).await;
    gone.published(10).await;
    gone.stop().await;
    let running = relay(&world, &target, RelayOptions::new().start(StartPosition::Beginning));
    publish(&world, 10..30).await;
    running.published(30).await;
    running.stop().await;
    let purged = async || Log::new(&world).purge(Duration::ZERO).await.unwrap().messages;
    assert_eq!(purged().await, 10);
    let mut book = Book::open(&world, "The log does not shrink");
    book.says("bus").await;
    book.says("bus is forgotten").await;
    book.close();
    assert_eq!(purged().await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_is_gone_for_good() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    publish(&world, 0..10).await;
    let running = Running::start(&world, &target);
    running.published(10).await;
    running.stop().await;
    let mut book = Book::open(&world, "A destination is gone for good");
    book.says("nats is forgotten").await;
    book.close();
    assert!(Ops::new(&world).readers().await.unwrap().is_empty());
}

/// An incident that no test goes through would be a promise.
#[test]
fn every_incident_of_the_readme_has_a_test() {
    let titles = README.split("\n### ").skip(1).map(|section| section.lines().next().unwrap());
    let tests = [
        include_str!("runbook.rs"),
        include_str!("failover.rs"),
        include_str!("lag.rs"),
        include_str!("upgrade.rs"),
        include_str!("../log/rebase.rs"),
    ]
    .concat();
    let untested: Vec<_> = titles.filter(|title| !tests.contains(&format!(", \"{title}\")"))).collect();
    assert!(untested.is_empty(), "{untested:?}");
}

crate::support::cases::cases! {
    all: [
        a_bad_deployment_gives_up_many_messages,
        a_handler_wrote_wrong_rows_for_an_hour,
        a_message_is_missing,
        a_vendor_is_down,
        an_effect_is_unknown,
        no_handler_can_ever_take_some_messages,
    ]
}
