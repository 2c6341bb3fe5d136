//! What a command changes is what the operator has named: no more, and nothing silently less.
use super::shop::{publish_sized, settled};
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    relay::{Running, Target},
    stores::{Placed, TestDb, World, effect, placed},
    tool::Tool,
    wait::in_time,
};
use async_nats::jetstream::stream::Config;
use serde_json::json;
use sqlx::Postgres;
use std::process::Stdio;
use twinbox::{
    Consumer, Delivery, Dialect, HandlerResult, Tx, event_handler, inbox::DeadReason, nats::Nats,
    relay::Relay,
};

const CONSUMER: &str = "billing.invoice";

#[event_handler(consumer = "billing.invoice")]
async fn invoice<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

/// A world in which the consumer has handled three messages.
async fn handled<DB: TestDb>() -> World<DB> {
    let world = World::<DB>::new().await;
    publish(&world, 0..3).await;
    let consumer = Consumer::new((*world).clone(), ()).handler::<invoice>();
    run_until(consumer, async || world.rows("inbox").await == 3).await;
    world
}

/// A world with dead letters, each in a group of its own.
async fn given_up<DB: TestDb>(count: u8) -> World<DB> {
    let world = World::<DB>::new().await;
    for n in 0..count {
        let error = format!("no {}", char::from(b'a' + n));
        let (message, reason) = (placed(n.into()), DeadReason::Rejected);
        assert!(world.inbox(CONSUMER).dead_letter(&message, reason, &error, 1).await.unwrap());
    }
    world
}

async fn a_replay_of_the_whole_log_needs_all<DB: TestDb>() {
    let world = handled::<DB>().await;
    let tool = Tool::of(&world);
    let reader = format!("consumer:{CONSUMER}");
    for kind in [["reprocess", "--consumer", CONSUMER], ["resend", "--to", &reader]] {
        let run = [&["replays", "run"], &kind[..], &["--yes", "--no-wait"]].concat();
        let refused = tool.ends(2, &run).await;
        assert!(refused.contains("--all"), "{refused}");
        assert_eq!(world.rows("replays").await, 0);
        // To count everything does no harm.
        let plan = tool.json(&[&["replays", "plan"], &kind[..]].concat()).await;
        assert_eq!(plan["selected"], 3);
    }
    tool.ok(&["replays", "run", "reprocess", "--consumer", CONSUMER, "--all", "--yes", "--no-wait"]).await;
    assert_eq!(world.rows("replays").await, 1);
}

/// A reprocess for it would succeed, and would run nothing.
async fn a_replay_for_an_unknown_consumer_is_refused<DB: TestDb>() {
    let world = handled::<DB>().await;
    let tool = Tool::of(&world);
    let of = |name: &'static str| ["--consumer", name, "--to", "consumer:billing.invoice", "--all"];
    let run = ["replays", "run", "reprocess", "--yes", "--no-wait"];
    for verb in [&run[..], &["replays", "plan", "reprocess"]] {
        let refused = tool.ends(3, &[verb, &of("billing.invoce")].concat()).await;
        assert!(refused.contains("\"billing.invoce\" is unknown: known are billing.invoice"), "{refused}");
    }
    assert_eq!(world.rows("replays").await, 0);
    // A consumer on another database is known there.
    let other = World::<DB>::new().await;
    other.inbox("mails.confirm").heartbeat(None).await.unwrap();
    tool.ends(3, &[&run[..], &of("mails.confirm")].concat()).await;
    let elsewhere = Tool::of(&other);
    let asked = ["--consumer-database", elsewhere.url()];
    tool.ok(&[&run[..], &of("mails.confirm"), &asked].concat()).await;
    tool.ok(&[&run[..], &of("search.index"), &["--unknown-consumer"]].concat()).await;
    assert_eq!(world.rows("replays").await, 2);
}

