//! A handler that ends, loses or spoils its transaction leaves nothing behind: no claim, no effect, no event,
//! and connections that are fit for the next one.
mod claims;
#[cfg(feature = "mysql")]
mod next;
#[cfg(feature = "mysql")]
mod partly_committed;
mod savepoints;

use crate::support::{
    cases::cases,
    databases::{MySql, Postgres},
    stores::{Confirmed, Placed, TestDb, World, effect, failed, placed},
};
use sqlx::Sqlite;
use std::time::Duration;
use twinbox::{
    Delivery, DeliveryOutcome, Dialect, HandlerResult, Message, Tx, consumer::EventHandler, event_handler,
};
use twinbox_testkit::Harness;

#[event_handler(consumer = "tests.harmless")]
async fn harmless<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    Ok(())
}

/// Every connection of the pool can still run a handler.
async fn still_works<DB: TestDb>(world: &World<DB>) {
    let before = world.effects().await.len();
    for n in 0..20 {
        assert_eq!(world.deliver::<harmless>(&placed(100 + n)).await, DeliveryOutcome::Handled);
    }
    assert_eq!(world.effects().await.len(), before + 20);
}

#[event_handler(consumer = "tests.swallow")]
async fn swallows<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    let _ = effect::<DB>(tx, order.n).await; // a duplicate key: aborts the transaction on Postgres
    Ok(())
}

/// sqlx's `commit()` of an aborted transaction returns `Ok`: the message would be acked and gone.
async fn a_swallowed_error_is_not_taken_for_success<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let outcome = world.deliver::<swallows>(&placed(1)).await;
    if DB::CAPABILITIES.errors_abort {
        assert!(failed(&outcome, "nothing can be committed"), "{outcome:?}");
        assert_eq!(world.left_behind().await, (0, 0, 0));
    } else {
        assert_eq!(outcome, DeliveryOutcome::Handled);
        assert_eq!(world.left_behind().await, (1, 1, 0));
    }
}

#[event_handler(consumer = "tests.commit")]
async fn commits_at_first<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    if order.attempt() == 1 {
        sqlx::raw_sql("COMMIT").execute(&mut **tx).await?;
    }
    effect::<DB>(tx, order.n + 1).await?;
    Ok(())
}

/// A claim that the handler's own COMMIT left behind would make the redelivery a duplicate. MySQL lets a
/// handler commit what it has written so far: the message does not do it again. Fault 24
async fn row_24_a_raw_commit_leaves_nothing_half_handled<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = placed(1);
    let outcome = world.deliver::<commits_at_first>(&order).await;
    assert!(failed(&outcome, ""), "{outcome:?}");
    if DB::CAPABILITIES.refuses_commit {
        assert_eq!(world.left_behind().await, (0, 0, 0));
        assert_eq!(world.deliver::<commits_at_first>(&order).await, DeliveryOutcome::Handled);
        assert_eq!(world.left_behind().await, (1, 2, 0));
    } else {
        assert_eq!(world.effects().await, [1]);
        is_dead_at_the_next_delivery::<DB, commits_at_first>(&world, &order).await;
        assert_eq!(world.effects().await, [1]);
    }
    still_works(&world).await;
}

async fn is_dead_at_the_next_delivery<DB: TestDb, H: EventHandler<DB, ()>>(
    world: &World<DB>,
    order: &Message,
) {
    let outcome = world.deliver::<H>(order).await;
    let DeliveryOutcome::DeadLettered { error } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("committed by itself"), "{error}");
    assert_eq!(world.deliver::<H>(order).await, DeliveryOutcome::Duplicate);
}

#[event_handler(consumer = "tests.commit-again")]
async fn commits_and_begins<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    let _ = sqlx::raw_sql("COMMIT").execute(&mut **tx).await;
    let _ = sqlx::raw_sql("BEGIN").execute(&mut **tx).await;
    effect::<DB>(tx, order.n + 1).await?;
    Ok(())
}

/// Fault 24
async fn row_24_a_raw_commit_and_begin_is_noticed<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let outcome = world.deliver::<commits_and_begins>(&placed(1)).await;
    assert!(failed(&outcome, "COMMIT"), "{outcome:?}");
    match DB::CAPABILITIES.refuses_commit {
        true => assert_eq!(world.left_behind().await, (0, 0, 0)),
        // The second effect, after the COMMIT, is rolled back.
        false => assert_eq!(world.effects().await, [1]),
    }
    still_works(&world).await;
}

