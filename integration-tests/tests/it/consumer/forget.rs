//! What was handled long ago is forgotten, and what may be a copy of it is not run.
use super::{CHOOSE, FAIL, FINE, TWICE, analytics, choose};
use crate::support::{
    cases::cases,
    consumer::run_until,
    postgres::waits_for_a_lock,
    relay::Target,
    stores::{Placed, TestDb, World, effect, failed, placed},
    wait::{eventually, in_time},
};
use sqlx::Postgres;
use std::time::Duration;
use twinbox::{
    BatchTx, CancellationToken, Consumer, Delivery, DeliveryOutcome, Dialect, Draft, ErrorKind,
    HandlerResult, Message, Policy, Timestamp, Tx,
    aws::{Sqs, SqsOptions},
    consumer::{DeliveryOrder, ErrorKind as ConsumerErrorKind, InboxRetention},
    event_handler, handler_fn,
    inbox::{ClaimTerms, InboxClaim},
    nats::Nats,
    seam::Transport,
};
use twinbox_testkit::aws::FakeSqs;
use twinbox_testkit::park_deliveries;

const HOUR: Duration = Duration::from_secs(3600);
/// No message of these tests is older.
const BEGINNING: i64 = 1_700_000_000_000_000;
const THE_FUTURE: i64 = 4_000_000_000_000_000;

/// Made so many seconds after the beginning.
fn at(seconds: i64, n: i64) -> Message {
    Message { time: Timestamp::from_micros(BEGINNING + seconds * 1_000_000), ..placed(n) }
}

/// Purges until as many claims are gone; the clock of SQLite counts milliseconds.
async fn purge<DB: TestDb>(world: &World<DB>, consumer: &str, claims: u64) {
    let mut gone = 0;
    eventually(async || {
        gone += world.inbox(consumer).purge(Duration::ZERO).await.unwrap();
        (gone >= claims).then_some(())
    })
    .await;
    assert_eq!(gone, claims);
}

async fn dead_letters<DB: TestDb>(world: &World<DB>, consumer: &str) -> Vec<String> {
    world
        .inbox(consumer)
        .dead_letters(100)
        .await
        .unwrap()
        .into_iter()
        .map(|dead_letter| dead_letter.reason)
        .collect()
}

async fn what_may_be_a_copy_of_something_forgotten_is_not_run<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let (old, newest, unseen, newer) = (at(1, FINE), at(3, FINE + 1), at(2, FINE + 2), at(4, FINE + 3));
    for message in [&old, &newest] {
        assert_eq!(world.deliver::<choose>(message).await, DeliveryOutcome::Handled);
    }
    assert_eq!(world.inbox(CHOOSE).purge(HOUR).await.unwrap(), 0);
    purge(&world, CHOOSE, 2).await;
    assert_eq!(world.rows("inbox").await, 0);

    for message in [&old, &newest, &unseen] {
        let DeliveryOutcome::DeadLettered { error } = world.deliver::<choose>(message).await else {
            panic!()
        };
        assert!(error.contains("2023-11-14T22:13:23Z"), "{error}");
        assert_eq!(world.deliver::<choose>(message).await, DeliveryOutcome::Duplicate);
    }
    assert_eq!(dead_letters(&world, CHOOSE).await, ["in_doubt"; 3]);
    assert_eq!(world.deliver::<choose>(&newer).await, DeliveryOutcome::Handled);
    assert_eq!(world.effects().await, [FINE, FINE + 1, FINE + 3]);
    // Another consumer has forgotten nothing.
    assert_eq!(world.deliver::<analytics>(&old).await, DeliveryOutcome::Handled);
}

