//! The tool dies, or who executes what it asked for: everything is done once.
use crate::support::{
    processes::{Program, Programs},
    relay::{Running, Target},
    stores::World,
    tool::Tool,
    wait::{eventually, in_time},
};
use integration_tests::{INVOICING, OrderPlaced};
use sqlx::Postgres;
use std::{os::unix::process::ExitStatusExt as _, time::Duration};
use twinbox::{
    Draft, Message,
    inbox::DeadReason,
    ops::{
        AuditIntent, Ops,
        dead_letters::{DeadLetterAction, DeadLetterFilter},
    },
};

const LETTERS: i64 = 450;

/// A world in which the consumer of the programs has given orders up.
async fn given_up(orders: i64) -> World<Postgres> {
    let world = World::<Postgres>::new().await;
    world.execute("CREATE TABLE invoices (order_id bigint NOT NULL, attempt bigint NOT NULL)").await;
    for order_id in 1..=orders {
        let message: Message =
            Draft::of(&OrderPlaced { order_id, customer: 1 }).unwrap().into_message("test");
        assert!(
            world
                .inbox(INVOICING)
                .dead_letter(&message, DeadReason::Rejected, "no customer", 1)
                .await
                .unwrap()
        );
    }
    world
}

async fn dies(tool: &Tool, at: &str, arguments: &[&str]) {
    let ended = in_time(tool.command(arguments).env("TWINBOX_CRASH_AT", at).output()).await.unwrap();
    assert_eq!(ended.status.signal(), Some(9), "at {at}: {ended:?}");
}

