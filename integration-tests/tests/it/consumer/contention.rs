//! Deadlocks, serialization failures, lock time-outs and outages are nobody's fault and count as nobody's
//! attempt.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    databases::{MySql, PgPool, Postgres},
    stores::{Placed, TestDb, World, effect, failed, placed, sql_of},
    wait::{Pause, eventually, in_time, pause},
};
use sqlx::{AssertSqlSafe, Pool};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::oneshot;
use twinbox::{
    Consumer, Delivery, DeliveryOutcome, Dialect, Error, ErrorKind, HandlerResult, OwnedTx, RetryPolicy, Tx,
    event_handler,
    ops::{Ops, dead_letters::DeadLetterFilter},
};
use twinbox_testkit::Harness;

/// How often the handler ran.
#[derive(Default)]
struct Runs(AtomicU32);

/// The tokens of a test that wants to know when the handler has its first lock.
struct Crossing {
    runs: Runs,
    locked: Mutex<Option<oneshot::Sender<()>>>,
    /// Whether the handler goes on after the deadlock.
    swallows: bool,
}

#[event_handler(consumer = "tests.deadlock")]
async fn crosses<DB: Dialect>(
    app: &Arc<Crossing>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    app.runs.0.fetch_add(1, SeqCst);
    effect::<DB>(tx, order.n).await?;
    sqlx::raw_sql("UPDATE accounts SET cents = cents + 1 WHERE id = 1").execute(&mut **tx).await?;
    if let Some(locked) = app.locked.lock().unwrap().take() {
        let _ = locked.send(());
    }
    let crossed =
        sqlx::raw_sql("UPDATE accounts SET cents = cents + 1 WHERE id = 2").execute(&mut **tx).await;
    if !app.swallows {
        crossed?;
    }
    effect::<DB>(tx, order.n + 1).await?;
    Ok(())
}

/// Two sessions, and the handler is the victim.
async fn deadlock<DB: TestDb>(swallows: bool) {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE accounts (id INT PRIMARY KEY, cents BIGINT)").await;
    world.execute("CREATE TABLE ballast (n BIGINT)").await;
    world.execute("INSERT INTO accounts VALUES (1, 0), (2, 0)").await;
    let (locked, has_locked) = oneshot::channel();
    let app = Arc::new(Crossing { runs: Runs::default(), locked: Mutex::new(Some(locked)), swallows });
    let mut other = world.owner().begin().await.unwrap();
    // On Postgres it finds no deadlock for an hour, so that the other does. On MySQL the lighter one is the
    // victim.
    let favour = match DB::MODULE {
        "postgres" => "SET LOCAL deadlock_timeout = '1h'".to_owned(),
        _ => format!("INSERT INTO ballast SELECT n FROM {}", DB::numbers(1000)),
    };
    sqlx::raw_sql(sql_of::<DB>(&favour)).execute(&mut *other).await.unwrap();
    let take = async |other: &mut OwnedTx<DB>, id: i64| {
        let take = format!("UPDATE accounts SET cents = 10 WHERE id = {id}");
        in_time(sqlx::raw_sql(sql_of::<DB>(&take)).execute(&mut **other)).await.map(drop).unwrap();
    };
    take(&mut other, 2).await;
    let delivered = tokio::spawn({
        let harness = Harness::new(&world, app.clone());
        async move { harness.deliver::<crosses>(&placed(1)).await }
    });
    in_time(has_locked).await.unwrap();
    take(&mut other, 1).await;
    other.commit().await.unwrap();
    let outcome = in_time(delivered).await.unwrap();
    if swallows {
        // The attempt counts: the handler saw the deadlock, and went on.
        assert!(matches!(outcome, DeliveryOutcome::Retried { .. }), "{outcome:?}");
        assert_eq!(world.left_behind().await, (0, 0, 0));
        return;
    }
    assert_eq!(outcome, DeliveryOutcome::Handled);
    assert_eq!(app.runs.0.load(SeqCst), 2);
    assert_eq!(world.number("SELECT count(*) FROM accounts WHERE cents = 11").await, 2);
    assert_eq!(world.left_behind().await, (1, 2, 0));
    assert_eq!(world.rows("attempts").await, 0);
}

/// Fault 37
async fn row_37_a_deadlock_is_tried_again_at_once_and_not_counted() {
    deadlock::<Postgres>(false).await;
}