/// It would push the mark to where no message gets past it.
async fn a_message_from_the_future_is_remembered_until_then<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let future = Message { time: Timestamp::from_micros(THE_FUTURE), ..placed(FINE) };
    for message in [&future, &at(1, FINE + 1)] {
        assert_eq!(world.deliver::<choose>(message).await, DeliveryOutcome::Handled);
    }
    purge(&world, CHOOSE, 1).await;
    assert_eq!(world.inbox(CHOOSE).purge(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(world.deliver::<choose>(&future).await, DeliveryOutcome::Duplicate);
    assert_eq!(world.deliver::<choose>(&at(2, FINE + 2)).await, DeliveryOutcome::Handled);
}

/// Made before the inbox knew the times of its messages.
async fn a_claim_without_a_time_counts_as_old_as_it_is<DB: TestDb>() {
    let world = World::<DB>::new().await;
    assert_eq!(world.deliver::<choose>(&at(1, FINE)).await, DeliveryOutcome::Handled);
    let forget_times = format!("UPDATE {} SET time = NULL", DB::table_of("inbox"));
    world.execute(forget_times.leak()).await;
    purge(&world, CHOOSE, 1).await;
    let outcome = world.deliver::<choose>(&at(1_000, FINE + 1)).await;
    assert!(matches!(outcome, DeliveryOutcome::DeadLettered { .. }), "{outcome:?}");
    let future = Message { time: Timestamp::from_micros(THE_FUTURE), ..placed(FINE + 2) };
    assert_eq!(world.deliver::<choose>(&future).await, DeliveryOutcome::Handled);
}

/// Their message was dropped by the broker.
async fn attempts_that_nobody_will_finish_go_as_well<DB: TestDb>() {
    let world = World::<DB>::new().await;
    assert!(failed(&world.deliver::<choose>(&at(1, FAIL)).await, "not today"));
    let long_ago = DB::earlier("last_failed_at", 91 * 86_400);
    let attempts = DB::table_of("attempts");
    for (sql, left) in [
        ("UPDATE {} SET starts = 1".to_owned(), 1),
        (format!("UPDATE {{}} SET last_failed_at = {long_ago}"), 1),
        ("UPDATE {} SET starts = 0".to_owned(), 0),
    ] {
        world.execute(sql.replace("{}", &attempts).leak()).await;
        assert_eq!(world.inbox(CHOOSE).purge(Duration::ZERO).await.unwrap(), 0);
        assert_eq!(world.rows("attempts").await, left, "{sql}");
    }
}

/// It was not handled, for certain.
async fn what_has_failed_is_tried_again_however_old_it_is<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = at(1, TWICE);
    assert!(failed(&world.deliver::<choose>(&order).await, "not yet"));
    assert_eq!(world.deliver::<choose>(&at(2, FINE)).await, DeliveryOutcome::Handled);
    purge(&world, CHOOSE, 1).await;
    assert!(failed(&world.deliver::<choose>(&order).await, "not yet"));
    assert_eq!(world.deliver::<choose>(&order).await, DeliveryOutcome::Handled);
}

/// Its copy was handled, so that it failed proves nothing any more.
async fn what_has_failed_beside_a_copy_that_was_handled_is_in_doubt<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = at(1, TWICE);
    for _ in 0..2 {
        assert!(failed(&world.deliver::<choose>(&order).await, "not yet"));
    }
    let InboxClaim::Open(copy) = world.inbox(CHOOSE).claim(&order, false).await.unwrap() else { panic!() };
    copy.commit().await.unwrap();
    assert_eq!(world.rows("attempts").await, 1);
    purge(&world, CHOOSE, 1).await;
    let outcome = world.deliver::<choose>(&order).await;
    assert!(matches!(outcome, DeliveryOutcome::DeadLettered { .. }), "{outcome:?}");
    assert_eq!(world.effects().await, [0; 0]);
}

/// They were never handled, and are older than what others of their consumer have handled since.
async fn claims_stay_that_are_newer_than_what_is_put_aside() {
    let world = World::<Postgres>::new().await;
    let (me, minute) = (uuid::Uuid::now_v7(), Duration::from_secs(60));
    world.partition_leases(CHOOSE).create(1, &["orders.placed".to_owned()]).await.unwrap();
    let (fence, _) = world.partition_leases(CHOOSE).take(0, me, minute).await.unwrap().unwrap();
    let aside = at(5, FINE + 9);
    park_deliveries(&world, CHOOSE, fence, &[(aside.clone(), Duration::ZERO)]).await.unwrap();
    for n in [4, 5, 6] {
        assert_eq!(world.deliver::<choose>(&at(n, FINE + n)).await, DeliveryOutcome::Handled);
    }
    purge(&world, CHOOSE, 1).await;
    assert_eq!(world.inbox(CHOOSE).purge(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(world.deliver::<choose>(&aside).await, DeliveryOutcome::Handled);
    world.execute("DELETE FROM twinbox.parked_deliveries").await;
    purge(&world, CHOOSE, 3).await;
}

async fn a_purge_moves_the_mark_on_and_never_back<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let late = at(2, TWICE);
    assert!(failed(&world.deliver::<choose>(&late).await, "not yet"));
    for message in [at(1, FINE), at(5, FINE + 1)] {
        assert_eq!(world.deliver::<choose>(&message).await, DeliveryOutcome::Handled);
        purge(&world, CHOOSE, 1).await;
    }
    assert!(failed(&world.deliver::<choose>(&late).await, "not yet"));
    assert_eq!(world.deliver::<choose>(&late).await, DeliveryOutcome::Handled);
    purge(&world, CHOOSE, 1).await;
    let outcome = world.deliver::<choose>(&at(5, FINE + 2)).await;
    assert!(matches!(outcome, DeliveryOutcome::DeadLettered { .. }), "{outcome:?}");
    assert_eq!(world.deliver::<choose>(&at(6, FINE + 3)).await, DeliveryOutcome::Handled);
}

/// All claims of one transaction have one time.
async fn many_go_in_several_statements<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let messages: Vec<Message> = (0..2_500).map(|n| at(n, n)).collect();
    let attempt =
        world.inbox(CHOOSE).claim_batch(ClaimTerms::default(), &messages, false).await.unwrap().attempt;
    attempt.expect("all are new").commit().await.unwrap();
    purge(&world, CHOOSE, 2_500).await;
    let outcome = world.deliver::<choose>(&at(2_499, FINE)).await;
    assert!(matches!(outcome, DeliveryOutcome::DeadLettered { .. }), "{outcome:?}");
}