/// Fault 24
async fn row_24_a_statement_that_commits_by_itself_is_noticed() {
    let world = World::<MySql>::new().await;
    let order = placed(1);
    let outcome = world.deliver::<makes_a_table>(&order).await;
    assert!(failed(&outcome, "CREATE TABLE"), "{outcome:?}");
    assert_eq!(world.effects().await, [1]);
    is_dead_at_the_next_delivery::<MySql, makes_a_table>(&world, &order).await;
    still_works(&world).await;
}

#[event_handler(consumer = "tests.makes-a-table")]
async fn makes_a_table(tx: &mut Tx<'_, MySql>, order: Delivery<Placed>) -> HandlerResult {
    effect::<MySql>(tx, order.n).await?;
    sqlx::raw_sql("CREATE TABLE another (n BIGINT)").execute(&mut **tx).await?;
    Ok(())
}

#[event_handler(consumer = "tests.rollback")]
async fn rolls_back<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut **tx).await?;
    Ok(())
}

/// Fault 24
async fn row_24_a_raw_rollback_is_noticed<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let outcome = world.deliver::<rolls_back>(&placed(1)).await;
    assert!(failed(&outcome, "ROLLBACK"), "{outcome:?}");
    assert_eq!(world.left_behind().await, (0, 0, 0));
    still_works(&world).await;
}

#[event_handler(consumer = "tests.rollback-and-write")]
async fn writes_after_rollback<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    sqlx::raw_sql("ROLLBACK").execute(&mut **tx).await?;
    effect::<DB>(tx, order.n).await?;
    Ok(())
}

/// What is written outside any transaction is beyond the guard's reach on Postgres. The attempt fails, so
/// that it does not stay unnoticed.
async fn a_write_after_a_raw_rollback_stays_on_postgres() {
    let world = World::<Postgres>::new().await;
    let outcome = world.deliver::<writes_after_rollback>(&placed(1)).await;
    assert!(failed(&outcome, "ROLLBACK"), "{outcome:?}");
    assert_eq!(world.left_behind().await, (0, 1, 0));
}

async fn a_write_after_a_raw_rollback_is_refused_on_sqlite() {
    let world = World::<Sqlite>::new().await;
    let outcome = world.deliver::<writes_after_rollback>(&placed(1)).await;
    assert!(failed(&outcome, ""), "{outcome:?}");
    assert_eq!(world.left_behind().await, (0, 0, 0));
    still_works(&world).await;
}

#[event_handler(consumer = "tests.swap")]
async fn swaps<DB: Dialect>(
    pool: &sqlx::Pool<DB>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    let mut mine = pool.acquire().await?;
    std::mem::swap(&mut **tx, &mut *mine); // `Tx` cannot be swapped, but what it dereferences to can
    sqlx::raw_sql("BEGIN").execute(&mut **tx).await?;
    effect::<DB>(tx, order.n).await?;
    Ok(())
}

async fn a_swapped_connection_is_noticed() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, world.twin(1).await);
    let outcome = harness.deliver::<swaps>(&placed(1)).await;
    assert!(failed(&outcome, "another connection"), "{outcome:?}");
    // The handler's transaction is open in the connection that the swap gave to the other pool.
    harness.state().close().await;
    assert_eq!(world.left_behind().await, (0, 0, 0));
    still_works(&world).await;
}

#[event_handler(consumer = "tests.constraints")]
async fn checks_all_constraints(tx: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    sqlx::raw_sql("SET CONSTRAINTS ALL IMMEDIATE").execute(&mut **tx).await?;
    Ok(())
}

#[event_handler(consumer = "tests.constraints")]
async fn checks_its_constraint(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    sqlx::raw_sql("SET CONSTRAINTS one_or_more IMMEDIATE").execute(&mut **tx).await?;
    effect::<Postgres>(tx, order.n).await?;
    Ok(())
}

