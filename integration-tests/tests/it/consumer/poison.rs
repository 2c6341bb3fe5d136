//! Starts that are not known to have ended: their message runs alone, and not for ever.
use crate::support::{
    cases::cases,
    consumer::{Gate, publish, run_until},
    database::SERVICE,
    databases::{PgPoolOptions, Postgres},
    postgres::{postgres_address, through},
    stores::{Placed, TestDb, World, effect, failed, placed},
    wait::{self, Pause, eventually, in_time},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{sync::mpsc, task::JoinHandle};
use twinbox::{
    BatchTx, CancellationToken, Consumer, Delivery, DeliveryOutcome, Dialect, HandlerResult, Message, Store,
    Tx, consumer::Error as ConsumerError, event_handler,
};
use twinbox_testkit::{Harness, proxy::Proxy};

const CONSUMER: &str = "tests.poison";
const FAIL: i64 = 9;

#[event_handler(consumer = "tests.poison", crash_limit = 3)]
async fn note<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    if order.n == FAIL { Err("no".into()) } else { Ok(()) }
}

/// What processes leave behind that die with the handler running, the first time beside others.
async fn died<DB: TestDb>(world: &World<DB>, message: &Message, alone: u32) {
    assert!(world.inbox(CONSUMER).record_start(message.message_id()).await.unwrap());
    for _ in 0..alone {
        world.inbox(CONSUMER).record_lone_start(message.message_id()).await.unwrap();
    }
}

async fn crashes_are_counted_up_to_the_limit<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let (below, at) = (placed(1), placed(2));
    died(&world, &below, 2).await;
    assert_eq!(world.deliver::<note>(&below).await, DeliveryOutcome::Handled);
    died(&world, &at, 3).await;
    let error = "the process crashed 3 times while the handler ran on this message alone".to_owned();
    assert_eq!(world.deliver::<note>(&at).await, DeliveryOutcome::DeadLettered { error });
    assert_eq!(world.effects().await, [1], "the other did not run");
    assert_eq!(world.inbox(CONSUMER).dead_letters(10).await.unwrap()[0].reason, "crashed");
    assert_eq!((world.rows("attempts").await, world.rows("inbox").await), (0, 2));
    assert_eq!(world.deliver::<note>(&at).await, DeliveryOutcome::Duplicate);
    assert_eq!(world.rows("attempts").await, 0);
}

async fn a_failure_is_an_end<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = placed(FAIL);
    died(&world, &order, 3 - 1).await;
    assert!(failed(&world.deliver::<note>(&order).await, "no"));
    assert_eq!(world.inbox(CONSUMER).open_starts(order.message_id()).await.unwrap(), 0);
    assert!(failed(&world.deliver::<note>(&order).await, "no"));
    assert_eq!(world.inbox(CONSUMER).open_starts(order.message_id()).await.unwrap(), 0);
    assert_eq!(world.rows("attempts").await, 1);
}

/// How many run, and how many did when the suspect did.
#[derive(Default)]
struct Beside {
    running: AtomicUsize,
    with_suspect: AtomicUsize,
    suspects: AtomicUsize,
}

/// What a handler takes: long enough that others would be seen beside it.
async fn work() {
    wait::pause(Pause::Work, Duration::from_millis(30)).await;
}

/// Another consumer of the same process.
#[event_handler(consumer = "tests.bystander", concurrency = 5)]
async fn bystander(beside: &Arc<Beside>, _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    beside.running.fetch_add(1, SeqCst);
    work().await;
    beside.running.fetch_sub(1, SeqCst);
    Ok(())
}

#[event_handler(consumer = "tests.poison", concurrency = 5)]
async fn beside(beside: &Arc<Beside>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    let others = beside.running.fetch_add(1, SeqCst);
    if order.n == FAIL {
        beside.suspects.fetch_add(1, SeqCst);
        beside.with_suspect.fetch_max(others, SeqCst);
    }
    work().await;
    effect::<Postgres>(tx, order.n).await?;
    beside.running.fetch_sub(1, SeqCst);
    if order.n == FAIL {
        beside.with_suspect.fetch_max(beside.running.load(SeqCst), SeqCst);
    }
    Ok(())
}