/// A claim that does not see the mark yet has to see the row.
async fn the_mark_is_there_before_the_first_claim_goes() {
    let world = World::<Postgres>::new().await;
    let message = at(1, FINE);
    assert_eq!(world.deliver::<choose>(&message).await, DeliveryOutcome::Handled);
    let mut held = world.begin().await.unwrap();
    sqlx::query("SELECT FROM twinbox.inbox FOR UPDATE").execute(&mut *held).await.unwrap();
    let store = (*world).clone();
    let purging = tokio::spawn(async move { store.inbox(CHOOSE).purge(Duration::ZERO).await });
    eventually(async || (world.rows("purge_marks").await == 1).then_some(())).await;
    assert_eq!(world.rows("inbox").await, 1);
    held.rollback().await.unwrap();
    assert_eq!(in_time(purging).await.unwrap().unwrap(), 1);
}

/// Its transaction began before the last that is forgotten, and it is of a newer message.
async fn a_claim_that_commits_behind_the_mark_stays() {
    let world = World::<Postgres>::new().await;
    assert_eq!(world.deliver::<choose>(&at(1, FINE)).await, DeliveryOutcome::Handled);
    purge(&world, CHOOSE, 1).await;
    let slow = at(9, FINE + 9);
    let InboxClaim::Open(attempt) = world.inbox(CHOOSE).claim(&slow, false).await.unwrap() else { panic!() };
    assert_eq!(world.deliver::<choose>(&at(2, FINE + 2)).await, DeliveryOutcome::Handled);
    let mut held = world.begin().await.unwrap();
    sqlx::query("SELECT FROM twinbox.purge_marks FOR UPDATE").execute(&mut *held).await.unwrap();
    let store = (*world).clone();
    let purging = tokio::spawn(async move { store.inbox(CHOOSE).purge(Duration::ZERO).await });
    waits_for_a_lock(&world.twin(1).await).await;
    attempt.commit().await.unwrap();
    held.rollback().await.unwrap();
    assert_eq!(in_time(purging).await.unwrap().unwrap(), 1);
    assert_eq!(world.deliver::<choose>(&slow).await, DeliveryOutcome::Duplicate);
}

/// It began before the mark, and waited for the row that is deleted.
async fn a_copy_that_waits_while_its_claim_is_deleted_is_in_doubt() {
    let world = World::<Postgres>::new().await;
    let message = at(1, FINE);
    assert_eq!(world.deliver::<choose>(&message).await, DeliveryOutcome::Handled);
    let mut deleting = world.begin().await.unwrap();
    sqlx::query("DELETE FROM twinbox.inbox").execute(&mut *deleting).await.unwrap();
    let (store, copy) = ((*world).clone(), message.clone());
    let claiming = tokio::spawn(async move { store.inbox(CHOOSE).claim(&copy, false).await.map(|_| ()) });
    waits_for_a_lock(&world.twin(1).await).await;
    world.execute("INSERT INTO twinbox.purge_marks VALUES ('tests.choose', '2024-01-01')").await;
    deleting.commit().await.unwrap();
    assert_eq!(in_time(claiming).await.unwrap().unwrap_err().kind(), ErrorKind::Forgotten);
}

#[event_handler(consumer = "tests.forget", batch = 10)]
async fn all<DB: Dialect>(tx: &mut BatchTx<'_, DB>, orders: Vec<Delivery<Placed>>) -> HandlerResult {
    for order in orders {
        effect::<DB>(tx, order.n).await?;
    }
    Ok(())
}

