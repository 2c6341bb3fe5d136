//! A server ends the transaction of a process that has fallen silent in it.
use crate::support::{
    cases::cases_on,
    database::SERVICE,
    log::{open, publish, settle_until},
    operations::{asked, key, policy},
    statement_faults::{Fault, Faulty, Silence, StatementFaults},
    stores::{TestDb, World, placed},
    wait::{eventually, in_time},
};
use sqlx::{MySql, Postgres};
use std::{ops::RangeInclusive, time::Duration};
use tokio::runtime::Handle;
use twinbox::{OwnedTx, Store, inbox::InboxClaim, operation::OperationStart};

/// After so many seconds the server ends what is Twinbox's own.
const BOUNDED: RangeInclusive<i64> = 1..=30;

trait Idle: TestDb {
    /// How long a server may hear nothing, in seconds. Zero is for ever.
    const SECONDS: &str;
}

impl Idle for Postgres {
    const SECONDS: &str = "SELECT extract(epoch FROM \
        current_setting('idle_in_transaction_session_timeout')::interval)::bigint";
}

impl Idle for MySql {
    const SECONDS: &str = "SELECT CAST(@@SESSION.wait_timeout AS SIGNED)";
}

async fn seconds<DB: Idle>(tx: &mut OwnedTx<DB>) -> i64 {
    sqlx::query_scalar::<DB, i64>(DB::SECONDS).fetch_one(&mut **tx).await.unwrap()
}

/// So no row that it holds is held for hours. What the application does in a transaction of its own takes as
/// long as it takes.
async fn a_transaction_of_twinbox_is_bounded_and_one_of_the_application_is_not<DB: Idle>() {
    let world = World::<DB>::new().await;
    let store = Store::new(world.twin(1).await, SERVICE).unwrap();
    for _ in 0..2 {
        let mut own = store.engine().begin().await.unwrap();
        let idle = seconds(&mut own).await;
        assert!(BOUNDED.contains(&idle), "{idle}");
        own.commit().await.unwrap();
        let mut of_application = store.begin().await.unwrap();
        let idle = seconds(&mut of_application).await;
        assert!(!BOUNDED.contains(&idle), "{idle}");
        of_application.rollback().await.unwrap();
    }
}

cases_on! {
    [postgres: Postgres, mysql: MySql],
    [a_transaction_of_twinbox_is_bounded_and_one_of_the_application_is_not]
}

/// The number of a tick is taken by one process, and no other goes on before its transaction ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_falls_silent_while_it_makes_a_tick_stops_no_reader_of_another() {
    let world = World::<MySql>::new().await;
    let faults = MySql::faults(&Handle::current(), &world, Silence::AsItIs);
    let silent = Store::new(faults.pool(4), SERVICE).unwrap();
    let (mut reader, mut of_silent) = (open(&world, "d").await, open(&silent, "silent").await);
    let happens = faults.arm("holes.insert_tick", Fault::Unanswered);
    publish(&world, None, &["a"]).await;
    let making = tokio::spawn(async move { of_silent.next(100).await.map(drop) });
    in_time(happens).await.unwrap();
    publish(&world, None, &["b"]).await;
    let read = in_time(settle_until(&mut reader, "b")).await;
    assert_eq!(read, ["a", "b"]);
    making.abort();
}

/// Lets a process fall silent when the server has made its claim, before it says how long its handler takes.
/// The connection stays with the second value.
async fn falls_silent<C: Future<Output = ()> + Send + 'static>(
    statement: &str,
    claim: impl Fn(Store<MySql>) -> C,
) -> (World<MySql>, StatementFaults<MySql>) {
    let world = World::<MySql>::new().await;
    let faults = MySql::faults(&Handle::current(), &world, Silence::AsItIs);
    let happens = faults.arm(statement, Fault::Unanswered);
    let silent = Store::new(faults.pool(4), SERVICE).unwrap();
    let claiming = tokio::spawn(claim(silent));
    in_time(happens).await.unwrap();
    claiming.abort();
    (world, faults)
}

/// It would be claimed for hours.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_silent_process_has_claimed_is_claimed_by_another() {
    let order = placed(1);
    let of_silent = order.clone();
    let message = async {
        let world = falls_silent("inbox.claim", move |silent| {
            let order = of_silent.clone();
            async move { drop(silent.inbox("tests.claims").claim(&order, false).await) }
        });
        let (world, _faults) = world.await;
        eventually(async || {
            let claimed = world.inbox("tests.claims").claim(&order, false).await;
            matches!(claimed, Ok(InboxClaim::Open(_))).then_some(())
        })
        .await;
    };
    let key_of_client = async {
        let world = falls_silent("operations.claim", async |silent| {
            drop(silent.idempotency_keys().begin(&key("a"), &asked("1"), &policy(Duration::ZERO)).await);
        });
        let (world, _faults) = world.await;
        eventually(async || {
            let begun = world.idempotency_keys();
            let begun = begun.begin(&key("a"), &asked("1"), &policy(Duration::ZERO)).await;
            matches!(begun, Ok(OperationStart::Open(_))).then_some(())
        })
        .await;
    };
    tokio::join!(message, key_of_client);
}
