//! Connections that a consumer keeps between two handlers.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    database::SERVICE,
    postgres::{counted, store_at},
    stores::{Confirmed, Placed, TestDb, World, effect, placed},
    wait::{self, Pause, eventually},
};
use sqlx::{AssertSqlSafe, PgPool, Postgres, Sqlite, sqlite::SqlitePoolOptions};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use twinbox::{
    Consumer, Delivery, DeliveryOutcome, Dialect, HandlerResult, Store, Tx, event_handler, inbox::InboxClaim,
};
use twinbox_core::test_signal;

const MESSAGES: i64 = 400;
const KEYS: i64 = 12;

/// Ends the connections that are kept, of which the last statement was a commit.
const END_KEPT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle%' AND query LIKE '%twinbox.commit%'";

/// Of each handler.
const CONCURRENCY: u64 = 4;

#[event_handler(consumer = "tests.kept", concurrency = 4)]
async fn keeps<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    Ok(())
}

#[event_handler(consumer = "tests.kept", concurrency = 4)]
async fn loses(other: &PgPool, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    if order.n % 20 == 0 {
        sqlx::query(END_KEPT).execute(other).await?;
    }
    Ok(())
}

async fn all_handled<DB: TestDb>(world: &World<DB>) -> bool {
    world.number("SELECT count(*) FROM effects").await == MESSAGES
}

#[tokio::test]
async fn a_busy_consumer_takes_few_connections_and_returns_them() {
    let world = World::<Postgres>::new().await;
    publish(&world, 0..MESSAGES).await;
    let store = store_at(world.url()).await;
    run_until(Consumer::new(store.clone(), ()).handler::<keeps>(), async || all_handled(&world).await).await;
    // On a busy machine more connections are away for too long, and go back.
    let [taken, returned] = ["spares.begins_anew", "spares.is_too_long_away"].map(test_signal::passed);
    let counted = format!("{taken} taken and {returned} returned for {MESSAGES} messages");
    println!("{counted}");
    assert!(taken <= returned + CONCURRENCY && taken < MESSAGES.unsigned_abs(), "{counted}");
    let pool = store.pool();
    eventually(async || (pool.num_idle() == pool.size() as usize).then_some(())).await;
    // Returned connections are outside a transaction, for the server and for sqlx.
    for _ in 0..pool.size() {
        let mut tx = pool.begin().await.unwrap();
        sqlx::query("SELECT 1").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
    let in_transaction = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'";
    assert_eq!(world.number(in_transaction).await, 0);
}

/// Hooks of the pool run then.
#[tokio::test]
async fn a_consumer_that_keeps_none_takes_a_connection_for_each_message() {
    let (world, taken) = (World::<Postgres>::new().await, Arc::new(AtomicUsize::new(0)));
    publish(&world, 0..MESSAGES).await;
    let store = counted(world.url(), 8, &taken).await;
    let consumer = Consumer::new(store, ()).keep_connections(false).handler::<keeps>();
    run_until(consumer, async || all_handled(&world).await).await;
    // A new connection is not counted.
    assert!(taken.load(SeqCst) + 8 >= MESSAGES as usize, "{taken:?} for {MESSAGES} messages");
}

#[tokio::test]
async fn a_kept_connection_that_is_lost_costs_no_message() {
    let world = World::<Postgres>::new().await;
    publish(&world, 0..MESSAGES).await;
    let other = world.twin(1).await;
    run_until(Consumer::new((*world).clone(), other).handler::<loses>(), async || all_handled(&world).await)
        .await;
    assert_eq!(world.effects().await, Vec::from_iter(0..MESSAGES));
    assert_eq!(world.rows("attempts").await, 0, "nothing counts as a failure");
}

/// The time of a handler's transaction is not before that of the message before it in its key.
#[tokio::test]
async fn transactions_of_a_key_have_times_in_its_order() {
    let world = World::<Postgres>::new().await;
    world.execute("ALTER TABLE effects ADD COLUMN begun timestamptz NOT NULL DEFAULT now()").await;
    let few_keys = AssertSqlSafe(format!(
        "INSERT INTO twinbox.outbox (type, key, payload)
        SELECT 'orders.placed', 'key ' || n % {KEYS}, convert_to('{{\"n\": ' || n || '}}', 'UTF8')
        FROM generate_series(0, {}) n",
        MESSAGES - 1
    ));
    sqlx::raw_sql(few_keys).execute(world.pool()).await.unwrap();
    run_until(Consumer::new((*world).clone(), ()).handler::<in_order>(), async || all_handled(&world).await)
        .await;
    let reversed =
        format!("SELECT count(*) FROM effects a JOIN effects b ON b.n = a.n + {KEYS} AND b.begun < a.begun");
    assert_eq!(world.number(reversed).await, 0);
}

#[event_handler(consumer = "tests.kept", order = "key")]
async fn in_order<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    Ok(())
}

/// A store on the file, whose pool counts the connections that it gives out, and waits for other writers for
/// a short time.
async fn counted_file(world: &World<Sqlite>, taken: &Arc<AtomicUsize>) -> Store<Sqlite> {
    let taken = taken.clone();
    let pool = SqlitePoolOptions::new().max_connections(8).before_acquire(move |_, _| {
        taken.fetch_add(1, SeqCst);
        Box::pin(async { Ok(true) })
    });
    let options = (*world.pool().connect_options()).clone().busy_timeout(Duration::from_millis(20));
    Store::new(pool.connect_with(options).await.unwrap(), SERVICE).unwrap()
}

