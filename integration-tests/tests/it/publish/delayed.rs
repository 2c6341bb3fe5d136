//! Messages that wait for their time.
use super::*;
use crate::support::{
    processes::{Program, Programs},
    wait::eventually,
};
use sqlx::AssertSqlSafe;
use std::{os::unix::process::ExitStatusExt as _, time::Duration};
use twinbox::{
    CancellationToken, Dialect, Store,
    log::{Log, plans},
    relay::DelayedMessageMover,
};
use twinbox_testkit::Harness;

/// Where the relay dies while it moves messages.
const POINTS: [&str; 3] = ["log.before_forget_moved", "log.before_move", "log.after_move"];

fn after(time: Timestamp, delay: Duration) -> Timestamp {
    Timestamp::from_micros(time.as_micros() + i64::try_from(delay.as_micros()).unwrap())
}

fn placed(n: i64) -> Draft {
    Draft::of(&Placed { n }).unwrap()
}

/// Publishes the messages, each for so many milliseconds from now, and answers with their ids.
async fn publish<DB: TestDb>(world: &World<DB>, messages: &[(i64, u64)]) -> Vec<MessageId> {
    let now = now(world).await;
    let for_later =
        |(n, delay): &(i64, u64)| placed(*n).not_before(after(now, Duration::from_millis(*delay)));
    let mut tx = world.begin().await.unwrap();
    let ids = world.outbox().publish_all(&mut tx, messages.iter().map(for_later).collect()).await.unwrap();
    tx.commit().await.unwrap();
    ids
}

async fn cancel<DB: TestDb>(world: &World<DB>, id: MessageId) -> bool {
    let mut tx = world.begin().await.unwrap();
    let cancelled = world.outbox().cancel(&mut tx, id).await.unwrap();
    tx.commit().await.unwrap();
    cancelled
}

/// Moves until nothing is due.
async fn move_all<DB: Dialect>(store: &Store<DB>, limit: u32) -> u64 {
    let mut messages = 0;
    loop {
        let moved = Log::new(store).move_due(limit).await.unwrap();
        messages += moved.messages;
        match moved.next_due {
            Some(Duration::ZERO) => {}
            _ => return messages,
        }
    }
}

/// What runs is the task that relays run. The time of a message is that of its move.
async fn a_message_is_in_the_log_within_a_second_of_its_time_and_not_before<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let stop = CancellationToken::new();
    let mover = tokio::spawn(DelayedMessageMover::new((*world).clone()).run(stop.clone()));
    for delay in [600, 0, 1300] {
        let due = after(now(&world).await, Duration::from_millis(delay));
        let count = world.rows("outbox").await;
        publish(&world, &[(7, delay)]).await;
        let latest = after(due.max(now(&world).await), Duration::from_secs(1));
        eventually(async || (world.rows("outbox").await > count).then_some(())).await;
        let seen = now(&world).await;
        assert!(seen >= due, "{delay} ms: in the log at {seen} and not before {due}");
        let message = world.published("orders.placed", 10).await.unwrap().pop().unwrap();
        let moved = message.time;
        assert!(moved >= due && moved <= seen, "{moved} between {due} and {seen}");
        assert!(moved <= latest, "{delay} ms: moved at {moved}, due at {due}");
    }
    assert_eq!(world.rows("delayed_messages").await, 0);
    stop.cancel();
    in_time(mover).await.unwrap().unwrap();
}

async fn what_waits_comes_out_as_it_was_published<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let at_once = full();
    let later = full().not_before(now(&world).await);
    let mut tx = world.begin().await.unwrap();
    let outbox = world.outbox();
    let first = outbox.publish_draft(&mut tx, at_once).await.unwrap();
    let second = outbox.publish_draft(&mut tx, later.clone()).await.unwrap();
    let third = outbox.publish_all(&mut tx, vec![later]).await.unwrap()[0];
    tx.commit().await.unwrap();
    // The same id names the same message, as with any publish.
    assert_eq!((first, first), (second, third));
    assert_eq!((world.rows("outbox").await, world.rows("delayed_messages").await), (1, 2));
    assert_eq!(move_all(&world, 100).await, 2);
    assert_eq!((world.rows("outbox").await, world.rows("delayed_messages").await), (3, 0));
    let mut messages = world.published("orders.noted", 10).await.unwrap();
    assert_eq!(messages.len(), 3);
    for message in &mut messages {
        message.sequence = None;
    }
    assert_eq!(messages[0], messages[1]);
    assert_eq!(messages[0], messages[2]);
}

