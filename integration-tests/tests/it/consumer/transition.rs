//! Guarded transitions: the effect of an event that came twice, late or out of order is planned once or not
//! at all.
use crate::support::{
    cases::cases,
    databases::Postgres,
    postgres::waits_for_a_lock,
    stores::{Placed, TestDb, World, effect, placed, sql},
};
use twinbox::{
    Delivery, DeliveryOutcome, Dialect, ErrorKind, HandlerError, HandlerResult, InTransaction, Store, Tx,
    event_handler,
    transition::{StateColumn, Transition},
};

const PAYMENT: StateColumn = StateColumn::new("payments", "id", "status");
/// Each with those it may be reached from.
const LIFECYCLE: [(&str, &[&str]); 4] = [
    ("created", &[]),
    ("authorized", &["created"]),
    ("captured", &["created", "authorized"]),
    ("refunded", &["captured"]),
];

async fn with_payments<DB: TestDb>(states: &[&str]) -> World<DB> {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE payments (id BIGINT PRIMARY KEY, status TEXT)").await;
    for (id, state) in (1..).zip(states) {
        let insert = sqlx::query::<DB>(sql::<DB>("INSERT INTO payments VALUES ($1, $2)"))
            .bind(id)
            .bind((*state).to_owned());
        insert.execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
    }
    world
}

async fn state<DB: TestDb>(world: &World<DB>, id: i64) -> String {
    let query =
        sqlx::query_scalar::<DB, String>(sql::<DB>("SELECT status FROM payments WHERE id = $1")).bind(id);
    query.fetch_one(&mut *world.pool().acquire().await.unwrap()).await.unwrap()
}

async fn once<DB: Dialect>(store: &Store<DB>, id: i64, from: &[&str], to: &str) -> Transition {
    let mut tx = store.begin().await.unwrap();
    let became = PAYMENT.transition(&mut tx, id, from, to).await.unwrap();
    tx.commit().await.unwrap();
    became
}

/// R66, t25
async fn every_state_to_every_state<DB: TestDb>() {
    let of_each = |(current, _)| LIFECYCLE.map(|(to, from)| (current, to, from));
    let transitions = Vec::from_iter(LIFECYCLE.into_iter().flat_map(of_each));
    // For each of them a row, and one beside it.
    let states = Vec::from_iter(transitions.iter().flat_map(|(current, ..)| [*current; 2]));
    let world = with_payments::<DB>(&states).await;
    for (id, (current, to, from)) in (1_i64..).step_by(2).zip(transitions) {
        let became = once(&world, id, from, to).await;
        let expected = match (current == to, from.contains(&current)) {
            (true, _) => Transition::AlreadyThere,
            (_, true) => Transition::Applied { previous: current.to_owned() },
            (_, false) => Transition::Illegal { current: current.to_owned() },
        };
        let after = if matches!(expected, Transition::Applied { .. }) { to } else { current };
        assert_eq!((&became, state(&world, id).await.as_str()), (&expected, after), "{current} to {to}");
        assert_eq!(state(&world, id + 1).await, current, "no other row");
    }
}

async fn a_row_that_is_not_there<DB: TestDb>() {
    let world = with_payments::<DB>(&["created"]).await;
    assert_eq!(once(&world, 9, &["created"], "captured").await, Transition::NotFound);
    assert_eq!(state(&world, 1).await, "created");
}

/// t25
async fn of_eight_captures_at_once_one_is_applied<DB: TestDb>() {
    let world = with_payments::<DB>(&["authorized"]).await;
    let captures = (0..8).map(|_| once(&world, 1, &["authorized"], "captured"));
    let mut became = futures::future::join_all(captures).await;
    became.retain(|transition| *transition != Transition::AlreadyThere);
    assert_eq!(became, [Transition::Applied { previous: "authorized".into() }]);
    assert_eq!(state(&world, 1).await, "captured");
}

