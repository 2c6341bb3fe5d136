//! Acts on all dead letters that match, carried out by consumers and relays.
use super::shop::{Deployed, consumer, given_up, publish, publish_sized};
use crate::support::{
    cases::cases,
    jobs::execute,
    relay::{Running, Target},
    stores::{TestDb, World},
    wait::eventually,
};
use sqlx::Postgres;
use std::{sync::atomic::Ordering::SeqCst, time::Duration};
use twinbox::{
    ErrorKind, Store,
    nats::Nats,
    ops::{
        AuditIntent, Ops,
        dead_letters::{BulkAction, BulkActionState, DeadLetterAction, DeadLetterFilter},
    },
    relay::Relay,
};

const LETTERS: i64 = 450;
const INTENT: AuditIntent<'static> =
    AuditIntent { operator: "ada", command: "dead-letters", target: "all", reason: Some("mended") };

fn of_billing() -> DeadLetterFilter {
    DeadLetterFilter { consumer: Some("billing.invoice".to_owned()), ..DeadLetterFilter::default() }
}

async fn make<DB: TestDb>(
    world: &Store<DB>,
    action: DeadLetterAction,
    filter: &DeadLetterFilter,
) -> BulkAction {
    let ops = Ops::new(world);
    let plan = ops.plan_bulk_action(action, filter).await.unwrap();
    ops.make_bulk_action(&plan, Duration::ZERO, &INTENT).await.unwrap()
}

/// Waits until an action has ended.
async fn ended<DB: TestDb>(world: &Store<DB>, id: i64) -> BulkAction {
    let ops = Ops::new(world);
    eventually(async || Some(ops.bulk_action(id).await.unwrap()).filter(|one| one.state.has_ended())).await
}

/// What comes later, or does not match, is left alone.
async fn a_consumer_redrives_all_that_matched<DB: TestDb>() {
    let (world, deployed) = given_up::<DB>(LETTERS).await;
    let filter = DeadLetterFilter { key: Some("customer-7".to_owned()), ..of_billing() };
    let ops = Ops::new(&*world);
    let plan = ops.plan_bulk_action(DeadLetterAction::Redrive, &filter).await.unwrap();
    assert_eq!((plan.matching, plan.has_more, plan.sample.len()), (5, false, 5));
    let made = ops.make_bulk_action(&plan, Duration::ZERO, &INTENT).await.unwrap();
    assert_eq!((made.state, made.planned), (BulkActionState::Waiting, 5));
    let running = Deployed::start(consumer(&world, &deployed));
    let done = ended(&world, made.id).await;
    assert_eq!((done.state, done.looked_at, done.changed), (BulkActionState::Done, LETTERS as u64, 5));
    eventually(async || (world.effects().await == [7, 107, 207, 307, 407]).then_some(())).await;
    assert_eq!(world.rows("dead_letters").await, LETTERS - 5);

    let rest = make(&world, DeadLetterAction::Redrive, &of_billing()).await;
    assert_eq!(ended(&world, rest.id).await.changed, LETTERS as u64 - 5);
    eventually(async || (world.effects().await.len() as i64 == LETTERS).then_some(())).await;
    running.stop().await;
    let audit = ops.audit(10).await.unwrap();
    let counts = Vec::from_iter(audit.iter().map(|entry| (entry.id, entry.count)));
    assert_eq!(counts, [(rest.audit_id, Some(LETTERS as u64 - 5)), (made.audit_id, Some(5))]);
}

