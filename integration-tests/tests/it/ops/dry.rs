//! A replay that is tried on the handlers before it is made.
use crate::support::{
    consumer::run_until,
    stores::{TestDb, World, effect},
    wait::in_time,
};
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};
use twinbox::{
    Consumer, Delivery, Draft, Event, HandlerResult, Tx,
    consumer::{
        DryRunCounts, DryRunDelivery, DryRunOutcome, Error as ConsumerError, ErrorKind as ConsumerErrorKind,
        PlannedReplay,
    },
    event_handler,
    log::{Reader, ReaderOptions},
    ops::{
        Ops,
        replays::{NewReplay, ReplayPlan, Selection},
    },
};
use uuid::Uuid;

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "tests.dry", version = 1)]
struct Placed {
    n: i64,
}

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "tests.dry_mailed", version = 1)]
struct Mailed {
    n: i64,
}

#[derive(Default)]
struct App {
    is_broken: AtomicBool,
    mails: AtomicU32,
    dry_mails: AtomicU32,
}

const FAILS: i64 = 1;
const PANICS: i64 = 2;
const BREAKS_A_RULE_AT_THE_END: i64 = 3;

/// Tries the handlers of `consumer` on the messages of a plan.
async fn dry_run<DB: TestDb>(
    consumer: &Consumer<DB, Arc<App>>,
    world: &World<DB>,
    plan: &ReplayPlan,
    replay: &NewReplay,
    report: impl FnMut(DryRunDelivery),
) -> Result<DryRunCounts, ConsumerError> {
    let planned = PlannedReplay {
        destination: plan.destination.clone(),
        consumer: replay.consumer().map(str::to_owned),
        messages: plan.selected,
    };
    consumer.dry_run(&planned, Ops::new(world).planned_messages(plan), report).await
}

#[event_handler(consumer = "tests.dry")]
async fn handle<DB: TestDb>(app: &Arc<App>, tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    let n = order.n;
    let mails = if tx.is_dry_run() { &app.dry_mails } else { &app.mails };
    mails.fetch_add(1, SeqCst);
    effect::<DB>(tx, n).await?;
    tx.publish(&Mailed { n }).await?;
    if !app.is_broken.load(SeqCst) {
        return Ok(());
    }
    match n {
        FAILS => Err("no customer".into()),
        PANICS => panic!("out of paper"),
        BREAKS_A_RULE_AT_THE_END => {
            sqlx::raw_sql("INSERT INTO parts VALUES (-1)").execute(&mut **tx).await?;
            Ok(())
        }
        _ => Ok(()),
    }
}

