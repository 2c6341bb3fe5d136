//! The transaction of a handler that ends in another way than by its result, over TLS as all sessions here:
//! nobody waits for its locks.
use crate::support::{
    cases::cases_on,
    databases::{MySql, PROCESSES, Postgres},
    stores::{Placed, TestDb, World, effect, placed},
    wait::{self, Pause, eventually, in_time},
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
async fn never_ends<DB: TestDb>(
    locked: &Locked,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    assert!(order.n != PANICS, "it panics");
    locked.add_permits(1);
    pending().await
}

/// A server that says which of its sessions have a transaction.
trait Sessions: TestDb {
    /// How many of this database.
    fn open_transactions() -> String;
}

impl Sessions for Postgres {
    fn open_transactions() -> String {
        "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"
            .to_owned()
    }
}

impl Sessions for MySql {
    fn open_transactions() -> String {
        format!(
            "SELECT count(*)
            FROM information_schema.innodb_trx t
            JOIN {PROCESSES} p ON p.id = t.trx_mysql_thread_id
            WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID()"
        )
    }
}

/// It looks seldom: MariaDB answers with what it said before to whoever asks again within 100 ms.
async fn open_are<DB: Sessions>(world: &World<DB>, expected: i64) {
    let look = async || {
        wait::pause(Pause::Look, Duration::from_millis(150)).await;
        (world.number(DB::open_transactions()).await == expected).then_some(())
    };
    eventually(look).await;
}

async fn all_are_let_go<DB: Sessions>(world: &World<DB>, what: &str) {
    let began = Instant::now();
    open_are(world, 0).await;
    let taken = began.elapsed();
    println!("{what}: {taken:?}");
    assert!(taken < LOCKS_MAX, "{what}: {taken:?}");
}

async fn a_handler_that_does_not_end_keeps_no_locks<DB: Sessions>() {
    let (world, locked) = (World::<DB>::new().await, Locked::new(Semaphore::new(0)));
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
    open_are(&world, 2).await;
    for dropped in [first, copy] {
        dropped.abort();
        let _ = in_time(dropped).await;
    }
    all_are_let_go(&world, "a handler that was dropped, and a copy that waited for it").await;
    assert_eq!(world.left_behind().await, (0, 0, 0));
}

cases_on! {
    [postgres: Postgres, mysql: MySql],
    [a_handler_that_does_not_end_keeps_no_locks]
}
