//! Something that a handler needs is away, and our database is not: that is the message's failure, and
//! counts.
use crate::support::{
    cases::cases,
    databases::{PgPool, PgPoolOptions, Postgres},
    stores::{Placed, TestDb, World, failed, placed},
};
use std::time::Duration;
use twinbox::{Delivery, DeliveryOutcome, Dialect, HandlerResult, Tx, event_handler};
use twinbox_testkit::Harness;

#[event_handler(consumer = "tests.elsewhere", max_attempts = 2)]
async fn asks_another<DB: Dialect>(
    other: &PgPool,
    _: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    sqlx::query::<Postgres>("SELECT $1").bind(order.n).execute(other).await?;
    Ok(())
}

/// A replica, a second database: nobody listens there.
async fn an_outage_of_another_database_counts_as_a_failure<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let nobody = PgPoolOptions::new().acquire_timeout(Duration::from_millis(200));
    let nobody = nobody.connect_lazy("postgres://postgres@127.0.0.1:1/postgres").unwrap();
    let harness = Harness::new(&world, nobody);
    let message = placed(1);
    let first = harness.deliver::<asks_another>(&message).await;
    assert!(failed(&first, ""), "{first:?}");
    let second = harness.deliver::<asks_another>(&message).await;
    assert!(matches!(second, DeliveryOutcome::DeadLettered { .. }), "{second:?}");
}

cases! {
    all: [an_outage_of_another_database_counts_as_a_failure]
}
