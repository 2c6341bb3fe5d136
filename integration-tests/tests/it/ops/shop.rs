//! A shop whose invoices are deployed well or badly.
use crate::support::{
    consumer::run_until,
    stores::{TestDb, World, effect},
    wait::{eventually, in_time},
};
use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use tokio::task::JoinHandle;
use twinbox::{
    CancellationToken, Consumer, Delivery, Dialect, Draft, Event, HandlerError, HandlerResult, Tx,
    event_handler,
    ops::{Ops, replays::Selection},
};

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
pub(super) struct Placed {
    pub(super) n: i64,
}

/// A deployment that is mended or not.
#[derive(Default)]
pub(super) struct Deployment {
    pub(super) rejects: AtomicBool,
    pub(super) wrong: AtomicBool,
}

#[event_handler(consumer = "billing.invoice")]
pub(super) async fn invoice<DB: Dialect>(
    deployed: &Arc<Deployment>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    if deployed.rejects.load(SeqCst) || order.n < 0 {
        return Err(HandlerError::reject(format!("order {} has no customer", order.n)));
    }
    let wrong = if deployed.wrong.load(SeqCst) { 1_000_000 } else { 0 };
    Ok(effect::<DB>(tx, order.n + wrong).await?)
}

/// Orders `order-N` of `customer-N`.
pub(super) async fn publish<DB: Dialect>(world: &World<DB>, numbers: std::ops::Range<i64>) {
    publish_sized(world, numbers, 0).await;
}

pub(super) async fn publish_sized<DB: Dialect>(
    world: &World<DB>,
    numbers: std::ops::Range<i64>,
    bytes: usize,
) {
    let draft = |n: i64| {
        let payload = format!("{{\"n\":{n}}}{}", " ".repeat(bytes));
        let draft = Draft::raw("orders.placed", 1, payload).id(format!("order-{n}"));
        draft.key(format!("customer-{}", n.abs() % 100))
    };
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish_all(&mut tx, numbers.map(draft).collect()).await.unwrap();
    tx.commit().await.unwrap();
}

pub(super) fn consumer<DB: TestDb>(
    world: &World<DB>,
    deployed: &Arc<Deployment>,
) -> Consumer<DB, Arc<Deployment>> {
    Consumer::new((**world).clone(), deployed.clone()).handler::<invoice>()
}

/// A world whose consumer has given so many orders up, and is mended.
pub(super) async fn given_up<DB: TestDb>(orders: i64) -> (World<DB>, Arc<Deployment>) {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    deployed.rejects.store(true, SeqCst);
    publish(&world, 0..orders).await;
    run_until(consumer(&world, &deployed), async || world.rows("dead_letters").await == orders).await;
    deployed.rejects.store(false, SeqCst);
    (world, deployed)
}

pub(super) struct Deployed {
    stop: CancellationToken,
    task: JoinHandle<Result<(), twinbox::consumer::Error>>,
}

impl Deployed {
    pub(super) fn start<DB: Dialect, S: Send + Sync + 'static>(consumer: Consumer<DB, S>) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(consumer.run(stop.clone())), stop }
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        in_time(self.task).await.unwrap().unwrap();
    }
}

/// Waits until the destination has settled that many.
pub(super) async fn settled(world: &World<Postgres>, messages: u64) {
    settled_by(world, "nats", messages).await;
}

/// Waits until a reader of the log has settled that many.
pub(super) async fn settled_by<DB: Dialect>(world: &World<DB>, reader: &str, messages: u64) {
    eventually(async || {
        let plan = Ops::new(world).plan_replay(reader, &Selection::new()).await;
        plan.ok().filter(|plan| plan.selected >= messages)
    })
    .await;
}