/// What was read before another's commit would be applied a second time.
async fn who_waits_for_the_row_finds_it_moved() {
    let world = with_payments::<Postgres>(&["authorized"]).await;
    let mut first = world.begin().await.unwrap();
    let became = PAYMENT.transition(&mut first, 1_i64, &["authorized"], "captured").await.unwrap();
    assert_eq!(became, Transition::Applied { previous: "authorized".into() });
    let commit = async {
        waits_for_a_lock(world.pool()).await;
        first.commit().await.unwrap();
    };
    let (second, ()) = tokio::join!(once(&world, 1, &["authorized"], "captured"), commit);
    assert_eq!(second, Transition::AlreadyThere);
}

#[event_handler(consumer = "tests.capture")]
async fn capture<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    match PAYMENT.transition(tx, order.n, &["created", "authorized"], "captured").await? {
        Transition::Applied { .. } => Ok(effect::<DB>(tx, order.n).await?),
        Transition::AlreadyThere => Ok(()),
        other => Err(HandlerError::reject(format!("cannot capture: {other:?}"))),
    }
}

/// Two events with two ids, as a vendor sends them that tells the same thing twice. D22
async fn two_events_of_one_fact_have_one_effect<DB: TestDb>() {
    let world = with_payments::<DB>(&["authorized", "refunded"]).await;
    assert_eq!(world.deliver::<capture>(&placed(1)).await, DeliveryOutcome::Handled);
    assert_eq!(world.deliver::<capture>(&placed(1)).await, DeliveryOutcome::Handled);
    assert_eq!(world.effects().await, [1]);
    let late = world.deliver::<capture>(&placed(2)).await;
    let error = "cannot capture: Illegal { current: \"refunded\" }".to_owned();
    assert_eq!(late, DeliveryOutcome::DeadLettered { error });
    assert_eq!(state(&world, 2).await, "refunded");
}

async fn refused<DB: Dialect>(tx: &mut impl InTransaction<DB>) -> String {
    let error = PAYMENT.transition(tx, 1_i64, &["created"], "captured").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    error.to_string()
}

async fn a_table_that_cannot_tell_is_refused<DB: TestDb>() {
    let world = with_payments::<DB>(&[]).await;
    world.execute("INSERT INTO payments VALUES (1, NULL)").await;
    assert_eq!(
        refused(&mut world.begin().await.unwrap()).await,
        "a row of payments has no state: status is NULL"
    );
    world.execute("DROP TABLE payments").await;
    world.execute("CREATE TABLE payments (id BIGINT, status TEXT)").await;
    world.execute("INSERT INTO payments VALUES (1, 'created'), (1, 'created')").await;
    assert_eq!(refused(&mut world.begin().await.unwrap()).await, "id is not unique in payments");
    assert_eq!(state(&world, 1).await, "created", "dropped, it rolled back");
}

async fn the_column_is_an_enum_of_postgres() {
    const ORDER: StateColumn =
        StateColumn::new("shop.\"order\"", "id", "state").state_type("shop.order_state");
    let world = World::<Postgres>::new().await;
    world
        .execute(
            "CREATE SCHEMA shop; CREATE TYPE shop.order_state AS ENUM ('open', 'paid');
        CREATE TABLE shop.\"order\" (id text PRIMARY KEY, state shop.order_state NOT NULL);
        INSERT INTO shop.\"order\" VALUES ('o-1', 'open')",
        )
        .await;
    let mut tx = world.pool().begin().await.unwrap();
    let became = ORDER.transition(&mut tx, "o-1", &["open"], "paid").await.unwrap();
    assert_eq!(became, Transition::Applied { previous: "open".into() });
    assert_eq!(ORDER.transition(&mut tx, "o-1", &["open"], "paid").await.unwrap(), Transition::AlreadyThere);
    tx.rollback().await.unwrap();
    let mut tx = world.pool().begin().await.unwrap();
    let became = ORDER.transition(&mut tx, "o-1", &["paid"], "open").await.unwrap();
    assert_eq!(became, Transition::AlreadyThere, "what was rolled back is open again");
    tx.rollback().await.unwrap();
}

cases! {
    all: [
        every_state_to_every_state,
        a_row_that_is_not_there,
        of_eight_captures_at_once_one_is_applied,
        two_events_of_one_fact_have_one_effect,
        a_table_that_cannot_tell_is_refused,
    ]
    postgres: [who_waits_for_the_row_finds_it_moved, the_column_is_an_enum_of_postgres]
}
