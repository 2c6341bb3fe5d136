//! `twinbox dead-letters`.
use super::shop::Deployed;
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    stores::{Placed, TestDb, World, effect},
    tool::Tool,
    wait::eventually,
};
use sqlx::AssertSqlSafe;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use twinbox::{
    Consumer, Delivery, Dialect, HandlerError, HandlerResult, Timestamp, Tx, event_handler,
    inbox::{ClaimTerms, InboxClaim},
    ops::{Ops, dead_letters::DeadLetterFilter},
};

const HOUR: Duration = Duration::from_secs(3600);

/// A deployment that is broken or not.
#[derive(Default)]
struct Deployment {
    mended: AtomicBool,
}

/// Broken, it rejects what is even in one way and what is odd in another.
#[event_handler(consumer = "billing.invoice")]
async fn invoice<DB: Dialect>(
    deployed: &Arc<Deployment>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    match (deployed.mended.load(SeqCst), order.n % 2) {
        (true, _) => Ok(effect::<DB>(tx, order.n).await?),
        (false, 0) => Err(HandlerError::reject(format!("order {} has no customer", order.n))),
        (false, _) => Err(HandlerError::reject("the printer is on fire")),
    }
}

fn consumer<DB: TestDb>(world: &World<DB>, deployed: &Arc<Deployment>) -> Consumer<DB, Arc<Deployment>> {
    Consumer::new((**world).clone(), deployed.clone()).handler::<invoice>()
}

/// A bad deployment has dead-lettered everything: the groups say what is wrong, and what was mended runs.
async fn what_a_bad_deployment_gave_up_is_redriven<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    publish(&world, 0..30).await;
    run_until(consumer(&world, &deployed), async || world.rows("dead_letters").await == 30).await;
    let tool = Tool::of(&world);
    let groups = tool.json(&["dead-letters", "list"]).await;
    let groups = groups.as_array().unwrap();
    assert_eq!(groups.len(), 2, "{groups:?}");
    assert!(
        groups.iter().all(|group| group["dead_letters"] == 15 && group["owner"] == "billing.invoice"),
        "{groups:?}"
    );
    let customer = groups.iter().find(|group| group["error"].as_str().unwrap().contains("customer")).unwrap();
    let fingerprint = customer["fingerprint"].as_str().unwrap();
    let each = tool.json(&["dead-letters", "list", "--each", "--group", fingerprint]).await;
    assert_eq!(each.as_array().unwrap().len(), 15);
    let one = tool.json(&["dead-letters", "show", each[0]["id"].as_str().unwrap()]).await;
    assert_eq!(one["reason"], "rejected");
    assert_eq!(one["payload"]["n"].as_i64().map(|n| n % 2), Some(0));
    tool.ends(2, &["dead-letters", "redrive", "--yes"]).await;
    tool.ends(3, &["dead-letters", "redrive", "--yes", "--group", "ffffffffffff"]).await;

    // While it is broken, they come back.
    let redrive = ["dead-letters", "redrive", "--yes", "--group", fingerprint];
    assert!(tool.ok(&redrive).await.contains("15 dead letters being retried"));
    let running = Deployed::start(consumer(&world, &deployed));
    let twice = format!(
        "SELECT count(*) FROM {} WHERE attempts = 2 AND redrive_attempts_left = 0",
        DB::table_of("dead_letters")
    );
    eventually(async || (world.number(&*twice).await == 15).then_some(())).await;
    assert_eq!((world.effects().await.len(), world.rows("dead_letters").await), (0, 30));

    deployed.mended.store(true, SeqCst);
    tool.ok(&["dead-letters", "redrive", "--yes", "--consumer", "billing.invoice", "--rate", "200"]).await;
    eventually(async || (world.rows("dead_letters").await == 0).then_some(())).await;
    assert_eq!(world.effects().await, Vec::from_iter(0..30));
    let processed = format!("SELECT count(*) FROM {} WHERE state = 'processed'", DB::table_of("inbox"));
    assert_eq!(world.number(processed).await, 30);
    running.stop().await;
    assert_eq!(tool.json(&["audit", "list"]).await[0]["count"], 30);
}

