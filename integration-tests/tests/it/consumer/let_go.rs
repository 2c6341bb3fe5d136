//! The transaction of a handler that ends in another way than by its result, over TLS as all sessions here:
//! nobody waits for its locks.
use crate::support::{
    cases::cases,
    databases::Postgres,
    stores::{Placed, World, effect, placed},
    wait::{eventually, in_time},
};
use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;
use twinbox::{Delivery, DeliveryOutcome, HandlerResult, Tx, event_handler};
use twinbox_testkit::Harness;

/// How long a session may keep its locks.
const LOCKS_MAX: Duration = Duration::from_secs(5);

/// The message whose handler panics. That of another one never ends.
const PANICS: i64 = 0;

/// Has a permit for each handler that has its locks.
type Locked = Arc<Semaphore>;

#[event_handler(consumer = "tests.let-go")]
async fn never_ends(locked: &Locked, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    assert!(order.n != PANICS, "it panics");
    locked.add_permits(1);
    pending().await
}

/// The sessions of the database that have a transaction.
const OPEN: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()";

async fn all_are_let_go(world: &World<Postgres>, what: &str) {
    let began = Instant::now();
    eventually(async || (world.number(OPEN).await == 0).then_some(())).await;
    let taken = began.elapsed();
    println!("{what}: {taken:?}");
    assert!(taken < LOCKS_MAX, "{what}: {taken:?}");
}

async fn a_handler_that_does_not_end_keeps_no_locks() {
    let (world, locked) = (World::<Postgres>::new().await, Locked::new(Semaphore::new(0)));
    let deliver = |n: i64| {
        let harness = Harness::new(&world, locked.clone());
        tokio::spawn(async move { harness.deliver::<never_ends>(&placed(n)).await })
    };
    let panicked = in_time(deliver(PANICS)).await.unwrap();
    assert!(matches!(panicked, DeliveryOutcome::Retried { counted: true, .. }), "{panicked:?}");
    all_are_let_go(&world, "a panic").await;

    let first = deliver(1);
    in_time(locked.acquire()).await.unwrap().forget();
    let copy = deliver(1);
    eventually(async || (world.number(OPEN).await == 2).then_some(())).await;
    for dropped in [first, copy] {
        dropped.abort();
        let _ = in_time(dropped).await;
    }
    all_are_let_go(&world, "a handler that was dropped, and a copy that waited for it").await;
    assert_eq!(world.left_behind().await, (0, 0, 0));
}

cases! {
    postgres: [a_handler_that_does_not_end_keeps_no_locks]
}
