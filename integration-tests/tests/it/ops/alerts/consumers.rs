//! Faults of consumers.
use super::watch::Watch;
use crate::support::{
    consumer::{publish, run_until},
    relay::{Running, Target},
    stores::{Placed, World},
};
use sqlx::{Postgres, Sqlite};
use std::time::Duration;
use tokio::{sync::watch, task::JoinHandle};
use twinbox::{
    CancellationToken, Consumer, Delivery, Dialect, Draft, HandlerError, HandlerResult, RetryPolicy, Store,
    Tx,
    consumer::{self, EventHandler},
    event_handler,
    nats::Nats,
    relay::Relay,
};

/// Whether the handlers of a consumer are well.
type Health = watch::Sender<bool>;
const RETRY: RetryPolicy = RetryPolicy::exponential(Duration::from_millis(50), Duration::from_millis(100));

#[event_handler(consumer = "alerts.rejecting")]
async fn rejecting<DB: Dialect>(_tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Err(HandlerError::reject(format!("order {} has no customer", order.n)))
}

#[event_handler(consumer = "alerts.full")]
async fn filling<DB: Dialect>(_tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Err(HandlerError::reject(format!("order {} has no customer", order.n)))
}

#[event_handler(consumer = "alerts.failing", retry = RETRY, max_attempts = 1000)]
async fn failing<DB: Dialect>(
    health: &Health,
    _tx: &mut Tx<'_, DB>,
    _order: Delivery<Placed>,
) -> HandlerResult {
    if *health.borrow() { Ok(()) } else { Err("the printer is jammed".into()) }
}

#[event_handler(consumer = "alerts.slow", concurrency = 16)]
async fn slow<DB: Dialect>(health: &Health, _tx: &mut Tx<'_, DB>, _order: Delivery<Placed>) -> HandlerResult {
    health.subscribe().wait_for(|is_well| *is_well).await?;
    Ok(())
}

#[event_handler(consumer = "alerts.fine")]
pub(super) async fn fine<DB: Dialect>(_tx: &mut Tx<'_, DB>, _order: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "alerts.ordered", order = "key")]
async fn ordered<DB: Dialect>(_tx: &mut Tx<'_, DB>, _order: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

/// A consumer beside the test. The faults of keepers are another matter.
struct Consuming {
    stop: CancellationToken,
    running: JoinHandle<Result<(), consumer::Error>>,
}

impl Consuming {
    fn start<DB: Dialect, S: Send + Sync + 'static>(consumer: Consumer<DB, S>) -> Self {
        let stop = CancellationToken::new();
        Self { running: tokio::spawn(consumer.without_keeper().run(stop.clone())), stop }
    }

    /// Starts a consumer of the log.
    fn of<DB: Dialect, H: EventHandler<DB, S>, S: Send + Sync + 'static>(
        store: &Store<DB>,
        state: S,
    ) -> Self {
        Self::start(Consumer::new(store.clone(), state).handler::<H>())
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
    }
}

pub(super) async fn dead_letters(watch: &Watch) {
    let world = World::<Sqlite>::new().await;
    let dead = watch.silent("TwinboxConsumerDeadLetters", ("consumer", "alerts.rejecting")).await;
    publish(&world, 0..1).await;
    let consuming = Consuming::of::<_, rejecting, _>(&world, ());
    dead.fires().await;
    dead.clears().await;
    consuming.stop().await;
}

/// There is room for one dead letter, and another message would be one.
pub(super) async fn full(watch: &Watch) {
    let world = World::<Sqlite>::new().await;
    let waits = watch.silent("TwinboxConsumerDeadLettersWait", ("consumer", "alerts.full")).await;
    publish(&world, 0..2).await;
    let consumer = Consumer::new((*world).clone(), ()).dead_letter_bytes_max(1);
    let consuming = Consuming::start(consumer.handler::<filling>());
    waits.fires().await;
    waits.clears().await;
    assert_eq!(world.rows("dead_letters").await, 1);
    consuming.stop().await;
}

pub(super) async fn failures(watch: &Watch) {
    let (world, health) = (World::<Sqlite>::new().await, Health::new(false));
    let fails = watch.silent("TwinboxConsumerFails", ("consumer", "alerts.failing")).await;
    publish(&world, 0..10).await;
    let consuming = Consuming::of::<_, failing, _>(&world, health.clone());
    fails.fires().await;
    health.send_replace(true);
    fails.clears().await;
    consuming.stop().await;
}

/// Two messages with one id, as a producer with an error writes them.
pub(super) async fn conflicts(watch: &Watch) {
    let world = World::<Sqlite>::new().await;
    let conflict = watch.silent("TwinboxPayloadConflict", ("consumer", "alerts.fine")).await;
    for payload in ["{\"n\":1}", "{\"n\":2}"] {
        let mut tx = world.begin().await.unwrap();
        let draft = Draft::raw("orders.placed", 1, payload).id("order-1");
        world.outbox().publish_draft(&mut tx, draft).await.unwrap();
        tx.commit().await.unwrap();
    }
    let consuming = Consuming::of::<_, fine, _>(&world, ());
    conflict.fires().await;
    conflict.clears().await;
    consuming.stop().await;
}

/// A relay to a stream of one partition, and what consumers read it with.
struct Line {
    world: World<Postgres>,
    target: Target,
    relay: Running,
}

impl Line {
    async fn new() -> Self {
        let (world, target) = (World::<Postgres>::new().await, Target::shared());
        let nats = Nats::with_options(target.options().partitions(1)).unwrap();
        let relay = Running::run(Relay::new((*world).clone(), nats).without_keeper());
        Self { world, target, relay }
    }

    fn transport(&self) -> Nats {
        Nats::with_options(self.target.existing().partitions(1)).unwrap()
    }
}

pub(super) async fn lag(watch: &Watch) {
    let (line, health) = (Line::new().await, Health::new(false));
    let lags = watch.silent("TwinboxConsumerLags", ("consumer", "alerts.slow")).await;
    publish(&line.world, 0..1500).await;
    line.relay.published(1500).await;
    let consumer = Consumer::new((*line.world).clone(), health.clone()).transport(line.transport());
    let consuming = Consuming::start(consumer.handler::<slow>());
    lags.fires().await;
    health.send_replace(true);
    lags.clears().await;
    consuming.stop().await;
    line.relay.stop().await;
}

/// The stream drops messages while no consumer runs.
pub(super) async fn losses(watch: &Watch) {
    let line = Line::new().await;
    let lost = watch.silent("TwinboxMessagesLostByBroker", ("consumer", "alerts.ordered")).await;
    let consumer = || {
        let consumer = Consumer::new((*line.world).clone(), ()).transport(line.transport());
        consumer.handler::<ordered>().without_keeper()
    };
    publish(&line.world, 0..10).await;
    line.relay.published(10).await;
    run_until(consumer(), async || line.world.rows("inbox").await == 10).await;
    publish(&line.world, 10..20).await;
    line.relay.published(20).await;
    let stream = line.target.jetstream().await.get_stream(&line.target.name).await.unwrap();
    stream.purge().sequence(16).await.unwrap();
    let consuming = Consuming::start(consumer());
    lost.fires().await;
    lost.clears().await;
    consuming.stop().await;
    line.relay.stop().await;
}