/// The runtime purges by itself, and a batch with a message in doubt is handled but for that.
async fn the_runtime_forgets_and_leaves_alone_what_is_in_doubt<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let publish = async |orders: &[Message]| {
        let drafts = orders.iter().map(|order| {
            Draft::raw("orders.placed", 1, order.payload.to_vec()).id(order.id.clone()).time(order.time)
        });
        let mut tx = world.begin().await.unwrap();
        world.outbox().publish_all(&mut tx, drafts.collect()).await.unwrap();
        tx.commit().await.unwrap();
    };
    let old = at(1, 1);
    publish(std::slice::from_ref(&old)).await;
    let consumer = || Consumer::new((*world).clone(), ()).handler::<all>();
    let forgetful = consumer().inbox_retention(InboxRetention::For(Duration::from_millis(1)));
    run_until(forgetful, async || world.rows("purge_marks").await == 1 && world.rows("inbox").await == 0)
        .await;
    assert_eq!(world.effects().await, [1]);

    publish(&[at(2, 2), old, at(3, 3)]).await;
    let done = async || world.rows("inbox").await == 3;
    run_until(consumer().inbox_retention(InboxRetention::Forever), done).await;
    assert_eq!(world.effects().await, [1, 2, 3]);
    assert_eq!(dead_letters(&world, "tests.forget").await, ["in_doubt"]);
}

/// Runs until it refuses, and answers with what it says.
async fn refused(
    world: &World<Postgres>,
    transport: impl Transport,
    order: DeliveryOrder,
    retention: InboxRetention,
) -> String {
    let handler = async |(): &(), _: &mut Tx<'_, Postgres>, _: Delivery<Placed>| Ok(());
    let handler = handler_fn(Policy::new("tests.forget").order(order), handler);
    let consumer = Consumer::new((**world).clone(), ()).transport(transport).register(handler);
    let running = consumer.inbox_retention(retention).run(CancellationToken::new());
    let error = in_time(running).await.unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Configuration, "{error}");
    error.to_string()
}

/// Both numbers are named, and where they come from.
async fn an_inbox_that_forgets_before_its_broker_does_is_refused() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let nats = || Nats::with_options(target.options()).unwrap();
    for order in [DeliveryOrder::None, DeliveryOrder::Key] {
        let error = refused(&world, nats(), order, InboxRetention::For(HOUR)).await;
        for part in ["3600s", "604800s (max_age)", "120s (duplicate_window)", "at least 604800s"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    let fake = FakeSqs::start().await.unwrap();
    let queue = || {
        let options = SqsOptions::new().region("eu-west-1").endpoint_url(fake.endpoint_url());
        let options = options.credentials("any", "any", None).wait_time(Duration::from_secs(1));
        Sqs::with_options(options.queue("tests.forget", fake.queue("forget"))).unwrap()
    };
    let error =
        refused(&world, queue(), DeliveryOrder::None, InboxRetention::For(5 * 24 * HOUR - HOUR)).await;
    for part in ["428400s", "345600s (MessageRetentionPeriod)", "at least 432000s"] {
        assert!(error.contains(part), "{part}: {error}");
    }

    for retention in [InboxRetention::For(7 * 24 * HOUR), InboxRetention::Automatic] {
        let handler = async |(): &(), _: &mut Tx<'_, Postgres>, _: Delivery<Placed>| Ok(());
        let handler = handler_fn(Policy::new("tests.forget"), handler);
        let consumer = Consumer::new((*world).clone(), ()).transport(nats()).register(handler);
        let consumer = consumer.inbox_retention(retention);
        let status = consumer.status();
        run_until(consumer, async || status.is_ready()).await;
        assert!(!status.consumers().is_empty(), "{retention:?}");
    }
}

cases! {
    all: [
        what_may_be_a_copy_of_something_forgotten_is_not_run,
        a_message_from_the_future_is_remembered_until_then,
        a_claim_without_a_time_counts_as_old_as_it_is,
        attempts_that_nobody_will_finish_go_as_well,
        what_has_failed_is_tried_again_however_old_it_is,
        a_purge_moves_the_mark_on_and_never_back,
        what_has_failed_beside_a_copy_that_was_handled_is_in_doubt,
        many_go_in_several_statements,
        the_runtime_forgets_and_leaves_alone_what_is_in_doubt,
    ]
    postgres: [
        the_mark_is_there_before_the_first_claim_goes,
        a_claim_that_commits_behind_the_mark_stays,
        a_copy_that_waits_while_its_claim_is_deleted_is_in_doubt,
        claims_stay_that_are_newer_than_what_is_put_aside,
        an_inbox_that_forgets_before_its_broker_does_is_refused,
    ]
}