/// Fault 37
async fn row_37_a_deadlock_on_mysql_is_tried_again_at_once_and_not_counted() {
    deadlock::<MySql>(false).await;
}

/// The server has rolled the transaction back by itself.
async fn a_swallowed_deadlock_is_not_taken_for_success() {
    deadlock::<MySql>(true).await;
}

/// The same for a transaction of a producer.
async fn a_commit_after_a_swallowed_deadlock_says_so() {
    let world = World::<MySql>::new().await;
    world.execute("CREATE TABLE accounts (id INT PRIMARY KEY, cents BIGINT)").await;
    world.execute("CREATE TABLE ballast (n BIGINT)").await;
    world.execute("INSERT INTO accounts VALUES (1, 0), (2, 0)").await;
    let take = async |tx: &mut OwnedTx<MySql>, id: i64| {
        let take = sqlx::query("UPDATE accounts SET cents = 10 WHERE id = ?").bind(id);
        in_time(take.execute(&mut **tx)).await.map(drop)
    };
    let (mut tx, mut other) = (world.begin().await.unwrap(), world.owner().begin().await.unwrap());
    let ballast = format!("INSERT INTO ballast SELECT n FROM {}", MySql::numbers(1000));
    sqlx::raw_sql(AssertSqlSafe(ballast)).execute(&mut *other).await.unwrap();
    take(&mut other, 2).await.unwrap();
    world.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
    take(&mut tx, 1).await.unwrap();
    let (crossed, taken) = tokio::join!(take(&mut tx, 2), take(&mut other, 1));
    taken.unwrap();
    assert!(Error::from(crossed.unwrap_err()).is_contention());
    effect::<MySql>(&mut tx, 1).await.unwrap();
    let error = tx.commit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TransactionEnded, "{error:?}");
    other.commit().await.unwrap();
    assert_eq!(world.left_behind().await, (0, 0, 0));
}

#[event_handler(consumer = "tests.idle", max_attempts = 2)]
async fn idles(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    sqlx::raw_sql("SET LOCAL idle_in_transaction_session_timeout = '20ms'").execute(&mut **tx).await?;
    pause(Pause::Work, Duration::from_millis(400)).await;
    effect::<Postgres>(tx, order.n).await?;
    Ok(())
}

/// It is the handler's own doing, and would come again for ever. Fault 23
async fn row_23_a_session_that_the_handler_leaves_idle_costs_an_attempt() {
    let world = World::<Postgres>::new().await;
    let order = placed(1);
    let outcome = world.deliver::<idles>(&order).await;
    assert!(failed(&outcome, "25P03") || failed(&outcome, "idle"), "{outcome:?}");
    assert!(matches!(world.deliver::<idles>(&order).await, DeliveryOutcome::DeadLettered { .. }));
}

#[event_handler(consumer = "tests.contention", max_attempts = 1)]
async fn contends(
    (runs, code): &(Runs, &'static str),
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Placed>,
) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    if i64::from(runs.0.fetch_add(1, SeqCst)) < order.n {
        let raise = format!("DO $$ BEGIN RAISE EXCEPTION 'contention' USING ERRCODE = '{code}'; END $$");
        sqlx::raw_sql(sqlx::AssertSqlSafe(raise)).execute(&mut **tx).await?;
    }
    Ok(())
}

/// Fault 37
async fn row_37_contention_is_tried_again_at_once_and_not_counted() {
    let world = World::<Postgres>::new().await;
    for (n, code) in ["40001", "40P01", "55P03"].into_iter().enumerate() {
        let harness = Harness::new(&world, (Runs::default(), code));
        let order = placed(i64::try_from(n).unwrap() + 1);
        assert_eq!(harness.deliver::<contends>(&order).await, DeliveryOutcome::Handled, "{code}");
    }
    assert_eq!(world.effects().await, [1, 2, 3]);
    assert_eq!(world.rows("attempts").await, 0);
}

#[event_handler(consumer = "tests.contention_in_a_savepoint", max_attempts = 1)]
async fn contends_in_a_savepoint(
    runs: &Runs,
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Placed>,
) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    runs.0.fetch_add(1, SeqCst);
    tx.savepoint(async |tx| {
        let deadlock = "DO $$ BEGIN RAISE EXCEPTION 'crossed' USING ERRCODE = '40P01'; END $$";
        sqlx::raw_sql(deadlock).execute(&mut **tx).await?;
        Ok(())
    })
    .await
}