/// Dead letters that are redriven already are not counted: a second redrive would leave them alone.
async fn a_plan_leaves_out_what_is_redriven<DB: TestDb>() {
    let (world, _) = given_up::<DB>(3).await;
    let ops = Ops::new(&*world);
    let plan = ops.plan_bulk_action(DeadLetterAction::Redrive, &of_billing()).await.unwrap();
    let ids = Vec::from_iter(plan.sample.into_iter().map(|one| one.id));
    assert_eq!(ops.redrive(&ids[..1], Duration::ZERO).await.unwrap(), 1);
    let plan = ops.plan_bulk_action(DeadLetterAction::Redrive, &of_billing()).await.unwrap();
    assert_eq!((plan.matching, plan.redriven, plan.sample.len()), (2, 1, 2));
    let plan = ops.plan_bulk_action(DeadLetterAction::Discard, &of_billing()).await.unwrap();
    assert_eq!((plan.matching, plan.redriven, plan.sample.len()), (3, 0, 3));
    assert_eq!(ops.redrive(&ids, Duration::ZERO).await.unwrap(), 2);
    let plan = ops.plan_bulk_action(DeadLetterAction::Redrive, &of_billing()).await.unwrap();
    assert!(plan.is_empty() && plan.redriven == 3);
}

/// Dead letters that were given up after it was made stay.
async fn later_dead_letters_are_left_alone<DB: TestDb>() {
    let (world, deployed) = given_up::<DB>(3).await;
    let made = make(&world, DeadLetterAction::Discard, &of_billing()).await;
    // Times of SQLite have milliseconds.
    let ops = Ops::new(&*world);
    eventually(async || (ops.now().await.unwrap() > made.made_at).then_some(())).await;
    deployed.rejects.store(true, SeqCst);
    publish(&world, 3..5).await;
    let running = Deployed::start(consumer(&world, &deployed));
    assert_eq!(ended(&world, made.id).await.changed, 3);
    eventually(async || (world.rows("dead_letters").await == 2).then_some(())).await;
    running.stop().await;
    assert_eq!(world.effects().await, [] as [i64; 0]);
}

/// A message that was refused long ago, is tried again and refused again is a dead letter of now.
async fn what_is_refused_again_later_is_left_alone<DB: TestDb>() {
    let (world, target) = (World::<DB>::new().await, Target::shared());
    let small =
        async_nats::jetstream::stream::Config { max_message_size: 1024, ..target.config(&["orders.placed"]) };
    target.create(small).await;
    let run = || Running::run(Relay::new((*world).clone(), Nats::with_options(target.existing()).unwrap()));
    publish_sized(&world, 0..2, 4000).await;
    let refused = format!("SELECT count(*) FROM {} WHERE state = 'dead'", DB::table_of("parked_messages"));
    let are_refused =
        async |so_many| eventually(async || (world.number(&*refused).await == so_many).then_some(())).await;
    let running = run();
    are_refused(2).await;
    running.stop().await;
    let ops = Ops::new(&*world);
    let of_nats = DeadLetterFilter { destination: Some("nats".to_owned()), ..DeadLetterFilter::default() };
    let first = DeadLetterFilter { message: Some("order-0".to_owned()), ..of_nats.clone() };
    let mut ids = Vec::new();
    ops.each_dead_letter(&first, |dead_letter| ids.push(dead_letter.id)).await.unwrap();
    assert_eq!(ops.redrive(&ids, Duration::ZERO).await.unwrap(), 1);
    let made = make(&world, DeadLetterAction::Discard, &of_nats).await;
    assert_eq!(made.planned, 1);
    // Times of SQLite have milliseconds.
    eventually(async || (ops.now().await.unwrap() > made.made_at).then_some(())).await;
    let running = run();
    assert_eq!(ended(&world, made.id).await.changed, 1);
    are_refused(1).await;
    running.stop().await;
    let mut left = Vec::new();
    ops.each_dead_letter(&of_nats, |dead_letter| left.push(dead_letter)).await.unwrap();
    assert_eq!(left.iter().map(|one| &*one.event_id).collect::<Vec<_>>(), ["order-0"]);
    assert!(left[0].given_up_at > made.made_at, "{:?}", left[0]);
}