#[event_handler(consumer = "tests.dry_counts")]
async fn count<DB: TestDb>(_: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

/// What a dry run must leave as it is.
async fn everything<DB: TestDb>(world: &World<DB>) -> Vec<i64> {
    let mut rows = world.effects().await;
    for table in ["outbox", "inbox", "superseded_claims", "attempts", "dead_letters", "replays"] {
        rows.push(world.rows(table).await);
    }
    rows
}

async fn shop<DB: TestDb>() -> (World<DB>, Arc<App>) {
    let world = World::<DB>::new().await;
    world
        .execute(match DB::CAPABILITIES.deferred_constraints {
            true => "CREATE TABLE parts (n BIGINT REFERENCES effects (n) DEFERRABLE INITIALLY DEFERRED)",
            false => "CREATE TABLE parts (n BIGINT, FOREIGN KEY (n) REFERENCES effects (n))",
        })
        .await;
    (world, Arc::default())
}

fn consumer<DB: TestDb>(world: &World<DB>, app: &Arc<App>) -> Consumer<DB, Arc<App>> {
    Consumer::new((**world).clone(), app.clone()).handler::<handle>()
}

async fn publish<DB: TestDb>(world: &World<DB>, drafts: impl IntoIterator<Item = Draft>) {
    let mut tx = world.begin().await.unwrap();
    for draft in drafts {
        world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    }
    tx.commit().await.unwrap();
}

fn order(n: i64) -> Draft {
    Draft::of(&Placed { n }).unwrap().id(format!("order-{n}"))
}

async fn a_replay_is_tried_and_leaves_nothing_behind<DB: TestDb>() {
    let (world, app) = shop::<DB>().await;
    let redacted = order(9).key("somebody");
    let unreadable = Draft::raw("tests.dry", 1, "{}").id("unreadable");
    publish(&world, [order(0), order(FAILS), order(PANICS), order(BREAKS_A_RULE_AT_THE_END), redacted]).await;
    Ops::new(&world).redact("somebody").await.unwrap();
    run_until(consumer(&world, &app), async || world.rows("inbox").await == 4).await;
    publish(&world, [unreadable]).await;
    run_until(consumer(&world, &app), async || world.rows("dead_letters").await == 1).await;
    world.execute("DELETE FROM effects").await;
    let (before, mails) = (everything(&world).await, app.mails.load(SeqCst));

    let orders = Selection::new().types(vec!["tests.dry".parse().unwrap()]);
    let plan = Ops::new(&world).plan_replay("consumer:tests.dry", &orders).await.unwrap();
    app.is_broken.store(true, SeqCst);
    let mut seen = Vec::new();
    let resend = NewReplay::resend("ada");
    let counts =
        dry_run(&consumer(&world, &app), &world, &plan, &resend, |one| seen.push(one)).await.unwrap();
    assert_eq!((counts.would_run, counts.would_skip, counts.would_fail), (0, 6, 0), "{seen:?}");
    assert_eq!(seen[0].outcome, DryRunOutcome::WouldSkip { because: "it was handled before" });
    assert_eq!(seen[5].outcome, DryRunOutcome::WouldSkip { because: "it is a dead letter" });
    assert_eq!(app.dry_mails.load(SeqCst), 0, "what was handled does not run");

    seen.clear();
    let again = NewReplay::reprocess("tests.dry", "ada");
    let counts = dry_run(&consumer(&world, &app), &world, &plan, &again, |one| seen.push(one)).await.unwrap();
    let found: Vec<_> = seen.iter().map(|one| (&*one.event_id, one.consumer, &one.outcome)).collect();
    let fails = |n: usize, error: &str| match found[n].2 {
        DryRunOutcome::WouldFail { error: found } => assert!(found.contains(error), "{found}"),
        other => panic!("{n}: {other:?}"),
    };
    assert_eq!(found[0], ("order-0", "tests.dry", &DryRunOutcome::WouldRun { published: 1 }));
    fails(1, "no customer");
    fails(2, "the handler panicked: out of paper");
    // SQLite checks it with COMMIT alone.
    match DB::MODULE {
        "postgres" => fails(3, "23503"),
        "mysql" => fails(3, "1452"),
        _ => assert_eq!(*found[3].2, DryRunOutcome::WouldRun { published: 1 }),
    }
    assert_eq!(*found[4].2, DryRunOutcome::WouldSkip { because: "its payload was redacted" });
    fails(5, "missing field `n`");
    assert_eq!(counts.would_run + counts.would_fail, 5);
    assert_eq!(app.dry_mails.load(SeqCst), 4, "the handler knows");
    assert_eq!((everything(&world).await, app.mails.load(SeqCst)), (before, mails));

    // What was tried is what happens.
    app.is_broken.store(false, SeqCst);
    Ops::new(&world).make_replay(&plan, again).await.unwrap();
    let all_ran = async || world.rows("dead_letters").await == 2 && world.effects().await.len() == 4;
    run_until(consumer(&world, &app), all_ran).await;
    assert_eq!(world.effects().await, [0, 1, 2, 3]);
}

/// Of what nobody has handled yet, a resend would run; and several pages of it.
async fn what_is_new_to_a_consumer_would_run<DB: TestDb>() {
    let (world, app) = shop::<DB>().await;
    publish(&world, (100..550).map(order)).await;
    publish(&world, [Draft::raw("tests.dry_others", 1, "{}")]).await;
    let reader = Reader::open(&world, "nats", Uuid::now_v7(), ReaderOptions::new()).await.unwrap();
    let mut reader = reader.expect("nobody else reads");
    let mut settled = 0;
    while settled < 451 {
        for entry in in_time(reader.next(100)).await.unwrap() {
            reader.settle(entry.ticket);
            settled += 1;
        }
    }
    reader.close().await.unwrap();
    let plan = Ops::new(&world).plan_replay("nats", &Selection::new()).await.unwrap();
    let (mut seen, dry) = (Vec::new(), consumer(&world, &app));
    let counts =
        dry_run(&dry, &world, &plan, &NewReplay::resend("ada"), |one| seen.push(one.event_id)).await.unwrap();
    assert_eq!((plan.selected, counts.messages, counts.unhandled), (451, 451, 1));
    assert_eq!((counts.would_run, counts.would_skip, counts.would_fail), (450, 0, 0));
    assert_eq!(seen, Vec::from_iter((100..550).map(|n| format!("order-{n}"))));
    assert_eq!(everything(&world).await, [451, 0, 0, 0, 0, 0]);

    let unknown = dry_run(&dry, &world, &plan, &NewReplay::reprocess("tests.drry", "ada"), |_| ()).await;
    let error = unknown.unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Configuration);
    assert!(error.to_string().contains("tests.drry"), "{error}");
    let purged = format!("DELETE FROM {} WHERE id = 'order-333'", world.engine().table("outbox"));
    sqlx::raw_sql(AssertSqlSafe(purged)).execute(world.pool()).await.unwrap();
    let error = dry_run(&dry, &world, &plan, &NewReplay::resend("ada"), |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("of 451 planned messages only 450 are still in the log"), "{error}");
}

