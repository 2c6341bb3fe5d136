//! Savepoints, ours and sqlx's, finished, failed, dropped and leaked.
use super::still_works;
use crate::support::{
    cases::cases,
    databases::Postgres,
    stores::{Confirmed, Placed, TestDb, World, effect, failed, placed},
};
use sqlx::Connection;
use std::time::Duration;
use twinbox::{Delivery, DeliveryOutcome, Dialect, HandlerResult, Tx, event_handler};

/// Tries twice in savepoints; the first try fails when told to.
#[event_handler(consumer = "tests.savepoint")]
async fn second_try<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    for attempt in 0..2 {
        let tried = tx
            .savepoint(async |tx| {
                effect::<DB>(tx, attempt).await?;
                tx.publish(&Confirmed { n: 0 }).await?;
                // Fails in the database, which on Postgres aborts all that is not in a savepoint.
                if order.n == 1 && attempt == 0 {
                    effect::<DB>(tx, attempt).await?;
                }
                Ok(())
            })
            .await;
        match tried {
            Err(error) if error.is_unique_violation() => continue,
            result => result?,
        }
        break;
    }
    tx.publish(&Confirmed { n: 0 }).await?;
    Ok(())
}

/// What was undone does not count in the ids of what follows.
async fn a_failed_savepoint_undoes_only_itself<DB: TestDb>() {
    let (smooth, rough) = (World::<DB>::new().await, World::<DB>::new().await);
    let (first, mut again) = (placed(0), placed(1));
    again.id = first.id.clone();
    assert_eq!(smooth.deliver::<second_try>(&first).await, DeliveryOutcome::Handled);
    assert_eq!(rough.deliver::<second_try>(&again).await, DeliveryOutcome::Handled);
    assert_eq!(rough.left_behind().await, (1, 1, 2));
    let ids = async |world: &World<DB>| -> Vec<String> {
        world.published("orders.confirmed", 10).await.unwrap().into_iter().map(|m| m.id).collect()
    };
    assert_eq!(ids(&smooth).await, ids(&rough).await);
}

#[event_handler(consumer = "tests.nested")]
async fn nests<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    let n = order.n;
    let inner = tx
        .savepoint(async |tx| {
            effect::<DB>(tx, n).await?;
            let undone: HandlerResult = tx
                .savepoint(async |tx| {
                    effect::<DB>(tx, n + 1).await?;
                    tx.savepoint(async |tx| Ok(effect::<DB>(tx, n + 2).await?)).await?;
                    Err("undone".into())
                })
                .await;
            undone.unwrap_err();
            tx.savepoint(async |tx| Ok(effect::<DB>(tx, n + 3).await?)).await?;
            Ok(n + 4)
        })
        .await?;
    effect::<DB>(tx, inner).await?;
    Ok(())
}

async fn savepoints_nest<DB: TestDb>() {
    let world = World::<DB>::new().await;
    assert_eq!(world.deliver::<nests>(&placed(10)).await, DeliveryOutcome::Handled);
    assert_eq!(world.effects().await, [10, 13, 14]);
}

#[event_handler(consumer = "tests.dropped-savepoint")]
async fn drops_a_savepoint<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    let (inside, entered) = tokio::sync::oneshot::channel();
    let slow = tx.savepoint(async |tx| {
        effect::<DB>(tx, order.n).await?;
        let _ = inside.send(());
        std::future::pending().await
    });
    let never: Option<HandlerResult> = tokio::select! {
        result = slow => Some(result),
        _ = entered => None,
    };
    assert!(never.is_none());
    effect::<DB>(tx, order.n + 1).await?;
    Ok(())
}

async fn a_savepoint_dropped_inside_its_body_fails_the_attempt<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let outcome = world.deliver::<drops_a_savepoint>(&placed(1)).await;
    assert!(failed(&outcome, "dropped"), "{outcome:?}");
    assert_eq!(world.left_behind().await, (0, 0, 0));
    still_works(&world).await;
}

