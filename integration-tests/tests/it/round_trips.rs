//! How often each part asks the database and waits for the answer: its speed rests on that.
use crate::support::{
    consumer::run_until,
    database,
    operations::{answer, asked, key, policy},
    relay::{Running, Target, publish},
    round_trips::RoundTrips,
    stores::{Placed, World, effect},
};
use sqlx::Postgres;
use std::time::Duration;
use twinbox::{
    BatchTx, Consumer, Delivery, HandlerResult, Tx, event_handler,
    nats::Nats,
    operation::OperationStart,
    relay::{Relay, RelayOptions},
};

#[event_handler(consumer = "tests.trips", concurrency = 4)]
async fn single(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    Ok(())
}

#[event_handler(consumer = "tests.trips", concurrency = 4, batch = 100)]
async fn batch(tx: &mut BatchTx<'_, Postgres>, orders: Vec<Delivery<Placed>>) -> HandlerResult {
    let ns: Vec<_> = orders.iter().map(|order| order.n).collect();
    sqlx::query("INSERT INTO effects SELECT * FROM unnest($1::bigint[])").bind(ns).execute(&mut **tx).await?;
    Ok(())
}

const MESSAGES: u32 = 400;

/// A database whose round trips are counted, and a stream with messages.
async fn relayed() -> (World<Postgres>, RoundTrips, Nats) {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    publish(&world, 0..MESSAGES).await;
    let relay = Running::start(&*world, &target);
    relay.published(MESSAGES.into()).await;
    relay.stop().await;
    let trips = RoundTrips::of(world.url()).await;
    (world, trips, target.destination())
}

/// The beginning, the claim, the handler's statement, and the check with the commit: fewer than five. Start,
/// leases and looks come beside, the more of them the longer it takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_three_round_trips_beside_its_handler() {
    let (world, trips, nats) = relayed().await;
    let consumer = Consumer::new(trips.store.clone(), ()).transport(nats).handler::<single>();
    run_until(consumer, async || world.rows("inbox").await == i64::from(MESSAGES)).await;
    let count = trips.count();
    println!("{count} round trips for {MESSAGES} deliveries");
    assert!(count < 5 * u64::from(MESSAGES), "{count} round trips for {MESSAGES} deliveries");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_deliveries_is_as_many_round_trips_as_one() {
    let (world, trips, nats) = relayed().await;
    let consumer = Consumer::new(trips.store.clone(), ()).transport(nats).handler::<batch>();
    run_until(consumer, async || world.rows("inbox").await == i64::from(MESSAGES)).await;
    let count = trips.count();
    println!("{count} round trips for {MESSAGES} deliveries");
    assert!(count < u64::from(MESSAGES), "{count} round trips for {MESSAGES} deliveries");
}

/// A window and its page; by the clock, the cursor, a tick or a look: nothing for each message.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_asks_a_few_times_for_each_page() {
    const PAGE: u32 = 1000;
    const PAGES: u32 = 20;
    let (store, target) = (database::postgres().await, Target::shared());
    publish(&store, 0..PAGES * PAGE).await;
    let trips = RoundTrips::of(store.url()).await;
    let options = RelayOptions::new().page(PAGE as usize);
    let relay = Running::run(Relay::with_options(trips.store.clone(), target.destination(), options));
    relay.published((PAGES * PAGE).into()).await;
    let count = trips.count();
    println!("{count} round trips for {PAGES} pages");
    assert!(count < u64::from(PAGES * PAGE / 20), "{count} round trips for {PAGES} pages");
    relay.stop().await;
}

/// Some of them prepare their statements, or find that the connection was given back on a busy machine.
const OPERATIONS: i64 = 20;

/// The beginning, the claim of the key, the handler's statement, the response, and the commit.
#[tokio::test]
async fn an_operation_is_four_round_trips_beside_its_handler() {
    let world = World::<Postgres>::new().await;
    let trips = RoundTrips::of(world.url()).await;
    let operate = async |n: i64| {
        let name = &n.to_string();
        let (keys, key, policy) = (trips.store.idempotency_keys(), key(name), policy(Duration::ZERO));
        let begun = keys.begin(&key, &asked("{}"), &policy).await.unwrap();
        let OperationStart::Open(mut operation) = begun else { panic!("{name} is taken") };
        effect::<Postgres>(&mut operation.tx(), n).await.unwrap();
        operation.commit(&answer("{}")).await.unwrap();
    };
    let mut fewest = u64::MAX;
    for n in 0..OPERATIONS {
        let before = trips.count();
        operate(n).await;
        fewest = fewest.min(trips.count() - before);
    }
    assert_eq!(fewest, 5);
}