/// A replay to a consumer of the log reaches it and no other.
async fn who_does_not_get_a_replay_is_not_tried<DB: TestDb>() {
    let (world, app) = shop::<DB>().await;
    publish(&world, [order(0)]).await;
    let both = || consumer(&world, &app).handler::<count>();
    run_until(both(), async || world.rows("inbox").await == 2).await;
    // Not what the other has published.
    let orders = Selection::new().types(vec!["tests.dry".parse().unwrap()]);
    let plan = Ops::new(&world).plan_replay("consumer:tests.dry_counts", &orders).await.unwrap();
    let mut seen = Vec::new();
    let resend = NewReplay::resend("ada");
    let counts = dry_run(&both(), &world, &plan, &resend, |one| seen.push(one.consumer)).await.unwrap();
    assert_eq!((seen, counts.would_skip), (vec!["tests.dry_counts"], 1));
    let passed_by = NewReplay::reprocess("tests.dry", "ada");
    let error = dry_run(&both(), &world, &plan, &passed_by, |_| ()).await.unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Configuration);
    // Time passes: readers move on, and what the plan was bound by is thinned.
    publish(&world, [order(1)]).await;
    run_until(both(), async || world.rows("inbox").await == 4).await;
    if DB::MODULE == "postgres" {
        let thinned =
            "DELETE FROM twinbox.ticks t WHERE NOT EXISTS (SELECT FROM twinbox.cursors WHERE t.id IN (p, w))";
        sqlx::raw_sql(thinned).execute(world.pool()).await.unwrap();
    }
    let again = NewReplay::reprocess("tests.dry_counts", "ada");
    let counts = dry_run(&both(), &world, &plan, &again, |_| ()).await.unwrap();
    assert_eq!((counts.messages, counts.would_run), (1, 1));
}

crate::support::cases::cases! {
    all: [
        a_replay_is_tried_and_leaves_nothing_behind,
        what_is_new_to_a_consumer_would_run,
        who_does_not_get_a_replay_is_not_tried,
    ]
}