/// On Postgres; on SQLite handlers take turns.
async fn a_suspect_runs_alone() {
    let world = World::<Postgres>::new().await;
    let state = Arc::new(Beside::default());
    let consumer = || Consumer::new((*world).clone(), state.clone()).handler::<beside>();
    publish(&world, 0..1).await;
    run_until(consumer(), async || world.rows("inbox").await == 1).await;
    publish(&world, 1..20).await;
    let messages = world.published("orders.placed", 100).await.unwrap();
    let suspect = messages.iter().find(|message| message.key.as_deref() == Some("9")).unwrap();
    died(&world, suspect, 0).await;
    let bystanders = Consumer::new((*world).clone(), state.clone()).handler::<bystander>();
    tokio::join!(
        run_until(consumer(), async || world.rows("inbox").await == 40),
        run_until(bystanders, async || world.rows("inbox").await == 40),
    );
    assert_eq!((state.suspects.load(SeqCst), state.with_suspect.load(SeqCst)), (1, 0));
    assert_eq!(world.effects().await, Vec::from_iter(0..20));
    assert_eq!(world.rows("attempts").await, 0);
}

#[event_handler(consumer = "tests.poison", batch = 10)]
async fn batch<DB: Dialect>(
    largest: &Arc<AtomicUsize>,
    tx: &mut BatchTx<'_, DB>,
    orders: Vec<Delivery<Placed>>,
) -> HandlerResult {
    largest.fetch_max(orders.len(), SeqCst);
    for order in orders {
        effect::<DB>(tx, order.n).await?;
    }
    Ok(())
}

/// What is delivered again is handled in batches still, unless one of them is a suspect.
async fn a_suspect_is_in_no_batch<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let largest = Arc::new(AtomicUsize::new(0));
    let consumer = || Consumer::new((*world).clone(), largest.clone()).handler::<batch>();
    publish(&world, 0..1).await;
    run_until(consumer(), async || world.rows("inbox").await == 1).await;
    publish(&world, 1..10).await;
    let messages = world.published("orders.placed", 100).await.unwrap();
    for message in &messages[1..] {
        died(&world, message, 0).await;
    }
    run_until(consumer(), async || world.rows("inbox").await == 10).await;
    assert_eq!(largest.swap(0, SeqCst), 1);
    publish(&world, 10..30).await;
    let messages = world.published("orders.placed", 100).await.unwrap();
    let harness = Harness::new(&world, largest.clone());
    for done in messages[10..].iter().step_by(2) {
        assert_eq!(harness.deliver::<batch>(done).await, DeliveryOutcome::Handled);
    }
    run_until(consumer(), async || world.rows("inbox").await == 30).await;
    assert!(largest.load(SeqCst) > 1);
    assert_eq!(world.effects().await, Vec::from_iter(0..30));
    assert_eq!(world.rows("attempts").await, 0);
}

#[event_handler(consumer = "tests.poison", timeout = "5m")]
async fn holds(gate: &Arc<Gate>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    gate.pass(order.n).await;
    Ok(effect::<Postgres>(tx, order.n).await?)
}

/// A consumer that has handled one message, and would hold every other one.
struct Held {
    world: World<Postgres>,
    gate: Arc<Gate>,
    entries: mpsc::UnboundedReceiver<i64>,
}

impl Held {
    async fn new() -> Self {
        let world = World::<Postgres>::new().await;
        let (gate, mut entries) = Gate::new();
        gate.leave.add_permits(1);
        publish(&world, 0..1).await;
        let consumer = Consumer::new((*world).clone(), gate.clone()).handler::<holds>();
        run_until(consumer, async || world.rows("inbox").await == 1).await;
        assert_eq!(in_time(entries.recv()).await, Some(0));
        Self { world, gate, entries }
    }

    /// Runs it anew, until it holds the second message.
    async fn running(
        &mut self,
        drain: Duration,
    ) -> (CancellationToken, JoinHandle<Result<(), ConsumerError>>) {
        let stop = CancellationToken::new();
        let consumer = Consumer::new((*self.world).clone(), self.gate.clone()).handler::<holds>();
        let running = tokio::spawn(consumer.drain(drain).run(stop.clone()));
        assert_eq!(in_time(self.entries.recv()).await, Some(1));
        (stop, running)
    }
}

