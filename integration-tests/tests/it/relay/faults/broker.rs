//! NATS is down, full, or does not respond.
use super::*;
use async_nats::jetstream::stream::{self, DiscardPolicy};
use twinbox::{
    aws::{EventBridge, EventBridgeOptions},
    relay::CircuitBreakerState,
};
use twinbox_testkit::aws::FakeEventBridge;

/// The shortest pause between two tries of a connection.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Pauses between tries of a server that is down.
const PAUSES: u32 = 6;

async fn proxied(server: &NatsServer) -> (Proxy, Target, Target) {
    let proxy = Proxy::start(nats_address(&server.url())).await.unwrap();
    let direct = Target::at(server.url());
    let target = direct.by(format!("nats://{}", proxy.address()));
    (proxy, direct, target)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_10_broker_down_at_start_and_during_the_run() {
    let (store, mut server) = (postgres().await, NatsServer::start().unwrap());
    let (proxy, direct, target) = proxied(&server).await;
    server.kill().unwrap();
    publish(&store, 0..200).await;
    let started = Instant::now();
    let running = Running::run(target.quick(&store));
    eventually(async || (proxy.connections() > PAUSES.into()).then_some(())).await;
    assert!(started.elapsed() >= PAUSES * PAUSE_MIN, "{:?}: no pauses between tries", started.elapsed());
    assert_eq!(running.counters.published(), 0);
    server.restart().unwrap();
    running.published(200).await;

    server.kill().unwrap();
    publish(&store, 200..400).await;
    let tries = proxy.connections();
    eventually(async || (proxy.connections() > tries).then_some(())).await;
    assert_eq!(running.counters.published(), 200);
    server.restart().unwrap();
    running.published(400).await;
    let counters = running.stop().await;
    assert_eq!((counters.refused(), counters.parked(), counters.dead_letters()), (0, 0, 0));
    nothing_is_parked(&store).await;
    assert_whole_and_ordered(&direct.messages(400).await, 400);
    assert_eq!(direct.count().await, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_11_the_answer_to_a_publish_is_lost() {
    let (store, server) = (postgres().await, NatsServer::start().unwrap());
    let (proxy, direct, target) = proxied(&server).await;
    let running = Running::run(target.quick(&store));
    publish(&store, 0..50).await;
    running.published(50).await;
    for n in 1..=3 {
        proxy.lose_answer_to(format!("HPUB {}", target.prefix()));
        publish(&store, n * 50..(n + 1) * 50).await;
        running.published(u64::from(n + 1) * 50).await;
    }
    let counters = running.stop().await;
    assert!(counters.duplicates() >= 3, "{} duplicates", counters.duplicates());
    assert_eq!(counters.renamed(), 0, "each was in doubt before it was sent again");
    assert_eq!((counters.refused(), counters.dead_letters()), (0, 0));
    nothing_is_parked(&store).await;
    direct.whole(200).await;
    assert_eq!(direct.count().await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_13_broker_restarts_and_keeps_its_state() {
    let (store, mut server) = (postgres().await, NatsServer::start().unwrap());
    let target = Target::at(server.url());
    let running = Running::run(target.quick(&store));
    let traffic = Traffic::start(&store);
    for n in 1..=3 {
        running.published(n * 100).await;
        server.restart().unwrap();
    }
    running.published(running.counters.published() + 50).await;
    traffic.stop().await;
    let count = committed(&store).await;
    target.whole(count).await;
    let counters = running.stop().await;
    assert_eq!(target.count().await, count as u64, "the stream drops duplicates");
    assert_eq!((counters.refused(), counters.dead_letters(), counters.renamed()), (0, 0, 0));
    nothing_is_parked(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_17_a_full_stream_holds_the_log_back() {
    let (store, target) = (postgres().await, Target::shared());
    let full =
        stream::Config { max_messages: 10, discard: DiscardPolicy::New, ..target.config(&["orders.placed"]) };
    target.create(full.clone()).await;
    publish(&store, 0..100).await;
    let destination = Nats::with_options(target.existing().publish_timeout(PUBLISH_TIMEOUT)).unwrap();
    let relay = Relay::with_options((*store).clone(), destination, RelayOptions::new().lease(LEASE));
    let running = Running::run(relay);
    let mut arrived = target.messages(10).await;
    nothing_is_parked(&store).await;
    let stream = target.jetstream().await.get_stream(&target.name).await.unwrap();
    stream.purge().await.unwrap();
    arrived.extend(target.messages(10).await);
    nothing_is_parked(&store).await;
    stream.purge().await.unwrap();
    target.update(stream::Config { max_messages: -1, ..full }).await;
    arrived.extend(target.messages(80).await);
    assert_whole_and_ordered(&arrived, 100);
    let counters = running.stop().await;
    assert_eq!((counters.refused(), counters.dead_letters()), (0, 0));
    nothing_is_parked(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_54_half_open_connection_to_the_broker() {
    let (store, server) = (postgres().await, NatsServer::start().unwrap());
    let (proxy, direct, target) = proxied(&server).await;
    let running = Running::run(target.quick(&store));
    publish(&store, 0..50).await;
    running.published(50).await;
    proxy.freeze_open();
    let frozen = Instant::now();
    publish(&store, 50..100).await;
    running.published(100).await;
    assert!(frozen.elapsed() < 4 * PUBLISH_TIMEOUT + BUSY, "{:?}", frozen.elapsed());

    // New connections get no response either, until the circuit breaker is open.
    proxy.freeze();
    publish(&store, 100..150).await;
    eventually(async || (running.breaker.state() == CircuitBreakerState::Open).then_some(())).await;
    assert_eq!(running.counters.published(), 100);
    proxy.thaw();
    running.published(150).await;
    let counters = running.stop().await;
    assert_eq!((counters.refused(), counters.dead_letters()), (0, 0));
    nothing_is_parked(&store).await;
    direct.whole(150).await;
    assert_eq!(direct.count().await, 150);
}

/// The circuit breaker of one destination opens and closes all the time; the other destinations continue.
#[tokio::test(flavor = "multi_thread")]
async fn row_51_one_bad_destination_of_three() {
    let (store, good, fake) =
        (postgres().await, Target::shared(), FakeEventBridge::start("orders").await.unwrap());
    let mut server = NatsServer::start().unwrap();
    let bad = Target::at(server.url());
    let options = bad.options().id("bad").publish_timeout(PUBLISH_TIMEOUT);
    let to_bad = Relay::new((*store).clone(), Nats::with_options(options).unwrap());
    let (to_good, to_bad) = (Running::run(good.quick(&store)), Running::run(to_bad));
    let options = EventBridgeOptions::new("orders").region("eu-west-1").endpoint_url(fake.endpoint_url());
    let bus = EventBridge::with_options(options.credentials("AKIDTEST", "secret", None)).unwrap();
    let to_bus = Running::run(Relay::new((*store).clone(), bus));
    let mut slowest = Duration::ZERO;
    for n in 0..12 {
        match n % 4 {
            0 => server.kill().unwrap(),
            2 => server.restart().unwrap(),
            _ => {}
        }
        let at = Instant::now();
        publish(&store, n * 20..(n + 1) * 20).await;
        to_good.published(u64::from(n + 1) * 20).await;
        to_bus.published(u64::from(n + 1) * 20).await;
        slowest = slowest.max(at.elapsed());
    }
    assert!(slowest < 2 * BUSY, "{slowest:?}");
    server.restart().unwrap();
    bad.whole(240).await;
    for relay in [to_good, to_bad, to_bus] {
        let counters = relay.stop().await;
        assert_eq!((counters.refused(), counters.parked(), counters.dead_letters()), (0, 0, 0));
    }
    for target in [good, bad] {
        assert_whole_and_ordered(&target.messages(240).await, 240);
        assert_eq!(target.count().await, 240);
    }
    assert_eq!(fake.taken().len(), 240);
    nothing_is_parked(&store).await;
}