/// The price of refusing a raw COMMIT: a handler names the constraints that it wants checked early.
async fn set_constraints_all_is_taken_for_a_commit_and_named_ones_are_not() {
    let world = World::<Postgres>::new().await;
    world
        .execute(
            "CREATE FUNCTION positive() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN ASSERT NEW.n > 0, 'not positive'; RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER one_or_more AFTER INSERT ON effects
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION positive()",
        )
        .await;
    let outcome = world.deliver::<checks_all_constraints>(&placed(1)).await;
    assert!(failed(&outcome, "must not COMMIT"), "{outcome:?}");
    let outcome = world.deliver::<checks_its_constraint>(&placed(0)).await;
    assert!(failed(&outcome, "not positive"), "{outcome:?}");
    assert_eq!(world.deliver::<checks_its_constraint>(&placed(1)).await, DeliveryOutcome::Handled);
    assert_eq!(world.left_behind().await, (1, 1, 0));
}

/// SQLite itself ends a transaction at times: `RAISE(ROLLBACK)`, a full disk. Fault 42
async fn a_rollback_by_sqlite_itself_spoils_no_connection() {
    let world = World::<Sqlite>::new().await;
    world.execute(UNLUCKY).await;
    let outcome = world.deliver::<harmless>(&placed(13)).await;
    assert!(failed(&outcome, "unlucky"), "{outcome:?}");
    still_works(&world).await;
}

/// The same in a transaction of the application's own, which may be dropped, rolled back or committed.
/// Fault 42
async fn a_rollback_by_sqlite_itself_spoils_no_connection_of_begin() {
    let world = World::<Sqlite>::new().await;
    world.execute(UNLUCKY).await;
    for end in 0..12 {
        let mut tx = world.begin().await.unwrap();
        effect::<Sqlite>(&mut tx, 13).await.unwrap_err();
        match end % 3 {
            0 => drop(tx),
            1 => drop(tx.rollback().await),
            _ => drop(tx.commit().await.unwrap_err()),
        }
    }
    still_works(&world).await;
    assert_eq!(world.left_behind().await, (20, 20, 20));
}

const UNLUCKY: &str = "CREATE TRIGGER strict BEFORE INSERT ON effects WHEN NEW.n = 13
    BEGIN SELECT RAISE(ROLLBACK, 'unlucky'); END";

/// Fault 3
async fn a_delivery_dropped_half_way_spoils_no_connection<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for n in 0..50 {
        let late = Duration::from_micros(n * 60);
        let _ = tokio::time::timeout(late, world.deliver::<harmless>(&placed(n.cast_signed()))).await;
    }
    world.execute("DELETE FROM effects").await;
    still_works(&world).await;
}

#[event_handler(consumer = "tests.ended-and-dropped")]
async fn ends_and_hangs(tx: &mut Tx<'_, Sqlite>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Sqlite>(tx, order.n).await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut **tx).await?;
    std::future::pending().await
}

/// Fault 3
async fn a_delivery_dropped_after_its_transaction_ended_spoils_no_connection() {
    let world = World::<Sqlite>::new().await;
    for n in 0..10 {
        let late = Duration::from_millis(20);
        tokio::time::timeout(late, world.deliver::<ends_and_hangs>(&placed(n))).await.unwrap_err();
    }
    still_works(&world).await;
}

cases! {
    all: [
        row_24_a_raw_commit_leaves_nothing_half_handled,
        a_swallowed_error_is_not_taken_for_success,
        a_delivery_dropped_half_way_spoils_no_connection,
        row_24_a_raw_commit_and_begin_is_noticed,
        row_24_a_raw_rollback_is_noticed,
    ]
    postgres: [
        a_write_after_a_raw_rollback_stays_on_postgres,
        a_swapped_connection_is_noticed,
        set_constraints_all_is_taken_for_a_commit_and_named_ones_are_not,
    ]
    mysql: [
        row_24_a_statement_that_commits_by_itself_is_noticed,
    ]
    sqlite: [
        a_write_after_a_raw_rollback_is_refused_on_sqlite,
        a_rollback_by_sqlite_itself_spoils_no_connection,
        a_rollback_by_sqlite_itself_spoils_no_connection_of_begin,
        a_delivery_dropped_after_its_transaction_ended_spoils_no_connection,
    ]
}