/// The transaction is whole after it, as it is when another connection was in the way. Fault 37
async fn row_37_contention_in_a_savepoint_is_not_counted() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, Runs::default());
    let outcome = harness.deliver::<contends_in_a_savepoint>(&placed(1)).await;
    assert!(matches!(outcome, DeliveryOutcome::Retried { counted: false, .. }), "{outcome:?}");
    assert_eq!((harness.state().0.load(SeqCst), world.rows("attempts").await), (6, 0));
}

/// Fault 37
async fn row_37_contention_that_does_not_pass_is_left_for_later_and_not_counted() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, (Runs::default(), "40001"));
    let outcome = harness.deliver::<contends>(&placed(1_000)).await;
    let DeliveryOutcome::Retried { counted: false, error, .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("contention"), "{error}");
    assert_eq!(harness.state().0.0.load(SeqCst), 6);
    assert_eq!(world.left_behind().await, (0, 0, 0));
    assert_eq!(world.rows("attempts").await, 0);
}

#[event_handler(consumer = "tests.waits-for-a-lock", max_attempts = 1)]
async fn waits(runs: &Arc<Runs>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    runs.0.fetch_add(1, SeqCst);
    sqlx::raw_sql("SET LOCAL lock_timeout = '1ms'; LOCK TABLE effects").execute(&mut **tx).await?;
    Ok(effect::<Postgres>(tx, order.n).await?)
}

/// Fault 37
async fn row_37_a_lock_time_out_is_tried_again_at_once_and_not_counted() {
    let world = World::<Postgres>::new().await;
    let mut other = world.pool().begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE effects").execute(&mut *other).await.unwrap();
    let runs = Arc::new(Runs::default());
    let harness = Harness::new(&world, runs.clone());
    let delivered = tokio::spawn(async move { harness.deliver::<waits>(&placed(1)).await });
    eventually(async || (runs.0.load(SeqCst) >= 2).then_some(())).await;
    other.rollback().await.unwrap();
    assert_eq!(in_time(delivered).await.unwrap(), DeliveryOutcome::Handled);
    assert_eq!(world.rows("attempts").await, 0);
}

/// Writes the same row with its transaction and through the pool, which waits for the end of the transaction.
#[event_handler(consumer = "tests.contends_with_itself", max_attempts = 2)]
async fn contends_with_itself<DB: TestDb>(
    pool: &Pool<DB>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    let mut other = pool.acquire().await?;
    let brief = if DB::ONE_WRITER { "PRAGMA busy_timeout = 50" } else { "SET lock_timeout = '50ms'" };
    sqlx::raw_sql(brief).execute(&mut *other).await?;
    sqlx::raw_sql("INSERT INTO effects (n) VALUES (1)").execute(&mut *other).await?;
    Ok(())
}

/// It would come again for ever.
async fn another_connection_of_the_handler_is_in_its_way<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let harness = Harness::new(&world, world.pool().clone());
    let order = placed(1);
    let outcome = harness.deliver::<contends_with_itself>(&order).await;
    assert!(matches!(outcome, DeliveryOutcome::Retried { counted: true, .. }), "{outcome:?}");
    let outcome = harness.deliver::<contends_with_itself>(&order).await;
    assert!(matches!(outcome, DeliveryOutcome::DeadLettered { .. }), "{outcome:?}");
    assert!(world.effects().await.is_empty());
}

/// Fault 37
async fn row_37_contention_with_another_connection_of_the_handler_costs_an_attempt() {
    another_connection_of_the_handler_is_in_its_way::<Postgres>().await;
}

/// Fault 37
async fn row_37_contention_with_another_connection_of_the_handler_costs_an_attempt_on_sqlite() {
    another_connection_of_the_handler_is_in_its_way::<sqlx::Sqlite>().await;
}

#[event_handler(consumer = "tests.outage", max_attempts = 1)]
async fn loses_its_connection(
    runs: &Runs,
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Placed>,
) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    if runs.0.fetch_add(1, SeqCst) == 0 {
        sqlx::query("SELECT pg_terminate_backend(pg_backend_pid())").execute(&mut **tx).await?;
    }
    Ok(())
}

/// Fault 34
async fn row_34_a_lost_connection_is_not_counted() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, Runs::default());
    let order = placed(1);
    let lost = harness.deliver::<loses_its_connection>(&order).await;
    assert!(matches!(lost, DeliveryOutcome::Retried { counted: false, .. }), "{lost:?}");
    assert_eq!(world.left_behind().await, (0, 0, 0));
    assert_eq!(world.rows("attempts").await + world.rows("dead_letters").await, 0);
    assert_eq!(harness.deliver::<loses_its_connection>(&order).await, DeliveryOutcome::Handled);
}