/// What was changed stays changed, and no more is.
async fn a_cancelled_action_changes_nothing_more<DB: TestDb>() {
    let (world, deployed) = given_up::<DB>(3).await;
    let ops = Ops::new(&*world);
    let made = make(&world, DeadLetterAction::Discard, &of_billing()).await;
    assert!(ops.cancel_bulk_action(made.id).await.unwrap());
    assert!(!ops.cancel_bulk_action(made.id).await.unwrap());
    let next = make(&world, DeadLetterAction::Redrive, &of_billing()).await;
    let running = Deployed::start(consumer(&world, &deployed));
    assert_eq!(ended(&world, next.id).await.changed, 3);
    running.stop().await;
    let cancelled = ops.bulk_action(made.id).await.unwrap();
    assert_eq!((cancelled.state, cancelled.changed), (BulkActionState::Cancelled, 0));
}

/// Two operators redrive the same at once: each message is handled once.
async fn two_actions_redrive_each_message_once<DB: TestDb>() {
    let (world, deployed) = given_up::<DB>(LETTERS).await;
    let filter = of_billing();
    let made = || make(&world, DeadLetterAction::Redrive, &filter);
    let (one, other) = tokio::join!(made(), made());
    let running = Deployed::start(consumer(&world, &deployed));
    let changed = ended(&world, one.id).await.changed + ended(&world, other.id).await.changed;
    eventually(async || (world.effects().await.len() as i64 == LETTERS).then_some(())).await;
    running.stop().await;
    assert_eq!((changed, world.rows("dead_letters").await), (LETTERS as u64, 0));
}