/// Fault 50: of the tool itself.
#[tokio::test(flavor = "multi_thread")]
async fn row_50_a_tool_that_dies_has_made_a_replay_or_not() {
    let world = World::<Postgres>::new().await;
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish(&mut tx, &OrderPlaced { order_id: 1, customer: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    let options = twinbox::log::ReaderOptions::new();
    let mut reader =
        twinbox::log::Reader::open(&world, "nats", uuid::Uuid::now_v7(), options).await.unwrap().unwrap();
    let entry = in_time(reader.next(1)).await.unwrap().remove(0);
    reader.settle(entry.ticket);
    reader.close().await.unwrap();
    let tool = Tool::of(&world);
    let run = ["replays", "run", "resend", "--to", "nats", "--all", "--yes", "--no-wait"];
    for (at, replays, cursors) in [("replay.before_make", 0, 1), ("replay.after_make", 1, 2)] {
        dies(&tool, at, &run).await;
        assert_eq!((world.rows("replays").await, world.rows("cursors").await), (replays, cursors), "{at}");
    }
    let audit = tool.json(&["audit", "list"]).await;
    let unended = audit.as_array().unwrap().iter().filter(|entry| entry["count"].is_null()).count();
    assert_eq!(unended, 2, "it is on record that nobody knows: {audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_dies_has_redriven_some_and_goes_on() {
    let world = given_up(LETTERS).await;
    let tool = Tool::of(&world);
    let redrive = ["dead-letters", "redrive", "--all", "--yes"];
    dies(&tool, "letters.after_change", &redrive).await;
    let redriven = "SELECT count(*) FROM twinbox.dead_letters WHERE redrive_attempts_left > 0";
    assert_eq!(world.number(redriven).await, 200);
    let told = tool.ok(&redrive).await;
    assert!(told.contains("250 dead letters being retried"), "{told}");
    assert_eq!(world.number(redriven).await, LETTERS);
}

/// A message that ends its consumer's process is tried as often as a redrive allows, and stays a dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_dies_while_it_redrives_does_it_once() {
    let world = given_up(3).await;
    let target = Target::shared();
    let mut programs = Programs::at(world.url().to_owned());
    // Its stream is there, with nothing in it.
    target.create(target.config(&["orders.placed"])).await;
    programs.stream = target.name.clone();
    let tool = Tool::of(&world);
    tool.ok(&["dead-letters", "redrive", "--all", "--yes"]).await;
    for at in ["consumer.before_redrive", "consumer.before_redrive_commit"] {
        let mut consumer = programs.start(Program::Consumer, Some(at));
        assert_eq!(in_time(consumer.wait()).await.unwrap().signal(), Some(9), "at {at}");
        // Another of them may have been committed while the process was dying.
        let dead_letters = world.rows("dead_letters").await;
        let invoices = world.number("SELECT count(*) FROM invoices").await;
        assert!(
            dead_letters > 0 && dead_letters + invoices == 3,
            "{at}: {dead_letters} dead letters, {invoices} invoices"
        );
        // Its lease is longer than a test: somebody's word that it is over.
        world.execute("UPDATE twinbox.dead_letters SET redrive_at = now()").await;
    }
    let mut consumer = programs.start(Program::Consumer, None);
    eventually(async || (world.rows("dead_letters").await == 0).then_some(())).await;
    consumer.kill().await.unwrap();
    assert_eq!(world.number("SELECT count(DISTINCT order_id) FROM invoices").await, 3);
    assert_eq!(world.number("SELECT count(*) FROM invoices").await, 3);
    assert_eq!(world.number("SELECT count(*) FROM twinbox.inbox WHERE state = 'processed'").await, 3);
}

/// A process dies before and after a commit of a bulk action, and each dead letter is changed once.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_in_a_bulk_action_leaves_nothing_to_repeat() {
    let (world, target) = (given_up(LETTERS).await, Target::shared());
    let mut programs = Programs::at(world.url().to_owned());
    target.create(target.config(&["orders.placed"])).await;
    programs.stream = target.name.clone();
    let ops = Ops::new(&*world);
    let filter = DeadLetterFilter { consumer: Some(INVOICING.to_owned()), ..DeadLetterFilter::default() };
    let plan = ops.plan_bulk_action(DeadLetterAction::Discard, &filter).await.unwrap();
    let intent = AuditIntent { operator: "ada", command: "discard", target: "all", reason: None };
    let made = ops.make_bulk_action(&plan, Duration::ZERO, &intent).await.unwrap();
    for (at, changed) in [("bulk.before_commit", 0), ("bulk.after_commit", 200)] {
        let mut consumer = programs.start(Program::Consumer, Some(at));
        assert_eq!(in_time(consumer.wait()).await.unwrap().signal(), Some(9), "at {at}");
        let action = ops.bulk_action(made.id).await.unwrap();
        assert_eq!((action.changed, action.looked_at), (changed, changed), "at {at}");
        assert_eq!(world.rows("dead_letters").await, LETTERS - i64::try_from(changed).unwrap());
        // Its lease is longer than a test: somebody's word that it is over.
        world.execute("UPDATE twinbox.bulk_actions SET lease_until = now()").await;
    }
    let mut last = programs.start(Program::Consumer, None);
    let ended = async || Some(ops.bulk_action(made.id).await.unwrap()).filter(|one| one.state.has_ended());
    assert_eq!(eventually(ended).await.changed, u64::try_from(LETTERS).unwrap());
    last.kill().await.unwrap();
    assert_eq!(world.rows("dead_letters").await, 0);
    assert_eq!(ops.audit(1).await.unwrap()[0].count, Some(u64::try_from(LETTERS).unwrap()));
}

/// Fault 50: whoever executes a reprocess dies at each of its steps, and each order is invoiced once more.
#[tokio::test(flavor = "multi_thread")]
async fn row_50_a_reprocess_whose_consumer_dies_anywhere_runs_each_message_once_more() {
    let (world, target) = (given_up(0).await, Target::shared());
    let mut tx = world.begin().await.unwrap();
    for order_id in 1..=20 {
        world.outbox().publish(&mut tx, &OrderPlaced { order_id, customer: order_id }).await.unwrap();
    }
    tx.commit().await.unwrap();
    let relay = Running::start(&world, &target);
    let mut programs = Programs::at(world.url().to_owned());
    programs.stream = target.name.clone();
    let invoices = "SELECT count(*) FROM invoices";
    let mut first = programs.start(Program::Consumer, None);
    eventually(async || (world.number(invoices).await == 20).then_some(())).await;
    first.kill().await.unwrap();
    world.execute("TRUNCATE invoices").await;

    let tool = Tool::of(&world);
    eventually(async || {
        let plan = tool.json(&["replays", "plan", "reprocess", "--consumer", INVOICING]).await;
        (plan["selected"] == 20).then_some(())
    })
    .await;
    tool.ok(&["replays", "run", "reprocess", "--consumer", INVOICING, "--all", "--yes"]).await;
    for at in
        ["consumer.after_supersede", "consumer.before_commit", "consumer.after_commit", "consumer.before_ack"]
    {
        let mut consumer = programs.start(Program::Consumer, Some(at));
        assert_eq!(in_time(consumer.wait()).await.unwrap().signal(), Some(9), "at {at}");
    }
    let mut last = programs.start(Program::Consumer, None);
    eventually(async || (world.number(invoices).await == 20).then_some(())).await;
    eventually(async || (target.unsettled(INVOICING).await == 0).then_some(())).await;
    last.kill().await.unwrap();
    relay.stop().await;
    assert_eq!(world.number("SELECT count(DISTINCT order_id) FROM invoices").await, 20);
    assert_eq!((world.number(invoices).await, world.rows("superseded_claims").await), (20, 20));
}
