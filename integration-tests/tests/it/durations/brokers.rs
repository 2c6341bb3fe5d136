//! Options of relays and of the clients of brokers.
use super::{is_long, tried};
use crate::support::{
    relay::{Running, Target, batches, publish},
    stores::{Placed, World, effect},
    wait::{eventually, in_time},
};
use serde_json::json;
use sqlx::Sqlite;
use twinbox::{
    CancellationToken, Consumer, Delivery, HandlerResult, Policy, Tx,
    aws::{EventBridge, EventBridgeOptions, Sqs, SqsOptions},
    consumer::handler_fn,
    nats::{Nats, NatsOptions, StreamOptions},
    relay::{Relay, RelayOptions},
    seam::destination::Destination,
};
use twinbox_testkit::aws::{FakeEventBridge, FakeSqs};

/// Lets a relay publish beside another that has the usual options. None: the options are refused.
async fn relay<D: Destination + 'static>(
    options: RelayOptions,
    destination: impl AsyncFnOnce() -> Option<D>,
    must: bool,
) {
    let world = World::<Sqlite>::new().await;
    publish(&world, 0..3).await;
    let Some(destination) = destination().await else { return };
    let relay = Relay::with_options((*world).clone(), destination, options);
    let (stop, counters) = (CancellationToken::new(), relay.counters());
    let running = tokio::spawn(relay.run(stop.clone()));
    let plain = Nats::with_options(Target::shared().options().id("plain")).unwrap();
    let plain = Running::run(Relay::new((*world).clone(), plain));
    plain.published(3).await;
    if must {
        eventually(async || (counters.published() >= 3 || running.is_finished()).then_some(())).await;
    }
    plain.stop().await;
    stop.cancel();
    let ended = in_time(running).await.unwrap();
    assert!(ended.is_ok() || !must, "{ended:?}");
}

fn of_relay() -> RelayOptions {
    RelayOptions::new()
}

async fn nats(set: impl FnOnce(NatsOptions) -> NatsOptions, must: bool) {
    let target = Target::shared();
    let options = set(target.options());
    relay(of_relay(), async || Nats::with_options(options).ok(), must).await;
}

async fn stream(set: impl FnOnce(StreamOptions) -> StreamOptions, must: bool) {
    nats(|options| options.create_stream(set(StreamOptions::default().batches(batches()))), must).await;
}

async fn event_bridge(set: impl FnOnce(EventBridgeOptions) -> EventBridgeOptions, must: bool) {
    let fake = FakeEventBridge::start("orders").await.unwrap();
    let options = EventBridgeOptions::new("orders").region("eu-west-1").endpoint_url(fake.endpoint_url());
    let options = set(options.credentials("any", "any", None));
    relay(of_relay(), async || EventBridge::with_options(options).ok(), must).await;
}

async fn write(_: &(), tx: &mut Tx<'_, Sqlite>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Sqlite>(tx, order.n).await?)
}

async fn sqs(set: impl FnOnce(SqsOptions) -> SqsOptions, must: bool) {
    const CONSUMER: &str = "tests.durations";
    let (world, fake) = (World::<Sqlite>::new().await, FakeSqs::start().await.unwrap());
    let options = SqsOptions::new().queue(CONSUMER, fake.queue(CONSUMER)).region("eu-west-1");
    let options = set(options.endpoint_url(fake.endpoint_url()).credentials("any", "any", None));
    let Ok(transport) = Sqs::with_options(options) else { return };
    let event = json!({
        "specversion": "1.0", "id": "1", "source": "shop", "type": "orders.placed",
        "time": "2026-01-01T00:00:00Z", "partitionkey": "1", "data": {"n": 1}
    });
    fake.send(event.to_string());
    let consumer = Consumer::new((*world).clone(), ()).transport(transport);
    let consumer = consumer.register(handler_fn(Policy::new(CONSUMER), write));
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    if must {
        eventually(async || (world.effects().await == [1] || running.is_finished()).then_some(())).await;
    }
    stop.cancel();
    let ended = in_time(running).await.unwrap();
    assert!(ended.is_ok() || !must, "{ended:?}");
}

tried! {
    "RelayOptions::lease": |d| relay(
        of_relay().lease(d), async || Some(Target::shared().destination()), is_long(d)),
    "RelayOptions::idle_poll": |d| relay(
        of_relay().idle_poll(d), async || Some(Target::shared().destination()), true),
    "NatsOptions::publish_timeout": |d| nats(|options| options.publish_timeout(d), is_long(d)),
    "NatsOptions::request_timeout": |d| nats(|options| options.request_timeout(d), is_long(d)),
    "NatsOptions::ping_interval": |d| nats(|options| options.ping_interval(d), is_long(d)),
    "NatsOptions::ack_wait": |d| nats(|options| options.ack_wait(d), is_long(d)),
    "StreamOptions::max_age": |d| stream(|options| options.max_age(d), true),
    "StreamOptions::duplicate_window": |d| stream(|options| options.duplicate_window(d), false),
    "EventBridgeOptions::publish_timeout": |d| event_bridge(|options| options.publish_timeout(d), is_long(d)),
    "EventBridgeOptions::connect_timeout": |d| event_bridge(|options| options.connect_timeout(d), is_long(d)),
    "EventBridgeOptions::request_timeout": |d| event_bridge(|options| options.request_timeout(d), is_long(d)),
    "EventBridgeOptions::describe_interval": |d| event_bridge(|options| options.describe_interval(d), true),
    "SqsOptions::visibility_timeout": |d| sqs(|options| options.visibility_timeout(d), is_long(d)),
    "SqsOptions::wait_time": |d| sqs(|options| options.wait_time(d), true),
    "SqsOptions::connect_timeout": |d| sqs(|options| options.connect_timeout(d), is_long(d)),
    "SqsOptions::request_timeout": |d| sqs(|options| options.request_timeout(d), is_long(d)),
}