/// One that a newer version may have made is left to it for a day, and says then why it has failed. One that
/// no version makes says so at once. None of them keeps another.
async fn an_action_that_cannot_be_read_has_failed_and_stops_no_other<DB: TestDb>() {
    let (world, deployed) = given_up::<DB>(3).await;
    let (ops, table) = (Ops::new(&*world), DB::table_of("bulk_actions"));
    let unknown = "has conditions that this version does not know";
    let no_owner = "names no consumer and no destination, or both";
    let filters = [
        (r#"{"consumer":"billing.invoice","tenant":"a"}"#, unknown),
        (r#"{"consumer":"billing.invoice","since":"yesterday"}"#, unknown),
        (r#"{"consumer":["billing.invoice"]}"#, unknown),
        (r#"{"consumer":"billing.invoice","ids":["x"]}"#, unknown),
        ("{}", no_owner),
        (r#"{"consumer":"billing.invoice","destination":"nats"}"#, no_owner),
    ];
    let mut made = Vec::new();
    for (filter, says) in filters {
        let action = make(&world, DeadLetterAction::Discard, &of_billing()).await;
        let mut conn = world.pool().acquire().await.unwrap();
        let change = format!("UPDATE {table} SET filter = '{filter}' WHERE id = {}", action.id);
        sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&mut *conn).await.unwrap();
        made.push((action, says));
    }
    let next = make(&world, DeadLetterAction::Redrive, &of_billing()).await;
    let in_state = |state: &str| format!("SELECT count(*) FROM {table} WHERE state = '{state}'");
    let running = Deployed::start(consumer(&world, &deployed));
    assert_eq!(ended(&world, next.id).await.changed, 3);
    let have_failed = async |so_many| {
        eventually(async || (world.number(in_state("failed")).await == so_many).then_some(())).await;
    };
    have_failed(2).await;
    assert_eq!(world.number(in_state("running")).await, 4, "those that a newer version may know");
    let error = ops.bulk_action(made[0].0.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    let earlier = DB::earlier("made_at", 86_401);
    execute(&world, format!("UPDATE {table} SET made_at = {earlier} WHERE state = 'running'")).await;
    have_failed(6).await;
    running.stop().await;
    for (action, says) in &made {
        let failed = ops.bulk_action(action.id).await.unwrap();
        assert_eq!((failed.state, failed.changed), (BulkActionState::Failed, 0));
        assert!(failed.error.as_deref().is_some_and(|error| error.contains(says)), "{failed:?}");
        assert!(failed.ended_at.is_some() && !ops.cancel_bulk_action(action.id).await.unwrap());
    }
    let listed = ops.bulk_actions(10).await.unwrap();
    assert_eq!(listed.len(), made.len() + 1, "all of them are shown");
    let counts = Vec::from_iter(ops.audit(10).await.unwrap().iter().rev().map(|entry| entry.count));
    assert_eq!(counts, [Some(0), Some(0), Some(0), Some(0), Some(0), Some(0), Some(3)]);
}

/// Several processes work on one action, and each dead letter is changed once.
async fn processes_take_turns<DB: TestDb>() {
    let (world, deployed) = given_up::<DB>(LETTERS).await;
    let made = make(&world, DeadLetterAction::Discard, &of_billing()).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        let store = DB::open(world.url()).await;
        let other = twinbox::Consumer::new(store, deployed.clone()).handler::<super::shop::invoice>();
        running.push(Deployed::start(other));
    }
    let done = ended(&world, made.id).await;
    assert_eq!((done.looked_at, done.changed), (LETTERS as u64, LETTERS as u64));
    for one in running {
        one.stop().await;
    }
    assert_eq!(world.rows("dead_letters").await, 0);
}

/// A relay carries out what is asked of its destination, and other destinations keep their dead letters.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_redrives_what_its_destination_refused() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    publish(&world, 0..1).await;
    let running = Running::start(&*world, &target);
    running.published(1).await;
    publish(&world, 1..4).await;
    running.published(4).await;
    let park = "
        INSERT INTO twinbox.parked_messages (destination, position, key, type, state, blocks_key, attempts,
            next_attempt_at, first_error, last_error, fingerprint)
        SELECT d, position, key, type, 'dead', false, 1, now(), 'nats.permission', 'nats.permission',
            'abcdefabcdef'
        FROM twinbox.outbox, unnest(array['nats', 'elsewhere']) d";
    world.execute(park).await;
    let filter = DeadLetterFilter {
        destination: Some("nats".to_owned()),
        fingerprint: Some("abcdefabcdef".to_owned()),
        ..DeadLetterFilter::default()
    };
    let groups = Ops::new(&*world).dead_letter_groups(&DeadLetterFilter::default()).await.unwrap();
    let owners = Vec::from_iter(groups.iter().map(|group| (&*group.newest.owner, group.dead_letters)));
    assert_eq!(owners, [("elsewhere", 4), ("nats", 4)]);
    let made = make(&world, DeadLetterAction::Redrive, &filter).await;
    assert_eq!(ended(&world, made.id).await.changed, 4);
    let left = "SELECT count(*) FROM twinbox.parked_messages WHERE destination = 'nats'";
    eventually(async || (world.number(left).await == 0).then_some(())).await;
    running.stop().await;
    assert_eq!(world.rows("parked_messages").await, 4, "those of another destination");
}

#[tokio::test]
async fn an_action_needs_one_owner_and_something_to_do() {
    let world = World::<sqlx::Sqlite>::new().await;
    let ops = Ops::new(&*world);
    let both = DeadLetterFilter { destination: Some("nats".to_owned()), ..of_billing() };
    for filter in [DeadLetterFilter::default(), both] {
        let refused = ops.plan_bulk_action(DeadLetterAction::Redrive, &filter).await.unwrap_err();
        assert!(refused.to_string().contains("one consumer or one destination"), "{refused}");
    }
    let plan = ops.plan_bulk_action(DeadLetterAction::Redrive, &of_billing()).await.unwrap();
    let refused = ops.make_bulk_action(&plan, Duration::ZERO, &INTENT).await.unwrap_err();
    assert!(refused.to_string().contains("nothing matches"), "{refused}");
    assert_eq!((world.rows("bulk_actions").await, world.rows("audit").await), (0, 0));
}

cases! {
    all: [
        a_cancelled_action_changes_nothing_more,
        a_consumer_redrives_all_that_matched,
        a_plan_leaves_out_what_is_redriven,
        an_action_that_cannot_be_read_has_failed_and_stops_no_other,
        later_dead_letters_are_left_alone,
        processes_take_turns,
        two_actions_redrive_each_message_once,
        what_is_refused_again_later_is_left_alone,
    ]
}
