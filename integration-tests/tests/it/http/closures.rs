//! Operations in one call, for workers and services without HTTP.
use crate::support::{
    cases::cases,
    operations::{SHORT, key, policy},
    stores::{Confirmed, Placed, TestDb, World, effect, sql},
};
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use twinbox::{
    Delivery, Dialect, HandlerError, HandlerResult, Tx, event_handler,
    operation::{OperationError, OperationOutcome},
    transition::{RowInsert, StateColumn, Transition, insert_or_existing},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Refund {
    id: String,
    amount: u64,
}

async fn refund<DB: TestDb>(
    world: &World<DB>,
    name: &str,
    amount: u64,
) -> Result<OperationOutcome<Refund>, OperationError> {
    world
        .operation(&key(name), &amount, &policy(SHORT), async |tx| {
            if amount == 0 {
                return Err(HandlerError::reject("declined"));
            }
            effect::<DB>(tx, i64::try_from(amount)?).await?;
            tx.publish(&Confirmed { n: 1 }).await?;
            Ok(Refund { id: format!("rf_{name}"), amount })
        })
        .await
}

/// R47, R48, D26
async fn it_runs_once_and_says_which_time_it_was<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let made = Refund { id: "rf_a".into(), amount: (1 << 53) + 1 };
    assert_eq!(refund(&world, "a", made.amount).await.unwrap(), OperationOutcome::Committed(made.clone()));
    assert_eq!(refund(&world, "a", made.amount).await.unwrap(), OperationOutcome::Duplicate(made.clone()));
    assert!(matches!(refund(&world, "a", 1 << 53).await, Err(OperationError::Mismatch)));
    assert_eq!((world.effects().await.len(), world.rows("outbox").await), (1, 1));
}

/// R50, D7, t18
async fn what_was_declined_may_be_asked_for_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let Err(OperationError::Failed(error)) = refund(&world, "a", 0).await else { panic!("it was declined") };
    assert_eq!(error.to_string(), "declined");
    assert!(matches!(refund(&world, "a", 5).await, Ok(OperationOutcome::Committed(_))));
    assert!(matches!(refund(&world, "b", 5).await, Err(OperationError::Failed(_))));
    assert_eq!((world.effects().await, world.rows("idempotency_keys").await), (vec![5], 1));
}

/// R49: of many at once one runs
async fn of_many_at_once_one_runs<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let all = futures::future::join_all((0..16).map(|_| refund(&world, "a", 7))).await;
    let committed = all.iter().filter(|one| matches!(one, Ok(OperationOutcome::Committed(_)))).count();
    let others = all.iter().all(|one| matches!(one, Ok(_) | Err(OperationError::InFlight)));
    assert!(committed == 1 && others, "{all:?}");
    assert_eq!(world.effects().await, [7]);
}

#[event_handler(consumer = "tests.projector")]
async fn note_placed<DB: Dialect>(tx: &mut Tx<'_, DB>, placed: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, placed.n).await?)
}

#[event_handler(consumer = "tests.projector")]
async fn note_confirmed<DB: Dialect>(tx: &mut Tx<'_, DB>, confirmed: Delivery<Confirmed>) -> HandlerResult {
    Ok(effect::<DB>(tx, confirmed.n + 100).await?)
}

/// t24: D22. Two events of one thing are two messages.
async fn t24_both_events_of_one_payment_are_handled<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for (name, captures) in [("create", false), ("capture", true)] {
        let made = world
            .operation(&key(name), "payment 1", &policy(SHORT), async |tx| match captures {
                false => Ok(tx.publish(&Placed { n: 1 }).await.map(drop)?),
                true => Ok(tx.publish(&Confirmed { n: 1 }).await.map(drop)?),
            })
            .await;
        assert_eq!(made.unwrap(), OperationOutcome::Committed(()));
    }
    let placed = world.published("orders.placed", 10).await.unwrap();
    let confirmed = world.published("orders.confirmed", 10).await.unwrap();
    for _ in 0..2 {
        world.deliver::<note_placed>(&placed[0]).await;
        world.deliver::<note_confirmed>(&confirmed[0]).await;
    }
    assert_eq!((world.rows("inbox").await, world.effects().await), (2, vec![1, 101]));
}

const PAYMENT: StateColumn = StateColumn::new("payments", "payment_id", "status");

/// t25: R66. Eight who capture one payment under keys of their own.
async fn t25_of_eight_captures_at_once_one_is_applied<DB: TestDb>() {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE payments (payment_id BIGINT PRIMARY KEY, status TEXT NOT NULL)").await;
    world.execute("INSERT INTO payments VALUES (1, 'authorized')").await;
    let capture = async |n: usize| {
        let (key, policy) = (key(&n.to_string()), policy(SHORT));
        let captured = world.operation(&key, "payment 1", &policy, async |tx| {
            let applied = match PAYMENT.transition(tx, 1_i64, &["authorized"], "captured").await? {
                Transition::Applied { .. } => true,
                Transition::AlreadyThere => false,
                other => return Err(format!("{other:?}").into()),
            };
            if applied {
                tx.publish(&Confirmed { n: 1 }).await?;
            }
            Ok(applied)
        });
        captured.await.unwrap().into_inner()
    };
    let applied = futures::future::join_all((0..8).map(capture)).await;
    assert_eq!(applied.iter().filter(|applied| **applied).count(), 1);
    assert_eq!((world.rows("outbox").await, world.rows("idempotency_keys").await), (1, 8));
}

/// R64, D23
async fn a_row_is_made_once_and_read_ever_after<DB: TestDb>() {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE made (id BIGINT PRIMARY KEY, cents BIGINT NOT NULL)").await;
    let make = async |id: i64, cents: i64| {
        let mut tx = world.begin().await.unwrap();
        let insert = sqlx::query(match DB::NAME {
            "MySQL" => "INSERT IGNORE INTO made (id, cents) VALUES (?, ?)",
            _ => "INSERT INTO made (id, cents) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING",
        });
        let existing =
            sqlx::query_as::<DB, (i64,)>(sql::<DB>("SELECT cents FROM made WHERE id = $1")).bind(id);
        let made = insert_or_existing(&mut tx, insert.bind(id).bind(cents), existing).await.unwrap();
        tx.commit().await.unwrap();
        made
    };
    assert_eq!(make(1, 100).await, RowInsert::Inserted);
    assert_eq!(make(1, 200).await, RowInsert::Existing((100,)));
    assert_eq!(make(2, 200).await, RowInsert::Inserted);
    let rows = sqlx::query::<DB>("SELECT cents FROM made ORDER BY id").fetch_all(world.pool()).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<i64, _>(0)).collect::<Vec<_>>(), [100, 200]);
}

cases! {
    all: [
        it_runs_once_and_says_which_time_it_was,
        what_was_declined_may_be_asked_for_again,
        of_many_at_once_one_runs,
        t24_both_events_of_one_payment_are_handled,
        t25_of_eight_captures_at_once_one_is_applied,
        a_row_is_made_once_and_read_ever_after,
    ]
}
