//! A connection that falls silent, and a statement that does not end, hold up their own message for a time,
//! and no other.
use crate::support::{
    consumer::{Gate, publish, run_until},
    database::SERVICE,
    long,
    postgres::{postgres_address, through},
    relay::{Running, Target},
    stores::{Confirmed, Placed, TestDb, World, effect, placed},
    wait::{Pause, eventually, in_time, pause},
};
use sqlx::{
    Pool, Postgres,
    pool::PoolOptions,
    postgres::{PgPool, PgPoolOptions},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use twinbox::{
    CancellationToken, Consumer, Delivery, DeliveryOutcome, Dialect, HandlerResult, Store, Tx, event_handler,
    inbox::InboxClaim, nats::Nats,
};
use twinbox_testkit::{Harness, proxy::Proxy};

/// The order whose handler sees the connections fall silent, once.
const SILENT: i64 = 7;

struct Way {
    proxy: Proxy,
    has_fallen: AtomicBool,
}

impl Way {
    /// A store whose connections go over a proxy.
    async fn to(world: &World<Postgres>, connections: u32) -> (Arc<Self>, Store<Postgres>) {
        let proxy = Proxy::start(postgres_address(world.url())).await.unwrap();
        let pool = PgPoolOptions::new().max_connections(connections);
        let pool = pool.connect(&through(world.url(), &proxy)).await.unwrap();
        let store = Store::new(pool, SERVICE).unwrap();
        (Arc::new(Self { proxy, has_fallen: AtomicBool::new(false) }), store)
    }

    /// The peer of every open connection is gone without a word. New connections work.
    fn fall_silent_once(&self) {
        if !self.has_fallen.swap(true, SeqCst) {
            self.proxy.freeze_open();
        }
    }
}

/// One whose own statement was not answered has taken too long, which costs an attempt.
#[event_handler(consumer = "tests.silent")]
async fn at_the_commit(way: &Arc<Way>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    if order.n == SILENT {
        way.fall_silent_once();
    }
    Ok(())
}

#[event_handler(consumer = "tests.silent_in_order", order = "key")]
async fn in_order(way: &Arc<Way>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    if order.n == SILENT {
        way.fall_silent_once();
    }
    Ok(())
}

/// R67. With the deliveries beside it, the leases, the looks of the log and the heartbeat.
#[tokio::test(flavor = "multi_thread")]
async fn row_54_what_waits_for_a_silent_database_ends_and_everything_is_handled_once() {
    let world = World::<Postgres>::new().await;
    let (way, store) = Way::to(&world, 10).await;
    publish(&world, 0..100).await;
    let consumer = Consumer::new(store, way.clone()).handler::<at_the_commit>();
    run_until(consumer, async || world.rows("inbox").await == 100).await;
    assert!(way.has_fallen.load(SeqCst));
    assert_eq!(world.effects().await, Vec::from_iter(0..100));
    assert_eq!(world.rows("dead_letters").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_54_no_partition_stays_with_an_owner_whose_connection_is_silent() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    let (way, store) = Way::to(&world, 10).await;
    let nats = Nats::with_options(target.existing()).unwrap();
    publish(&world, 0..100).await;
    let consumer = Consumer::new(store, way.clone()).transport(nats).handler::<in_order>();
    run_until(consumer, async || world.rows("inbox").await == 100).await;
    assert!(way.has_fallen.load(SeqCst));
    assert_eq!(world.effects().await, Vec::from_iter(0..100));
    relay.stop().await;
}

#[event_handler(consumer = "tests.slow", timeout = "300ms", concurrency = 2)]
async fn sleeps(tx: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    sqlx::query("SELECT pg_sleep(90)").execute(&mut **tx).await?;
    Ok(())
}

/// Sessions of this database whose statement sleeps.
async fn sleeping(pool: &PgPool) -> i64 {
    let sleeping = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND state = 'active' AND query LIKE '%SELECT pg_sleep(90%' \
        AND pid <> pg_backend_pid()";
    sqlx::query_scalar(sleeping).fetch_one(pool).await.unwrap()
}

#[event_handler(consumer = "tests.beside")]
async fn beside(tx: &mut Tx<'_, Postgres>, order: Delivery<Confirmed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, order.n).await?)
}

/// R67, fault 38. For ten minutes in the long run. Another handler handles what it gets, the application gets
/// a connection, and no lease is lost.
#[tokio::test(flavor = "multi_thread")]
async fn row_38_a_statement_that_does_not_end_takes_no_more_connections_than_its_handler_has_permits() {
    let world = World::<Postgres>::new().await;
    // A busy machine has more time.
    let at_most = long::or(Duration::from_secs(1), Duration::from_secs(10));
    let pool = PgPoolOptions::new().max_connections(8).acquire_timeout(at_most);
    let pool = pool.connect(world.url()).await.unwrap();
    let store = Store::new(pool.clone(), SERVICE).unwrap();
    let consumer = Consumer::new(store, ()).handler::<sleeps>().handler::<beside>();
    let (began, duration) = (Instant::now(), long::or(Duration::from_secs(600), Duration::from_secs(10)));
    let (mut n, mut most, mut waited) = (0, 0, Instant::now());
    let mut latest = Duration::ZERO;
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    while began.elapsed() < duration || most == 0 {
        drop(pool.acquire().await.expect("the application gets a connection"));
        most = most.max(sleeping(world.pool()).await);
        if world.effects().await.len() as i64 == n {
            latest = latest.max(if n == 0 { latest } else { waited.elapsed() });
            publish(&world, 2 * n..2 * n + 2).await;
            let mut tx = world.begin().await.unwrap();
            world.outbox().publish(&mut tx, &Confirmed { n }).await.unwrap();
            tx.commit().await.unwrap();
            (n, waited) = (n + 1, Instant::now());
        }
        pause(Pause::Look, Duration::from_millis(20)).await;
    }
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
    println!("{n} beside it, the latest after {latest:?}; {most} sessions sleep at most");
    assert!((1..=2).contains(&most), "{most} sessions");
    let owners = world.number("SELECT max(epoch) FROM twinbox.cursors").await;
    assert!(owners <= long::or(1, 3), "the lease was lost: {owners} owners");
}

#[event_handler(consumer = "tests.endless", timeout = "300ms", concurrency = 2)]
async fn sleeps_without_a_bound(tx: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    sqlx::raw_sql("SET LOCAL statement_timeout = 0; SELECT pg_sleep(900)").execute(&mut **tx).await?;
    Ok(())
}

/// As on MySQL, where no server ends a statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_statement_does_not_end_is_closed_before_the_next_handler_begins() {
    let world = World::<Postgres>::new().await;
    publish(&world, 0..6).await;
    let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(Duration::from_secs(10));
    let pool = pool.connect(world.url()).await.unwrap();
    let store = Store::new(pool.clone(), SERVICE).unwrap();
    run_until(Consumer::new(store, ()).handler::<sleeps_without_a_bound>(), async || {
        drop(pool.acquire().await.expect("the pool has a connection for the application"));
        world.rows("attempts").await == 6
    })
    .await;
    assert!(sleeping(world.pool()).await >= 6, "all of them go on in the server");
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    sqlx::query(end).execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
}

#[event_handler(consumer = "tests.powerless", timeout = "10s")]
async fn waits<DB: Dialect>(gate: &Arc<Gate>, tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    gate.pass(order.n).await;
    Ok(())
}

#[event_handler(consumer = "tests.powerless")]
async fn takes_over<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

/// Its connection stays open, as that of a machine without power does.
async fn is_without_power<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let proxy = Proxy::start(postgres_address(world.url())).await.unwrap();
    let pool = Pool::<DB>::connect(&through(world.url(), &proxy)).await.unwrap();
    let (gate, mut entries) = Gate::new();
    let order = placed(1);
    let powerless = Harness::new(&Store::new(pool, SERVICE).unwrap(), gate);
    let delivered = order.clone();
    let held = tokio::spawn(async move { powerless.deliver::<waits>(&delivered).await });
    in_time(entries.recv()).await.unwrap();
    proxy.freeze();
    let outcome = eventually(async || {
        let outcome = world.deliver::<takes_over>(&order).await;
        (!matches!(outcome, DeliveryOutcome::Retried { counted: false, .. })).then_some(outcome)
    });
    assert_eq!(outcome.await, DeliveryOutcome::Handled);
    assert_eq!(world.effects().await, [1]);
    held.abort();
}