/// By the index and by reading each dead letter: how many, since when, how many lately, and how many are
/// redriven.
async fn groups_say_what_they_hold<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    publish(&world, 0..30).await;
    run_until(consumer(&world, &deployed), async || world.rows("dead_letters").await == 30).await;
    let ops = Ops::new(&*world);
    let mut all = Vec::new();
    ops.each_dead_letter(&DeadLetterFilter::default(), |dead_letter| all.push(dead_letter)).await.unwrap();
    let fires = all.iter().filter(|one| one.error.contains("fire")).map(|one| one.id.clone());
    assert_eq!(ops.redrive(&fires.take(4).collect::<Vec<_>>(), HOUR).await.unwrap(), 4);
    let oldest = all.iter().find(|one| one.error.contains("customer")).unwrap();
    let (table, an_hour_before) = (DB::table_of("dead_letters"), DB::earlier("given_up_at", 3600));
    let age = format!("UPDATE {table} SET given_up_at = {an_hour_before} WHERE error = '{}'", oldest.error);
    sqlx::raw_sql(AssertSqlSafe(age)).execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
    let earlier = Timestamp::from_micros(oldest.given_up_at.as_micros() - 3_600_000_000);
    let scanned = DeadLetterFilter { since: Some(Timestamp::from_micros(1)), ..DeadLetterFilter::default() };
    for filter in [DeadLetterFilter::default(), scanned] {
        let groups = ops.dead_letter_groups(&filter).await.unwrap();
        let said = groups.iter().map(|group| {
            let first = group.first_given_up_at == earlier;
            (group.dead_letters, group.lately, group.redriven, first, group.has_more)
        });
        assert_eq!(said.collect::<Vec<_>>(), [(15, 15, 4, false, false), (15, 14, 0, true, false)]);
        let last = |text: &str| {
            all.iter().filter(|one| one.error.contains(text)).map(|one| one.given_up_at).max().unwrap()
        };
        assert_eq!([groups[0].last_given_up_at, groups[1].last_given_up_at], ["fire", "customer"].map(last));
    }
}

/// What is discarded does not run, also when a duplicate comes late.
async fn what_is_discarded_never_runs<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    publish(&world, 0..4).await;
    run_until(consumer(&world, &deployed), async || world.rows("dead_letters").await == 4).await;
    let tool = Tool::of(&world);
    tool.ends(2, &["dead-letters", "discard", "--yes", "--all"]).await;
    let told = tool.ok(&["dead-letters", "discard", "--yes", "--all", "--reason", "test orders"]).await;
    assert!(told.contains("4 dead letters discarded"), "{told}");
    deployed.mended.store(true, SeqCst);
    let running = Deployed::start(consumer(&world, &deployed));
    tool.ok(&["replays", "run", "resend", "--to", "consumer:billing.invoice", "--all", "--yes"]).await;
    running.stop().await;
    assert_eq!((world.effects().await.len(), world.rows("dead_letters").await), (0, 0));
    assert_eq!(tool.json(&["audit", "list"]).await[1]["reason"], "test orders");
}

/// It was taken to be tried again, waits for its turn, and is discarded meanwhile.
async fn what_is_discarded_before_its_turn_does_not_run<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    publish(&world, 0..1).await;
    run_until(consumer(&world, &deployed), async || world.rows("dead_letters").await == 1).await;
    let tool = Tool::of(&world);
    tool.ok(&["dead-letters", "redrive", "--all", "--yes"]).await;
    let taken = world.inbox("billing.invoice").take_redrives(false, 8, HOUR).await.unwrap();
    assert_eq!((taken.len(), taken[0].attempts_left), (1, 2));
    world.inbox("billing.invoice").give_back_redrive(&taken[0], Duration::ZERO).await.unwrap();
    let taken = world.inbox("billing.invoice").take_redrives(false, 8, HOUR).await.unwrap();
    assert_eq!(taken[0].attempts_left, 2, "what was no try does not count");
    tool.ok(&["dead-letters", "discard", "--all", "--yes", "--reason", "never mind"]).await;
    let claimed =
        world.inbox("billing.invoice").claim_redrive(ClaimTerms::default(), &taken[0]).await.unwrap();
    assert!(matches!(claimed, InboxClaim::Duplicate(earlier) if earlier.state == "rejected"));
    assert_eq!((world.rows("inbox").await, world.effects().await.len()), (1, 0));
}

/// A line that cannot be imported is named, and nothing is imported.
async fn a_file_with_a_bad_line_is_refused<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    publish(&world, 7..8).await;
    run_until(consumer(&world, &deployed), async || world.rows("dead_letters").await == 1).await;
    let (tool, folder) = (Tool::of(&world), tempfile::tempdir().unwrap());
    let file = folder.path().join("dead-letters.jsonl");
    let file = file.to_str().unwrap();
    tool.ok(&["dead-letters", "export", "--all", "--file", file]).await;
    tool.ends(1, &["dead-letters", "export", "--all", "--file", file]).await;
    let text = std::fs::read_to_string(file).unwrap();
    for (bad, says) in
        [("{", "line 1"), ("{\"x\":1}", "unknown field"), (&*text.replace("orders.placed", "a..b"), "type")]
    {
        std::fs::write(file, bad).unwrap();
        let told = tool.ends(2, &["dead-letters", "import", file, "--yes"]).await;
        assert!(told.contains(says), "{told}");
    }
    assert_eq!(world.rows("dead_letters").await, 1);
}

cases! {
    all: [
        groups_say_what_they_hold,
        what_a_bad_deployment_gave_up_is_redriven,
        what_is_discarded_never_runs,
        what_is_discarded_before_its_turn_does_not_run,
        a_file_with_a_bad_line_is_refused,
    ]
}