/// Who waits for the others to end does not start when the process stops.
async fn a_suspect_that_waits_is_given_back() {
    let mut held = Held::new().await;
    publish(&held.world, 1..3).await;
    let suspect = held.world.published("orders.placed", 100).await.unwrap().remove(2);
    died(&held.world, &suspect, 0).await;
    let (stop, running) = held.running(Duration::from_secs(300)).await;
    stop.cancel();
    held.gate.leave.add_permits(2);
    in_time(running).await.unwrap().unwrap();
    assert_eq!(held.world.effects().await, [0, 1]);
    assert_eq!(held.world.inbox(CONSUMER).open_starts(suspect.message_id()).await.unwrap(), 1);
}

/// The drain ends before the handler does, and the process lives on.
async fn a_handler_that_is_cut_off_at_a_stop_has_ended() {
    let mut held = Held::new().await;
    publish(&held.world, 1..2).await;
    let (stop, running) = held.running(Duration::from_millis(100)).await;
    assert_eq!(held.world.rows("attempts").await, 1, "its start is on record");
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
    assert_eq!((held.world.rows("attempts").await, held.world.effects().await), (0, vec![0]));
}

/// As by a process that is frozen in front of its COMMIT.
async fn a_row_that_another_holds_is_not_waited_for() {
    let world = World::<Postgres>::new().await;
    let order = placed(1);
    died(&world, &order, 0).await;
    let mut other = world.pool().begin().await.unwrap();
    sqlx::query("SELECT FROM twinbox.attempts FOR UPDATE").execute(&mut *other).await.unwrap();
    let delivered = tokio::time::timeout(Duration::from_secs(60), world.deliver::<note>(&order));
    let outcome = delivered.await.expect("it is not waited for until the other ends");
    assert!(matches!(outcome, DeliveryOutcome::Retried { counted: false, .. }), "{outcome:?}");
    other.rollback().await.unwrap();
    assert_eq!(world.deliver::<note>(&order).await, DeliveryOutcome::Handled);
    eventually(async || (world.rows("attempts").await == 0).then_some(())).await;
}

/// A report that takes for half an hour must not stop every other handler for as long.
async fn a_suspect_waits_for_no_handler_that_takes_long() {
    let (world, (gate, mut entries)) = (World::<Postgres>::new().await, Gate::new());
    let harness = Harness::new(&world, gate.clone());
    let long = tokio::spawn(async move { harness.deliver::<holds>(&placed(1)).await });
    in_time(entries.recv()).await.unwrap();
    let suspect = placed(2);
    died(&world, &suspect, 0).await;
    let outcome = in_time(world.deliver::<note>(&suspect)).await;
    assert!(matches!(outcome, DeliveryOutcome::Retried { counted: false, .. }), "{outcome:?}");
    assert_eq!(in_time(world.deliver::<note>(&placed(3))).await, DeliveryOutcome::Handled);
    gate.leave.add_permits(1);
    assert_eq!(in_time(long).await.unwrap(), DeliveryOutcome::Handled);
    assert_eq!(world.deliver::<note>(&suspect).await, DeliveryOutcome::Handled);
    assert_eq!(world.effects().await, [1, 2, 3]);
}

#[event_handler(consumer = "tests.poison")]
async fn loses_it(proxy: &Arc<Proxy>, _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    proxy.freeze();
    Err("no".into())
}

/// The database is away when the failure is to be recorded, and the process lives on.
async fn what_survives_an_outage_has_ended() {
    let world = World::<Postgres>::new().await;
    let proxy = Arc::new(Proxy::start(postgres_address(world.url())).await.unwrap());
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(5));
    let pool = pool.connect(&through(world.url(), &proxy)).await.unwrap();
    let harness = Harness::new(&Store::new(pool, SERVICE).unwrap(), proxy.clone());
    let order = placed(1);
    assert_eq!(harness.deliver::<loses_it>(&order).await, DeliveryOutcome::Unavailable);
    assert_eq!(world.inbox(CONSUMER).open_starts(order.message_id()).await.unwrap(), 1);
    proxy.thaw();
    eventually(async || (world.rows("attempts").await == 0).then_some(())).await;
}

cases! {
    all: [crashes_are_counted_up_to_the_limit, a_failure_is_an_end, a_suspect_is_in_no_batch]
    postgres: [
        a_suspect_runs_alone,
        a_suspect_that_waits_is_given_back,
        a_suspect_waits_for_no_handler_that_takes_long,
        a_handler_that_is_cut_off_at_a_stop_has_ended,
        a_row_that_another_holds_is_not_waited_for,
        what_survives_an_outage_has_ended,
    ]
}
