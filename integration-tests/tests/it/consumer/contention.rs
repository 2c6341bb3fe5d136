//! Deadlocks, serialization failures, lock time-outs and outages are nobody's fault and count as nobody's
//! attempt.
use crate::support::{
    cases::cases,
    stores::{Placed, World, effect, placed},
    wait::{eventually, in_time},
};
use sqlx::{PgPool, Postgres};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering::SeqCst},
};
use tokio::sync::oneshot;
use twinbox::{Delivery, DeliveryOutcome, HandlerResult, Tx, event_handler};
use twinbox_testkit::Harness;

/// How often the handler ran.
#[derive(Default)]
struct Runs(AtomicU32);

/// The tokens of a test that wants to know when the handler has its first lock.
struct Crossing {
    runs: Runs,
    locked: Mutex<Option<oneshot::Sender<()>>>,
}

#[event_handler(consumer = "tests.deadlock")]
async fn crosses(app: &Arc<Crossing>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    app.runs.0.fetch_add(1, SeqCst);
    effect::<Postgres>(tx, order.n).await?;
    sqlx::query("UPDATE accounts SET cents = cents + 1 WHERE id = 1").execute(&mut **tx).await?;
    if let Some(locked) = app.locked.lock().unwrap().take() {
        let _ = locked.send(());
    }
    sqlx::query("UPDATE accounts SET cents = cents + 1 WHERE id = 2").execute(&mut **tx).await?;
    Ok(())
}

/// Two sessions, and the handler is the victim. Fault 37
async fn row_37_a_deadlock_is_tried_again_at_once_and_not_counted() {
    let world = World::<Postgres>::new().await;
    world
        .execute(
            "CREATE TABLE accounts (id int PRIMARY KEY, cents int); INSERT INTO accounts VALUES (1, \
                   0), (2, 0)",
        )
        .await;
    let (locked, has_locked) = oneshot::channel();
    let app = Arc::new(Crossing { runs: Runs::default(), locked: Mutex::new(Some(locked)) });
    // It finds no deadlock for an hour, so that the other does.
    let mut other = world.pool().begin().await.unwrap();
    sqlx::raw_sql("SET LOCAL deadlock_timeout = '1h'; UPDATE accounts SET cents = 10 WHERE id = 2")
        .execute(&mut *other)
        .await
        .unwrap();
    let delivered = tokio::spawn({
        let harness = Harness::new(&world, app.clone());
        async move { harness.deliver::<crosses>(&placed(1)).await }
    });
    in_time(has_locked).await.unwrap();
    in_time(sqlx::raw_sql("UPDATE accounts SET cents = 10 WHERE id = 1").execute(&mut *other)).await.unwrap();
    other.commit().await.unwrap();
    assert_eq!(in_time(delivered).await.unwrap(), DeliveryOutcome::Handled);
    assert_eq!(app.runs.0.load(SeqCst), 2);
    let cents: Vec<i32> =
        sqlx::query_scalar("SELECT cents FROM accounts").fetch_all(world.pool()).await.unwrap();
    assert_eq!(cents, [11, 11]);
    assert_eq!(world.left_behind().await, (1, 1, 0));
    assert_eq!(world.rows("attempts").await, 0);
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

#[event_handler(consumer = "tests.no-pool", max_attempts = 1)]
async fn needs_the_pool(pool: &PgPool, _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    pool.acquire().await?;
    Ok(())
}

/// Fault 38
async fn row_38_a_pool_that_is_closed_is_an_outage() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, world.twin(1).await);
    world.pool().close().await;
    assert_eq!(harness.deliver::<needs_the_pool>(&placed(1)).await, DeliveryOutcome::Unavailable);
}

cases! {
    postgres: [
        row_37_a_deadlock_is_tried_again_at_once_and_not_counted,
        row_37_contention_is_tried_again_at_once_and_not_counted,
        row_37_contention_that_does_not_pass_is_left_for_later_and_not_counted,
        row_37_a_lock_time_out_is_tried_again_at_once_and_not_counted,
        row_34_a_lost_connection_is_not_counted,
        row_38_a_pool_that_is_closed_is_an_outage,
    ]
}