async fn messages_are_moved_in_the_order_of_their_times<DB: TestDb>() {
    let world = World::<DB>::new().await;
    assert_eq!(Log::new(&world).move_due(10).await.unwrap().next_due, None);
    publish(&world, &[(5, 50), (1, 10), (4, 40), (2, 20), (3, 30), (9, 3_600_000)]).await;
    assert_eq!(keys(&world).await, [""; 0]);
    eventually(async || {
        (Log::new(&world).move_due(2).await.unwrap().messages == 0 && world.rows("outbox").await == 5)
            .then_some(())
    })
    .await;
    assert_eq!(keys(&world).await, ["1", "2", "3", "4", "5"]);
    let next_due = Log::new(&world).move_due(2).await.unwrap().next_due.unwrap();
    assert!(next_due > Duration::from_secs(3500) && next_due <= Duration::from_secs(3600), "{next_due:?}");
}

/// Each has almost a MiB.
async fn large_messages_are_moved_four_mebibytes_at_a_time<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let due = now(&world).await;
    let large = |n: i64| {
        let payload = vec![b'x'; twinbox::limits::PAYLOAD_BYTES_MAX];
        Draft::raw("orders.placed", 1, payload).id(format!("large-{n}")).not_before(due)
    };
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish_all(&mut tx, (0..7).map(large).collect()).await.unwrap();
    tx.commit().await.unwrap();
    let log = Log::new(&*world);
    assert_eq!(log.move_due(500).await.unwrap().messages, 5);
    assert_eq!(log.move_due(500).await.unwrap().messages, 2);
    assert_eq!((world.rows("outbox").await, world.rows("delayed_messages").await), (7, 0));
}

async fn what_is_cancelled_in_time_never_comes<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let ids = publish(&world, &[(1, 0), (2, 0), (3, 0)]).await;
    assert!(cancel(&world, ids[1]).await);
    assert!(!cancel(&world, ids[1]).await, "it waits no more");
    let mut tx = world.begin().await.unwrap();
    assert!(world.outbox().cancel(&mut tx, ids[2]).await.unwrap());
    tx.rollback().await.unwrap();
    assert_eq!(move_all(&world, 100).await, 2);
    assert_eq!(keys(&world).await, ["1", "3"]);
    assert!(!cancel(&world, ids[0]).await, "it is in the log");
    assert!(!cancel(&world, MessageId::of("test", "orders.placed", "never published")).await);
    assert_eq!(keys(&world).await, ["1", "3"]);
}

async fn a_publish_that_is_rolled_back_leaves_nothing<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    let draft = placed(1).not_before(Timestamp::from_micros(0));
    world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!((world.rows("delayed_messages").await, move_all(&world, 10).await), (0, 0));
}

async fn what_breaks_a_bound_is_refused_before_it_waits<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    let far = Timestamp::from_micros(4_000_000_000_000_000);
    let largest = twinbox::limits::PAYLOAD_BYTES_MAX;
    let draft = |bytes| Draft::raw("orders.placed", 1, vec![0; bytes]).not_before(far);
    world.outbox().publish_draft(&mut tx, draft(largest)).await.unwrap();
    let refused = world.outbox().publish_draft(&mut tx, draft(largest + 1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidDraft);
    tx.commit().await.unwrap();
    assert_eq!(world.rows("delayed_messages").await, 1);
}

