//! Consumers, of the log and of a broker, and what operators do with their dead letters.
use super::{Program, act_on_dead_letters, replay};
use crate::support::{
    jobs::execute,
    relay::{Running, Target},
    stores::{Confirmed, Placed, TestDb, World, effect},
};
use futures::future::BoxFuture;
use std::{panic::resume_unwind, time::Duration};
use twinbox::{
    BatchTx, CancellationToken, Consumer, Delivery, Dialect, Draft, HandlerError, HandlerResult, RetryPolicy,
    Store, Tx, event_handler,
    log::Keeper,
    nats::Nats,
    ops::{
        Ops,
        dead_letters::{DeadLetterAction, DeadLetterFilter},
        replays::NewReplay,
    },
};

const RETRY: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(10); 4]);
const SINGLE: &str = "tests.silence";
const ORDERED_CONSUMER: &str = "tests.silence_ordered";
/// Messages of each feed.
const KINDS: i64 = 8;
/// The places of batches and of ordered handlers among the effects.
const BATCH: i64 = 1_000_000;
const ORDERED: i64 = 2_000_000;

#[event_handler(consumer = "tests.silence", concurrency = 16, retry = RETRY, max_attempts = 3)]
async fn single<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    match (order.n % KINDS, order.attempt()) {
        (1, 1) => Err("once more".into()),
        (2, _) => Err(HandlerError::reject("never")),
        (3, 1) => resume_unwind(Box::new("once")),
        _ => Ok(()),
    }
}

#[event_handler(consumer = "tests.silence_batch", batch = 10, retry = RETRY)]
async fn batch<DB: Dialect>(tx: &mut BatchTx<'_, DB>, orders: Vec<Delivery<Placed>>) -> HandlerResult {
    for order in orders {
        effect::<DB>(tx, BATCH + order.n).await?;
    }
    Ok(())
}

#[event_handler(consumer = "tests.silence_ordered", order = "key", retry = RETRY, max_attempts = 3)]
async fn ordered<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, ORDERED + order.n).await?;
    match (order.n % KINDS, order.attempt()) {
        (1, 1) => Err("once more".into()),
        (2, _) => Err(HandlerError::reject("never")),
        _ => Ok(()),
    }
}

fn consumer<DB: Dialect>(store: &Store<DB>) -> Consumer<DB, ()> {
    let keeper = Keeper::new(store).every(Duration::from_secs(1)).first_look(Duration::ZERO);
    let consumer = Consumer::new(store.clone(), ()).keeper(keeper).drain(Duration::from_secs(5));
    consumer.handler::<single>().handler::<batch>().handler::<ordered>()
}

async fn feed<DB: TestDb>(world: &World<DB>, n: i64) {
    let mut tx = world.begin().await.unwrap();
    let drafts = (KINDS * n..KINDS * (n + 1)).map(|n| Draft::of(&Placed { n }).unwrap()).collect();
    world.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
    let ops = Ops::new(world.owner());
    let filter = DeadLetterFilter { consumer: Some(SINGLE.to_owned()), ..DeadLetterFilter::default() };
    let ordered =
        DeadLetterFilter { consumer: Some(ORDERED_CONSUMER.to_owned()), ..DeadLetterFilter::default() };
    match n % 8 {
        0 | 2 => act_on_dead_letters(&ops, &ordered, DeadLetterAction::Redrive, false).await,
        1 => act_on_dead_letters(&ops, &filter, DeadLetterAction::Redrive, false).await,
        3 => act_on_dead_letters(&ops, &filter, DeadLetterAction::Redrive, true).await,
        5 if is_done(world, n - 4).await => {
            let again = KINDS * (n - 4) + 4;
            execute(world, format!("DELETE FROM effects WHERE n = {again}")).await;
            let readers = ops.readers().await.unwrap();
            let own = readers.iter().find(|reader| reader.name == format!("consumer:{SINGLE}"));
            let reader = &own.unwrap_or(&readers[0]).name;
            replay(&ops, reader, again.to_string(), NewReplay::reprocess(SINGLE, "ada")).await;
        }
        _ => {}
    }
}

async fn is_done<DB: TestDb>(world: &World<DB>, n: i64) -> bool {
    let n = KINDS * n;
    let done = format!("SELECT count(*) FROM effects WHERE n IN ({n}, {}, {})", BATCH + n, ORDERED + n);
    world.number(done).await == 3
}

/// A consumer that reads the log itself.
pub(in super::super) struct LogConsumer;

impl<DB: TestDb> Program<DB> for LogConsumer {
    const NAME: &str = "consumer of the log";

    async fn new(_: &World<DB>) -> Self {
        Self
    }

    fn run(&self, store: Store<DB>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move { consumer(&store).run(stop).await.unwrap() })
    }

    async fn feed(&self, world: &World<DB>, n: i64) {
        feed(world, n).await;
    }

    async fn is_done(&self, world: &World<DB>, n: i64) -> bool {
        is_done(world, n).await
    }
}

/// A consumer of a broker, behind a relay that nothing happens to.
pub(in super::super) struct NatsConsumer {
    target: Target,
    _relay: Running,
}

impl<DB: TestDb> Program<DB> for NatsConsumer {
    const NAME: &str = "consumer of NATS";

    async fn new(world: &World<DB>) -> Self {
        let target = Target::shared();
        let relay = Running::start(&**world, &target);
        feed(world, -1).await;
        relay.published(1).await;
        Self { target, _relay: relay }
    }

    fn run(&self, store: Store<DB>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let nats = Nats::with_options(self.target.existing()).unwrap();
        Box::pin(async move { consumer(&store).transport(nats).run(stop).await.unwrap() })
    }

    async fn feed(&self, world: &World<DB>, n: i64) {
        feed(world, n).await;
    }

    async fn is_done(&self, world: &World<DB>, n: i64) -> bool {
        is_done(world, n).await
    }
}