#[tokio::test]
async fn a_busy_inbox_of_a_file_takes_few_connections_and_returns_them() {
    let (world, taken) = (World::<Sqlite>::new().await, Arc::new(AtomicUsize::new(0)));
    let store = counted_file(&world, &taken).await;
    let inbox = store.inbox("tests.kept").keep_connections();
    for n in 0..MESSAGES {
        let InboxClaim::Open(attempt) = inbox.claim(&placed(n), false).await.unwrap() else { panic!("{n}") };
        attempt.commit().await.unwrap();
    }
    let taken = taken.load(SeqCst);
    assert!(taken < MESSAGES as usize / 2, "{taken} for {MESSAGES} messages");
    let pool = store.pool();
    eventually(async || (pool.num_idle() == pool.size() as usize).then_some(())).await;
    for _ in 0..pool.size() {
        let mut tx = pool.begin().await.unwrap();
        sqlx::query("SELECT 1").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(world.rows("inbox").await, MESSAGES);
}

#[event_handler(consumer = "tests.publishes")]
async fn publishes<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    tx.publish(&Confirmed { n: order.n }).await?;
    Ok(())
}

async fn a_handler_wakes_readers_of_the_log_if_it_publishes<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let committed = world.engine().committed();
    assert_eq!(world.deliver::<keeps>(&placed(1)).await, DeliveryOutcome::Handled);
    assert!(!committed.has_changed().unwrap(), "there is nothing to read");
    assert_eq!(world.deliver::<publishes>(&placed(1)).await, DeliveryOutcome::Handled);
    assert!(committed.has_changed().unwrap());
}

cases! {
    all: [a_handler_wakes_readers_of_the_log_if_it_publishes]
}

#[event_handler(consumer = "tests.kept", concurrency = 4)]
async fn ends_some(
    committed: &Arc<AtomicUsize>,
    tx: &mut Tx<'_, Sqlite>,
    order: Delivery<Placed>,
) -> HandlerResult {
    effect::<Sqlite>(tx, order.n).await?;
    if order.n % 20 == 0 && order.attempt() == 1 {
        let ended = sqlx::raw_sql("COMMIT").execute(&mut **tx).await;
        committed.fetch_add(usize::from(ended.is_ok()), SeqCst);
    }
    Ok(())
}

#[tokio::test]
async fn a_handler_cannot_commit_on_a_connection_that_others_used_before() {
    let (world, committed) = (World::<Sqlite>::new().await, Arc::new(AtomicUsize::new(0)));
    publish(&world, 0..MESSAGES).await;
    let consumer = Consumer::new((*world).clone(), committed.clone()).handler::<ends_some>();
    run_until(consumer, async || all_handled(&world).await).await;
    assert_eq!(world.effects().await, Vec::from_iter(0..MESSAGES));
    assert_eq!(committed.load(SeqCst), 0, "a handler committed without its claim");
}

#[tokio::test]
async fn a_kept_connection_to_a_file_that_is_busy_costs_no_message() {
    let (world, taken) = (World::<Sqlite>::new().await, Arc::new(AtomicUsize::new(0)));
    publish(&world, 0..MESSAGES).await;
    let (store, other) = (counted_file(&world, &taken).await, world.twin(1).await);
    let some_handled = async || world.number("SELECT count(*) FROM effects").await > MESSAGES / 10;
    let handled = async || all_handled(&world).await;
    let writing = async {
        eventually(async || some_handled().await.then_some(())).await;
        let tx = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let before = world.effects().await.len() as i64;
        // Longer than the consumer waits for it.
        wait::pause(Pause::Outage, Duration::from_millis(200)).await;
        tx.rollback().await.unwrap();
        before
    };
    let consumer = Consumer::new(store, ()).handler::<keeps>();
    let (before, ()) = tokio::join!(writing, run_until(consumer, handled));
    assert!(before < MESSAGES, "the consumer had handled all before it met the other writer");
    assert_eq!(world.effects().await, Vec::from_iter(0..MESSAGES));
    assert_eq!(world.rows("attempts").await, 0, "nothing counts as a failure");
}

#[tokio::test]
async fn a_kept_connection_to_a_file_that_was_busy_is_fit_for_others() {
    let (world, taken) = (World::<Sqlite>::new().await, Arc::new(AtomicUsize::new(0)));
    let (store, other) = (counted_file(&world, &taken).await, world.twin(1).await);
    let inbox = store.inbox("tests.kept").keep_connections();
    let InboxClaim::Open(first) = inbox.claim(&placed(1), false).await.unwrap() else { panic!("claimed") };
    first.commit().await.unwrap();
    let writing = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let taken_before = taken.load(SeqCst);
    let error = inbox.claim(&placed(2), false).await.err().unwrap();
    assert!(error.is_contention(), "{error}");
    assert_eq!(taken.load(SeqCst), taken_before, "it used another connection than the kept one");
    writing.rollback().await.unwrap();
    let pool = store.pool();
    eventually(async || (pool.num_idle() == 1).then_some(())).await;
    pool.begin_with("BEGIN IMMEDIATE").await.unwrap().commit().await.unwrap();
    assert_eq!(taken.load(SeqCst), taken_before + 1, "another connection took the place of the kept one");
    let InboxClaim::Open(second) = inbox.claim(&placed(2), false).await.unwrap() else { panic!("claimed") };
    second.commit().await.unwrap();
    assert_eq!(world.rows("inbox").await, 2);
}