/// In a handler the ids are the same in every run, so a run again finds what to cancel.
async fn a_handler_publishes_for_later_and_cancels<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let later = now(&world).await;
    let harness = Harness::new(&world, ());
    harness
        .run(async |tx| {
            let first = tx.publish_draft(placed(1).not_before(later)).await?;
            tx.publish_draft(placed(2).not_before(later)).await?;
            assert!(tx.cancel(first).await?);
            assert!(!tx.cancel(first).await?);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(move_all(&world, 10).await, 1);
    let moved = &world.published("orders.placed", 10).await.unwrap()[0];
    assert_eq!(moved.key.as_deref(), Some("2"));
    assert!(moved.causation_id.is_some(), "it knows its cause");
}

/// Each with connections of its own.
async fn two_movers_at_once_move_each_once_and_in_order<DB: TestDb>() {
    const MESSAGES: i64 = 300;
    let world = World::<DB>::new().await;
    publish(&world, &(0..MESSAGES).map(|n| (n, 0)).collect::<Vec<_>>()).await;
    let mut movers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let store = Store::new(world.twin(2).await, "test").unwrap();
        movers.spawn(async move { move_all(&store, 7).await });
    }
    let moved: u64 = in_time(movers.join_all()).await.into_iter().sum();
    assert_eq!(moved, 300);
    assert_eq!(keys(&world).await, (0..MESSAGES).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(world.rows("delayed_messages").await, 0);
}

/// The mover that comes while another moves does not wait for it, nor for somebody who is cancelling.
async fn a_mover_waits_for_nobody() {
    let world = World::<Postgres>::new().await;
    let ids = publish(&world, &[(1, 0), (2, 0)]).await;
    let mut cancelling = world.begin().await.unwrap();
    assert!(world.outbox().cancel(&mut cancelling, ids[0]).await.unwrap());
    assert_eq!(in_time(Log::new(&world).move_due(10)).await.unwrap().messages, 1);
    assert_eq!(keys(&world).await, ["2"]);
    cancelling.rollback().await.unwrap();
    assert_eq!(move_all(&world, 10).await, 1);
    assert_eq!(keys(&world).await, ["2", "1"]);
}

/// Killed between the two halves of the move, or around the commit, by a relay that is a process.
async fn a_mover_that_dies_loses_nothing_and_moves_nothing_twice<DB: TestDb>(
    database_url: String,
    world: World<DB>,
) {
    let programs = Programs::at(database_url);
    for (n, point) in (0..).zip(POINTS) {
        publish(&world, &[(n * 10, 0), (n * 10 + 1, 0)]).await;
        let mut relay = programs.start(Program::Relay, Some(point));
        let ended = in_time(relay.wait()).await.unwrap();
        assert_eq!(ended.signal(), Some(9), "killed, not ended, at {point}");
        let (waiting, moved) = (world.rows("delayed_messages").await, world.rows("outbox").await);
        assert_eq!(waiting + moved, 2 * (n + 1), "{waiting} wait and {moved} are moved after {point}");
    }
    let mut relay = programs.start(Program::Relay, None);
    eventually(async || (world.rows("delayed_messages").await == 0).then_some(())).await;
    relay.kill().await.unwrap();
    assert_eq!(keys(&world).await, ["0", "1", "10", "11", "20", "21"]);
}

/// The next borrower of the connection would wait for a second, and be ended after two.
async fn a_refused_mover_leaves_no_short_waits_behind_on_mysql() {
    let world = World::<MySql>::new().await;
    publish(&world, &[(1, 0)]).await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON twinbox_outbox FOR EACH ROW SIGNAL SQLSTATE '45000'";
    sqlx::raw_sql(refuse).execute(world.owner().pool()).await.unwrap();
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(1).connect(world.url()).await.unwrap();
    let waits =
        "SELECT CAST(@@innodb_lock_wait_timeout AS SIGNED), CAST(@@wait_timeout AS SIGNED), @@autocommit = 1";
    let waits = async || sqlx::query_as::<_, (i64, i64, bool)>(waits).fetch_one(&pool).await.unwrap();
    let before = waits().await;
    let store = Store::new(pool.clone(), crate::support::database::SERVICE).unwrap();
    Log::new(&store).move_due(10).await.unwrap_err();
    assert_eq!(waits().await, before);
    assert_eq!(world.rows("delayed_messages").await, 1);
}

async fn a_mover_that_dies_loses_nothing_on_postgres() {
    let world = World::<Postgres>::new().await;
    a_mover_that_dies_loses_nothing_and_moves_nothing_twice(world.url().to_owned(), world).await;
}

async fn a_mover_that_dies_loses_nothing_on_sqlite() {
    let world = World::<Sqlite>::new().await;
    a_mover_that_dies_loses_nothing_and_moves_nothing_twice(format!("sqlite:{}", world.url()), world).await;
}

async fn a_hundred_thousand_waiting_messages_are_not_read_on_sqlite() {
    let world = World::<Sqlite>::new().await;
    let mut conn = world.pool().acquire().await.unwrap();
    for statement in [plans::delayed_next(&world), plans::move_due(&world)] {
        let plan = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", statement.replace('?', "10")));
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(plan).fetch_all(&mut *conn).await.unwrap();
        let plan: Vec<_> = plan.into_iter().map(|(.., step)| step).collect();
        assert!(plan.iter().any(|step| step.contains("INDEX twinbox_delayed_messages_due")), "{plan:?}");
        assert!(plan.iter().all(|step| !step.contains("TEMP B-TREE")), "{plan:?}");
    }
}

cases! {
    all: [
        a_message_is_in_the_log_within_a_second_of_its_time_and_not_before,
        what_waits_comes_out_as_it_was_published,
        messages_are_moved_in_the_order_of_their_times,
        large_messages_are_moved_four_mebibytes_at_a_time,
        what_is_cancelled_in_time_never_comes,
        a_publish_that_is_rolled_back_leaves_nothing,
        what_breaks_a_bound_is_refused_before_it_waits,
        a_handler_publishes_for_later_and_cancels,
        two_movers_at_once_move_each_once_and_in_order,
    ]
    postgres: [a_mover_waits_for_nobody, a_mover_that_dies_loses_nothing_on_postgres]
    mysql: [a_refused_mover_leaves_no_short_waits_behind_on_mysql]
    sqlite: [
        a_mover_that_dies_loses_nothing_on_sqlite,
        a_hundred_thousand_waiting_messages_are_not_read_on_sqlite,
    ]
}