#[event_handler(consumer = "tests.savepoint-dropped-at-times")]
async fn drops_a_savepoint_in_time<DB: Dialect>(
    late: &Duration,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    let quick = tx.savepoint(async |tx| Ok(effect::<DB>(tx, order.n).await?));
    let dropped = tokio::time::timeout(*late, quick).await.is_err();
    effect::<DB>(tx, order.n + 1_000).await?;
    if dropped { Ok(()) } else { Err(twinbox::HandlerError::reject("too late to drop it")) }
}

/// Wherever it is dropped, nothing escapes and the attempt fails.
async fn a_savepoint_dropped_at_any_time_lets_nothing_escape<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for n in 0..60_u32 {
        let harness = twinbox_testkit::Harness::new(&world, Duration::from_micros(u64::from(n) * 20));
        let outcome = harness.deliver::<drops_a_savepoint_in_time>(&placed(n.into())).await;
        match &outcome {
            DeliveryOutcome::DeadLettered { error } => assert_eq!(error, "too late to drop it"),
            outcome => assert!(failed(outcome, ""), "{outcome:?}"),
        }
    }
    assert!(world.effects().await.is_empty());
    still_works(&world).await;
}

/// sqlx's own savepoint, dropped while it begins, rolls the whole transaction back, and what follows runs
/// outside any.
#[event_handler(consumer = "tests.dropped-sqlx-savepoint")]
async fn drops_sqlx_savepoint(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    tokio::select! {
        biased;
        _ = Connection::begin(&mut **tx) => {}
        () = std::future::ready(()) => {}
    }
    let _ = effect::<Postgres>(tx, order.n).await;
    Ok(())
}

async fn an_sqlx_savepoint_dropped_while_it_begins_is_noticed() {
    let world = World::<Postgres>::new().await;
    for n in 0..100 {
        match world.deliver::<drops_sqlx_savepoint>(&placed(n)).await {
            // The server was fast and the savepoint had begun when it was dropped.
            DeliveryOutcome::Handled => {}
            outcome => {
                assert!(failed(&outcome, "COMMIT or ROLLBACK"), "{outcome:?}");
                assert_eq!(world.rows("inbox").await, n, "no claim is left behind");
                return still_works(&world).await;
            }
        }
    }
    panic!("the savepoint was never dropped while it began");
}

#[event_handler(consumer = "tests.leaked-sqlx-savepoint")]
async fn leaks_an_sqlx_savepoint<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    std::mem::forget(Connection::begin(&mut **tx).await?);
    effect::<DB>(tx, order.n).await?;
    Ok(())
}

/// sqlx's commit would release the leaked savepoint, commit nothing and say `Ok`.
async fn a_leaked_sqlx_savepoint_is_not_taken_for_success<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let outcome = world.deliver::<leaks_an_sqlx_savepoint>(&placed(1)).await;
    assert!(failed(&outcome, "savepoint"), "{outcome:?}");
    assert_eq!(world.left_behind().await, (0, 0, 0));
    still_works(&world).await;
}

#[event_handler(consumer = "tests.sqlx-savepoint")]
async fn uses_sqlx_savepoints(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    let mut nested = Connection::begin(&mut **tx).await?;
    effect::<Postgres>(&mut nested, order.n).await?;
    nested.commit().await?;
    let mut nested = Connection::begin(&mut **tx).await?;
    effect::<Postgres>(&mut nested, order.n + 1).await?;
    nested.rollback().await?;
    Ok(())
}

async fn sqlx_savepoints_work_inside() {
    let world = World::<Postgres>::new().await;
    assert_eq!(world.deliver::<uses_sqlx_savepoints>(&placed(1)).await, DeliveryOutcome::Handled);
    assert_eq!(world.effects().await, [1]);
}

cases! {
    all: [
        a_failed_savepoint_undoes_only_itself,
        savepoints_nest,
        a_savepoint_dropped_inside_its_body_fails_the_attempt,
        a_savepoint_dropped_at_any_time_lets_nothing_escape,
        a_leaked_sqlx_savepoint_is_not_taken_for_success,
    ]
    postgres: [an_sqlx_savepoint_dropped_while_it_begins_is_noticed, sqlx_savepoints_work_inside]
}
