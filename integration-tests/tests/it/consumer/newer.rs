//! What comes out of order is applied if it is newer than what the row has seen.
use crate::support::{
    cases::cases,
    databases::Postgres,
    stores::{Placed, TestDb, World, placed, sql},
};
use twinbox::{
    Delivery, DeliveryOutcome, Dialect, ErrorKind, HandlerResult, Message, Store, Tx, event_handler,
    transition::{VersionColumn, VersionUpdate},
};
use twinbox_testkit::Harness;

const BALANCE: VersionColumn = VersionColumn::new("balances", "account", "seen");

async fn with_balances<DB: TestDb>() -> World<DB> {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE balances (account BIGINT PRIMARY KEY, seen BIGINT, cents BIGINT)").await;
    world.execute("INSERT INTO balances VALUES (1, NULL, 0), (2, 5, 0)").await;
    world
}

async fn once<DB: Dialect>(store: &Store<DB>, account: i64, version: u64) -> VersionUpdate {
    let mut tx = store.begin().await.unwrap();
    let became = BALANCE.advance(&mut tx, account, version).await.unwrap();
    tx.commit().await.unwrap();
    became
}

async fn only_a_newer_version_is_applied<DB: TestDb>() {
    let world = with_balances::<DB>().await;
    assert_eq!(once(&world, 1, 0).await, VersionUpdate::Applied { previous: None });
    assert_eq!(once(&world, 1, 7).await, VersionUpdate::Applied { previous: Some(0) });
    assert_eq!(once(&world, 1, 7).await, VersionUpdate::Stale { current: 7 });
    assert_eq!(once(&world, 1, 6).await, VersionUpdate::Stale { current: 7 });
    assert_eq!(once(&world, 2, 6).await, VersionUpdate::Applied { previous: Some(5) });
    assert_eq!(once(&world, 3, 1).await, VersionUpdate::NotFound);
    let mut tx = world.begin().await.unwrap();
    let error = BALANCE.advance(&mut tx, 1_i64, u64::MAX).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
}

async fn of_two_at_once_the_newer_one_stays() {
    let world = with_balances::<Postgres>().await;
    for round in 0..20 {
        let (low, high) = (round * 10 + 8, round * 10 + 9);
        let (older, newer) = tokio::join!(once(&world, 1, low), once(&world, 1, high));
        assert!(matches!(newer, VersionUpdate::Applied { .. }), "{newer:?}");
        assert!(
            matches!(older, VersionUpdate::Applied { .. })
                || older == VersionUpdate::Stale { current: i64::try_from(high).unwrap() },
            "{older:?}"
        );
        assert_eq!(
            once(&world, 1, high).await,
            VersionUpdate::Stale { current: i64::try_from(high).unwrap() }
        );
    }
}

#[event_handler(consumer = "tests.newer")]
async fn balance<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    let sequence = order.message().sequence.ok_or("it has a place in the log")?;
    if let VersionUpdate::Applied { .. } = BALANCE.advance(tx, 1_i64, sequence).await? {
        sqlx::query::<DB>(sql::<DB>("UPDATE balances SET cents = $1 WHERE account = 1"))
            .bind(order.n)
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

/// By the sequence that each message has from its log. Fault 28
async fn row_28_an_older_message_after_a_newer_one_changes_nothing<DB: TestDb>() {
    let world = with_balances::<DB>().await;
    let harness = Harness::new(&world, ());
    let message = |n, sequence| Message { sequence: Some(sequence), ..placed(n) };
    for (n, sequence) in [(10, 100), (30, 300), (20, 200), (30, 300), (40, 400), (5, 50)] {
        assert_eq!(harness.deliver::<balance>(&message(n, sequence)).await, DeliveryOutcome::Handled);
    }
    let mut conn = world.pool().acquire().await.unwrap();
    let row = sqlx::query_as::<DB, (i64, i64)>("SELECT seen, cents FROM balances WHERE account = 1");
    assert_eq!(row.fetch_one(&mut *conn).await.unwrap(), (400, 40));
}

cases! {
    all: [only_a_newer_version_is_applied, row_28_an_older_message_after_a_newer_one_changes_nothing]
    postgres: [of_two_at_once_the_newer_one_stays]
}
