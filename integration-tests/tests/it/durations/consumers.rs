//! Options of consumers, readers and keepers.
use super::{is_long, tried};
use crate::support::{
    consumer::{publish, run_until},
    log::{open_with, take},
    stores::{Confirmed, Placed, World, effect},
};
use sqlx::Sqlite;
use std::time::Duration;
use twinbox::{
    Consumer, Delivery, HandlerError, HandlerResult, Policy, RetryPolicy, Store, Tx,
    consumer::handler_fn,
    log::{Keeper, LogTransport, OnMaxLag, ReaderOptions, Retention},
};

/// The effect of the plain handler.
const PLAIN: i64 = 1_000;

/// How the first attempt of a handler ends.
enum First {
    Succeeds,
    Fails,
    FailsAndWaits(Duration),
}

async fn write(first: &First, tx: &mut Tx<'_, Sqlite>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Sqlite>(tx, order.n).await?;
    match first {
        First::Fails if order.attempt() == 1 => Err("once more".into()),
        First::FailsAndWaits(wait) if order.attempt() == 1 => {
            Err(HandlerError::retry_after(*wait, "once more"))
        }
        _ => Ok(()),
    }
}

async fn plain(_: &First, tx: &mut Tx<'_, Sqlite>, order: Delivery<Confirmed>) -> HandlerResult {
    Ok(effect::<Sqlite>(tx, PLAIN + order.n).await?)
}

type Consumes = Consumer<Sqlite, First>;

/// Lets a consumer handle messages, of which `must` have to be handled. Those of the plain handler have to be
/// in any case.
async fn consume(
    policy: Policy,
    first: First,
    must: bool,
    set: impl FnOnce(&Store<Sqlite>, Consumes) -> Consumes,
) {
    let world = World::<Sqlite>::new().await;
    publish(&world, 1..3).await;
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish(&mut tx, &Confirmed { n: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    let consumer = Consumer::new((*world).clone(), first)
        .register(handler_fn(policy, write))
        .register(handler_fn(Policy::new("tests.plain"), plain));
    let expected: &[i64] = if must { &[1, 2, PLAIN + 1] } else { &[PLAIN + 1] };
    run_until(set(&world, consumer), async || {
        let effects = world.effects().await;
        expected.iter().all(|n| effects.contains(n))
    })
    .await;
}

const POLICY: Policy = Policy::new("tests.durations");

type Keeps = Keeper<Sqlite>;

async fn keep(set: fn(Keeps, Duration) -> Keeps, duration: Duration) {
    let world = World::<Sqlite>::new().await;
    assert!(set(Keeper::new(&world), duration).purge().await.error.is_none());
    let with = |store: &Store<Sqlite>, consumer: Consumes| consumer.keeper(set(Keeper::new(store), duration));
    consume(POLICY, First::Succeeds, true, with).await;
}

async fn read(options: ReaderOptions) {
    let world = World::<Sqlite>::new().await;
    publish(&world, 1..3).await;
    let mut reader = open_with(&world, "durations", options).await;
    take(&mut reader, 2).await;
    reader.close().await.unwrap();
}

async fn retry(policy: RetryPolicy, duration: Duration) {
    consume(POLICY.retry(policy), First::Fails, !is_long(duration), |_, consumer| consumer).await;
}

fn listed(duration: Duration) -> RetryPolicy {
    if is_long(duration) {
        RetryPolicy::listed(&[Duration::MAX])
    } else {
        RetryPolicy::listed(&[Duration::ZERO])
    }
}

tried! {
    "Consumer::lease": |d| consume(POLICY, First::Succeeds, true, |_, consumer| consumer.lease(d)),
    "Consumer::drain": |d| consume(POLICY, First::Succeeds, true, |_, consumer| consumer.drain(d)),
    "Policy::timeout": |d| consume(POLICY.timeout(d), First::Succeeds, is_long(d), |_, consumer| consumer),
    "HandlerError::retry_after": |d| consume(
        POLICY, First::FailsAndWaits(d), !is_long(d), |_, consumer| consumer),
    "RetryPolicy::exponential": |d| retry(RetryPolicy::exponential(d, d), d),
    "RetryPolicy::listed": |d| retry(listed(d), d),
    "LogTransport::lease": |d| consume(POLICY, First::Succeeds, true, |store, consumer| {
        consumer.transport(LogTransport::new(store).lease(d))
    }),
    "ReaderOptions::lease": |d| read(ReaderOptions::new().lease(d)),
    "ReaderOptions::idle_poll": |d| read(ReaderOptions::new().idle_poll(d)),
    "Keeper::keep_effects": |d| keep(|keeper, d| keeper.keep_effects(d, d), d),
    "Keeper::keep_job_runs": |d| keep(Keeper::keep_job_runs, d),
    "Keeper::every": |d| keep(Keeper::every, d),
    "Keeper::first_look": |d| keep(Keeper::first_look, d),
    "Retention::new": |d| keep(|keeper, d| keeper.keep(Retention::new(d)), d),
    "Retention::max_lag": |d| keep(
        |keeper, d| keeper.keep(Retention::new(Duration::ZERO).max_lag(d, OnMaxLag::Detach)), d),
}