const AT_ONCE: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(1)]);

#[event_handler(consumer = "tests.ends_its_session", retry = AT_ONCE, max_attempts = 2)]
async fn ends_its_session(
    runs: &Arc<Runs>,
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Placed>,
) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    if order.n == 1 {
        runs.0.fetch_add(1, SeqCst);
        sqlx::query("SELECT pg_terminate_backend(pg_backend_pid())").execute(&mut **tx).await?;
    }
    Ok(())
}

/// It would come again for ever, and a statement that ends the server's process ends all its sessions. Fault
/// 34
async fn row_34_a_message_that_loses_each_of_its_sessions_becomes_a_dead_letter() {
    let world = World::<Postgres>::new().await;
    publish(&world, 1..3).await;
    let runs = Arc::new(Runs::default());
    let consumer = || Consumer::new((*world).clone(), runs.clone()).handler::<ends_its_session>();
    run_until(consumer(), async || world.rows("dead_letters").await == 1).await;
    assert_eq!((runs.0.load(SeqCst), world.effects().await), (5, vec![2]));
    // Nor does its redrive go on for ever.
    let ops = Ops::new(world.owner());
    let groups = ops.dead_letter_groups(&DeadLetterFilter::default()).await.unwrap();
    ops.redrive(&[groups[0].newest.id.clone()], Duration::ZERO).await.unwrap();
    let redriven = "SELECT count(*) FROM twinbox.dead_letters WHERE redrive_at IS NOT NULL";
    run_until(consumer(), async || world.number(redriven).await == 0).await;
    assert_eq!(world.rows("dead_letters").await, 1);
}

#[event_handler(consumer = "tests.loses_its_commit", retry = AT_ONCE, max_attempts = 2)]
async fn loses_its_commit(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, order.n).await?)
}

/// The same when it is the COMMIT that ends the session. Fault 34
async fn row_34_a_message_whose_commit_ends_its_session_becomes_a_dead_letter() {
    let world = World::<Postgres>::new().await;
    world
        .execute(
            "CREATE FUNCTION end_session() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER end_session AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW WHEN (NEW.n = 1) EXECUTE FUNCTION end_session()",
        )
        .await;
    publish(&world, 1..3).await;
    let consumer = Consumer::new((*world).clone(), ()).handler::<loses_its_commit>();
    run_until(consumer, async || world.rows("dead_letters").await == 1).await;
    assert_eq!(world.effects().await, [2]);
}

#[event_handler(consumer = "tests.no-pool", max_attempts = 1)]
async fn needs_the_pool(pool: &PgPool, _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    pool.acquire().await?;
    Ok(())
}

/// Fault 38
async fn row_38_a_pool_that_is_closed_is_an_outage() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, world.twin(1).await);
    world.close().await;
    assert_eq!(harness.deliver::<needs_the_pool>(&placed(1)).await, DeliveryOutcome::Unavailable);
}

cases! {
    postgres: [
        row_37_a_deadlock_is_tried_again_at_once_and_not_counted,
        row_23_a_session_that_the_handler_leaves_idle_costs_an_attempt,
        row_37_contention_is_tried_again_at_once_and_not_counted,
        row_37_contention_in_a_savepoint_is_not_counted,
        row_37_contention_that_does_not_pass_is_left_for_later_and_not_counted,
        row_37_a_lock_time_out_is_tried_again_at_once_and_not_counted,
        row_37_contention_with_another_connection_of_the_handler_costs_an_attempt,
        row_34_a_lost_connection_is_not_counted,
        row_34_a_message_that_loses_each_of_its_sessions_becomes_a_dead_letter,
        row_34_a_message_whose_commit_ends_its_session_becomes_a_dead_letter,
        row_38_a_pool_that_is_closed_is_an_outage,
    ]
    mysql: [
        row_37_a_deadlock_on_mysql_is_tried_again_at_once_and_not_counted,
        a_swallowed_deadlock_is_not_taken_for_success,
        a_commit_after_a_swallowed_deadlock_says_so,
    ]
    sqlite: [row_37_contention_with_another_connection_of_the_handler_costs_an_attempt_on_sqlite]
}