/// The same for all deliveries that a consumer has in its handlers: another process handles them.
async fn is_without_power_in_its_handlers<DB: TestDb>() {
    const DELIVERIES: i64 = 8;
    let world = World::<DB>::new().await;
    let proxy = Proxy::start(postgres_address(world.url())).await.unwrap();
    let pool = PoolOptions::<DB>::new().max_connections(12).connect(&through(world.url(), &proxy)).await;
    let store = Store::new(pool.unwrap(), SERVICE).unwrap();
    let (gate, mut entries) = Gate::new();
    let powerless = Consumer::new(store, gate).handler::<waits>();
    let powerless = tokio::spawn(powerless.run(CancellationToken::new()));
    publish(&world, 0..DELIVERIES).await;
    for _ in 0..DELIVERIES {
        in_time(entries.recv()).await.unwrap();
    }
    proxy.freeze();
    let frozen = Instant::now();
    let another = Consumer::new((*world).clone(), ()).handler::<takes_over>();
    run_until(another, async || world.rows("inbox").await == DELIVERIES).await;
    println!("{}: handled {:?} after the loss of power", DB::NAME, frozen.elapsed());
    assert_eq!(world.effects().await, Vec::from_iter(0..DELIVERIES));
    powerless.abort();
}

/// R67
#[tokio::test(flavor = "multi_thread")]
async fn another_process_handles_what_a_process_without_power_has_in_its_handlers() {
    is_without_power_in_its_handlers::<Postgres>().await;
}