/// With 17 groups, two begin with the same hexadecimal digit.
async fn an_ambiguous_group_is_refused<DB: TestDb>() {
    let world = given_up::<DB>(17).await;
    let tool = Tool::of(&world);
    let groups = tool.json(&["dead-letters", "list"]).await;
    let groups =
        Vec::from_iter(groups.as_array().unwrap().iter().map(|one| one["fingerprint"].as_str().unwrap()));
    assert_eq!(groups.len(), 17);
    let begins = |begin: &str| groups.iter().filter(|group| group.starts_with(begin)).count();
    let shared = groups.iter().map(|group| &group[..1]).find(|begin| begins(begin) > 1).unwrap();
    let discard = ["dead-letters", "discard", "--yes", "--reason", "a test", "--group"];
    let refused = tool.ends(2, &[&discard[..], &[shared]].concat()).await;
    assert!(refused.contains(&format!("{} groups begin with", begins(shared))), "{refused}");
    tool.ends(2, &["dead-letters", "list", "--group", shared]).await;
    assert_eq!(world.rows("dead_letters").await, 17);
    assert_eq!(begins(&groups[0][..11]), 1);
    tool.ok(&[&discard[..], &[&groups[0][..11]]].concat()).await;
    assert_eq!(world.rows("dead_letters").await, 16);
    tool.ends(3, &[&discard[..], &[groups[0]]].concat()).await;
}

async fn a_missing_number_is_an_error<DB: TestDb>() {
    let world = given_up::<DB>(2).await;
    let tool = Tool::of(&world);
    let discard = ["dead-letters", "discard", "--yes", "--reason", "a test"];
    let refused = tool.ends(3, &[&discard[..], &["1", "99", "nats@7"]].concat()).await;
    assert!(refused.contains("do not exist: 99, nats@7"), "{refused}");
    assert_eq!(world.rows("dead_letters").await, 2, "nothing is changed");
    tool.ends(3, &["dead-letters", "redrive", "--yes", "1", "99"]).await;
    tool.ok(&[&discard[..], &["1", "2"]].concat()).await;
    assert_eq!(world.rows("dead_letters").await, 0);
}

/// `30M` reads as thirty minutes, and would be thirty months.
async fn months_are_not_taken_for_minutes<DB: TestDb>() {
    let world = handled::<DB>().await;
    let tool = Tool::of(&world);
    let plan = ["replays", "plan", "resend", "--to", "consumer:billing.invoice", "--since"];
    let refused = tool.ends(2, &[&plan[..], &["30M"]].concat()).await;
    assert!(refused.contains("`M` is ambiguous") && refused.contains("`m` minutes"), "{refused}");
    tool.ends(2, &["dead-letters", "redrive", "--yes", "--since", "30M"]).await;
    tool.ends(2, &["status", "--max-age", "30M"]).await;
    assert_eq!(tool.json(&[&plan[..], &["30m"]].concat()).await["selected"], 3);
}

/// As with `export | head`.
async fn a_reader_that_stops_early_is_no_error<DB: TestDb>() {
    let world = given_up::<DB>(20).await;
    for arguments in [&["dead-letters", "export", "--all"][..], &["completions", "bash"], &["man"]] {
        let mut command = Tool::of(&world).command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ran = in_time(child.wait_with_output()).await.unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), &*err), (Some(0), ""), "{arguments:?}");
    }
    // Neither is a reader of stderr.
    let mut command = Tool::of(&world).command(&["dead-letters", "redrive", "--all", "--yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(in_time(child.wait_with_output()).await.unwrap().status.code(), Some(0));
}

/// The stream takes no large message any more.
async fn a_replay_with_refusals_names_them() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    target.create(target.config(&["orders.placed"])).await;
    publish_sized(&world, 7..8, 4000).await;
    publish_sized(&world, 8..9, 0).await;
    let nats = Nats::with_options(target.existing()).unwrap();
    let running = Running::run(Relay::new((*world).clone(), nats));
    running.published(2).await;
    settled(&world, 2).await;
    target.update(Config { max_message_size: 1024, ..target.config(&["orders.placed"]) }).await;
    let tool = Tool::of(&world);
    let run = ["replays", "run", "resend", "--to", "nats", "--all", "--yes"];
    let ran = tool.run(&[&run[..], &["-o", "json"]].concat()).await;
    assert!(ran.code == 5 && ran.err.contains("refused 1 message for good"), "{ran:?}");
    let replay: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!((&replay["state"], &replay["refused"]), (&json!("done"), &json!(1)));
    assert_eq!(replay["refusals"][0]["id"], "order-7");
    let ran = tool.run(&["replays", "show", "1", "--follow"]).await;
    assert!(ran.code == 5 && ran.out.contains("order-7"), "{ran:?}");
    running.stop().await;
}

cases! {
    all: [
        a_replay_of_the_whole_log_needs_all,
        a_replay_for_an_unknown_consumer_is_refused,
        an_ambiguous_group_is_refused,
        a_missing_number_is_an_error,
        months_are_not_taken_for_minutes,
        a_reader_that_stops_early_is_no_error,
    ]
    postgres: [a_replay_with_refusals_names_them]
}