/// R67
#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread")]
async fn another_process_handles_what_a_process_without_power_has_in_its_handlers_on_mysql() {
    is_without_power_in_its_handlers::<sqlx::MySql>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_starts_during_an_outage_waits_and_hears_its_stop() {
    let world = World::<Postgres>::new().await;
    let (way, store) = Way::to(&world, 4).await;
    let consumer = || Consumer::new(store.clone(), way.clone()).handler::<at_the_commit>();
    way.proxy.cut();
    let (before, stop) = (way.proxy.connections(), CancellationToken::new());
    let waiting = tokio::spawn(consumer().run(stop.clone()));
    eventually(async || (way.proxy.connections() > before + 1).then_some(())).await;
    assert!(!waiting.is_finished());
    stop.cancel();
    in_time(waiting).await.unwrap().unwrap();
    way.proxy.restore();
    publish(&world, 0..1).await;
    run_until(consumer(), async || world.rows("inbox").await == 1).await;
    store.pool().close().await;
    let closed = in_time(consumer().run(CancellationToken::new())).await;
    assert!(closed.is_err(), "a closed pool never opens again");
}

/// R67
#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_power_holds_its_claims_for_as_long_as_its_handler_may_take() {
    is_without_power::<Postgres>().await;
}

/// R67
#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_power_holds_its_claims_on_mysql_for_as_long_as_its_handler_may_take() {
    is_without_power::<sqlx::MySql>().await;
}

#[event_handler(consumer = "tests.bounds", timeout = "5s")]
async fn bounds(
    seen: &Arc<std::sync::Mutex<Vec<String>>>,
    tx: &mut Tx<'_, Postgres>,
    _: Delivery<Placed>,
) -> HandlerResult {
    let shown = "SELECT current_setting('statement_timeout') || ' ' || \
        current_setting('idle_in_transaction_session_timeout')";
    let shown = sqlx::query_scalar(shown).fetch_one(&mut **tx).await?;
    seen.lock().unwrap().push(shown);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_bounds_a_handler_a_little_beyond_its_time_out_unless_the_session_has_a_smaller_bound() {
    let world = World::<Postgres>::new().await;
    let seen = Arc::default();
    let of_session = ["0", "1s", "1min", "2d"];
    for (n, bound) in (0..).zip(of_session) {
        let options = world.pool().connect_options().as_ref().clone();
        let options =
            options.options([("statement_timeout", bound), ("idle_in_transaction_session_timeout", bound)]);
        let store = Store::new(PgPool::connect_with(options).await.unwrap(), SERVICE).unwrap();
        let harness = Harness::new(&store, Arc::clone(&seen));
        assert_eq!(harness.deliver::<bounds>(&placed(n)).await, DeliveryOutcome::Handled);
    }
    let expected = ["5500ms 5500ms", "1s 1s", "5500ms 5500ms", "5500ms 5500ms"];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// A delivery that waits in vain for a copy of its message says nothing about the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_takes_longer_than_a_statement_may_is_contention() {
    let world = World::<Postgres>::new().await;
    let order = placed(1);
    let InboxClaim::Open(copy) = world.inbox("tests.bounds").claim(&order, false).await.unwrap() else {
        panic!("it is new")
    };
    let options = world.pool().connect_options().as_ref().clone().options([("statement_timeout", "300ms")]);
    let store = Store::new(PgPool::connect_with(options).await.unwrap(), SERVICE).unwrap();
    let outcome = Harness::new(&store, Arc::default()).deliver::<bounds>(&order).await;
    assert!(matches!(outcome, DeliveryOutcome::Retried { counted: false, .. }), "{outcome:?}");
    copy.rollback().await;
}
