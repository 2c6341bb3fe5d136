//! NATS delivers late, forgets consumers, loses acknowledgements, and is old.
use crate::support::{
    broker_users::host_of,
    consumer::{Gate, publish, run_until},
    publisher::{secret, send_again},
    relay::{Running, Target},
    stores::{Confirmed, Placed, World, chain, effect, placed},
    wait::{eventually, in_time},
};
use async_nats::{HeaderMap, jetstream};
use sqlx::Postgres;
use std::{sync::Arc, time::Duration};
use twinbox::{
    CancellationToken, Consumer, Delivery, HandlerResult, Message, Tx,
    consumer::ErrorKind as ConsumerErrorKind,
    event_handler,
    nats::{Nats, StreamOptions},
    seam::destination::Destination as _,
};
use twinbox_testkit::{
    proxy::{Proxy, Side},
    servers::{NatsOptions as ServerOptions, NatsServer, find},
};

pub(super) const CONSUMER: &str = "tests.broker";

#[event_handler(consumer = "tests.broker")]
pub(super) async fn note(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, order.n).await?)
}

#[event_handler(consumer = "tests.broker")]
async fn confirm(tx: &mut Tx<'_, Postgres>, order: Delivery<Confirmed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, 1000 + order.n).await?)
}

#[event_handler(consumer = "tests.in_order", order = "key")]
pub(super) async fn in_order(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, 2000 + order.n).await?)
}

#[event_handler(consumer = "tests.broker")]
async fn gated(gate: &Arc<Gate>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    gate.pass(order.n).await;
    Ok(())
}

pub(super) async fn send(nats: &Nats, messages: &[&Message]) {
    let mut publisher = nats.connect(&secret()).await.unwrap();
    for sent in send_again(&mut *publisher, messages).await {
        sent.unwrap();
    }
}

pub(super) fn running<S: Send + Sync + 'static>(
    consumer: Consumer<Postgres, S>,
) -> (CancellationToken, tokio::task::JoinHandle<Result<(), twinbox::consumer::Error>>) {
    let stop = CancellationToken::new();
    (stop.clone(), tokio::spawn(consumer.run(stop)))
}

/// The broker has forgotten the id by then, so the copy is a message of its own to it.
#[tokio::test(flavor = "multi_thread")]
async fn row_12_an_old_copy_comes_after_newer_messages() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    target.create(target.forgetful(&["orders.placed"])).await;
    let nats = Nats::with_options(target.existing()).unwrap();
    let messages = [placed(1), placed(2), placed(3)].map(|m| Message { key: Some("k".into()), ..m });
    send(&nats, &Vec::from_iter(&messages)).await;
    let consumer = Consumer::new((*world).clone(), ()).transport(nats.clone());
    let (stop, consuming) = running(consumer.handler::<note>().handler::<in_order>());
    eventually(async || (world.rows("inbox").await == 6).then_some(())).await;
    let last = Message { key: Some("k".into()), ..placed(4) };
    eventually(async || {
        // Until the broker has forgotten it.
        send(&nats, &[&messages[0]]).await;
        (target.count().await > 3).then_some(())
    })
    .await;
    send(&nats, &[&last]).await;
    eventually(async || (world.rows("inbox").await == 8).then_some(())).await;
    stop.cancel();
    in_time(consuming).await.unwrap().unwrap();
    assert_eq!(world.effects().await, [1, 2, 3, 4, 2001, 2002, 2003, 2004]);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_a_consumer_that_is_deleted_is_made_again_and_one_that_was_changed_is_refused() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    publish(&world, 0..5).await;
    relay.published(5).await;
    let nats = Nats::with_options(target.existing()).unwrap();
    let consumer = || Consumer::new((*world).clone(), ()).transport(nats.clone()).handler::<note>();
    let (stop, consuming) = running(consumer());
    eventually(async || (world.rows("inbox").await == 5).then_some(())).await;
    let stream = target.jetstream().await.get_stream(&target.name).await.unwrap();
    stream.delete_consumer("tests_broker").await.unwrap();
    publish(&world, 5..10).await;
    eventually(async || (world.rows("inbox").await == 10).then_some(())).await;
    stop.cancel();
    in_time(consuming).await.unwrap().unwrap();
    assert_eq!(world.effects().await, Vec::from_iter(0..10));

    let config = jetstream::consumer::pull::Config {
        durable_name: Some("tests_broker".to_owned()),
        description: Some(CONSUMER.to_owned()),
        max_deliver: 3,
        ..Default::default()
    };
    stream.delete_consumer("tests_broker").await.unwrap();
    stream.create_consumer(config).await.unwrap();
    let error = in_time(consumer().run(CancellationToken::new())).await.unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Source);
    let error = chain(&error);
    assert!(error.contains("max_deliver = 3 on the server and -1 was asked for"), "{error}");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19_an_old_server_is_used_for_what_it_can_and_refused_for_what_it_would_ignore() {
    let binary = find::nats_server_old().unwrap();
    let server = NatsServer::start_with(ServerOptions::default().binary(binary)).unwrap();
    let (world, target) = (World::<Postgres>::new().await, Target::at(server.url()));
    let relay = Running::start(&*world, &target);
    publish(&world, 0..5).await;
    relay.published(5).await;
    let nats = Nats::with_options(target.existing()).unwrap();
    let consumer = || Consumer::new((*world).clone(), ()).transport(nats.clone());
    let both = consumer().handler::<note>().handler::<in_order>();
    run_until(both, async || world.rows("inbox").await == 10).await;
    assert_eq!(world.effects().await, Vec::from_iter((0..5).chain(2000..2005)));
    let two_types = consumer().handler::<note>().handler::<confirm>();
    let error = in_time(two_types.run(CancellationToken::new())).await.unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Source);
    let error = chain(&error);
    assert!(error.contains("needs NATS server 2.10 or newer, and this is 2.9"), "{error}");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_the_acknowledgement_is_lost_after_the_commit() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    publish(&world, 1..2).await;
    relay.published(1).await;
    let address = host_of(&target.url).parse().unwrap();
    let proxy = Proxy::start(address).await.unwrap();
    let options = target
        .through(&proxy)
        .existing()
        .ack_wait(Duration::from_secs(2))
        .request_timeout(Duration::from_secs(1));
    let (gate, mut entries) = Gate::new();
    let nats = Nats::with_options(options).unwrap();
    let (stop, consuming) =
        running(Consumer::new((*world).clone(), gate.clone()).transport(nats).handler::<gated>());
    assert_eq!(in_time(entries.recv()).await, Some(1));
    proxy.drop_what_comes_from(Some(Side::Client));
    gate.leave.add_permits(1);
    eventually(async || (world.rows("inbox").await == 1).then_some(())).await;
    eventually(async || (target.deliveries(CONSUMER).await >= 2).then_some(())).await;
    proxy.cut();
    proxy.drop_what_comes_from(None);
    proxy.restore();
    eventually(async || (target.unsettled(CONSUMER).await == 0).then_some(())).await;
    stop.cancel();
    in_time(consuming).await.unwrap().unwrap();
    assert_eq!(world.effects().await, [1]);
    assert!(entries.try_recv().is_err(), "its handler did not run again");
    relay.stop().await;
}

/// Deletes its own consumer, so that nobody is there to take note.
#[event_handler(consumer = "tests.broker")]
async fn deletes(target: &Arc<Target>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    if order.n == 1 {
        let stream = target.jetstream().await.get_stream(&target.name).await?;
        stream.delete_consumer("tests_broker").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_21_an_acknowledgement_to_a_consumer_that_is_gone() {
    let (world, target) = (World::<Postgres>::new().await, Arc::new(Target::shared()));
    let relay = Running::start(&*world, &target);
    publish(&world, 1..2).await;
    relay.published(1).await;
    let nats = Nats::with_options(target.existing()).unwrap();
    let (stop, consuming) =
        running(Consumer::new((*world).clone(), target.clone()).transport(nats).handler::<deletes>());
    eventually(async || (world.rows("inbox").await == 1).then_some(())).await;
    publish(&world, 2..3).await;
    eventually(async || (world.rows("inbox").await == 2).then_some(())).await;
    eventually(async || (target.unsettled(CONSUMER).await == 0).then_some(())).await;
    stop.cancel();
    in_time(consuming).await.unwrap().unwrap();
    assert_eq!(world.effects().await, [1, 2]);
    assert_eq!(target.deliveries(CONSUMER).await, 2, "the message was delivered by the new one as well");
    relay.stop().await;
}

/// The new stream counts from 1 again.
#[tokio::test(flavor = "multi_thread")]
async fn each_unreadable_message_is_kept_although_the_stream_was_made_anew() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let nats = target.destination();
    let jetstream = target.jetstream().await;
    let subject = format!("{}.0.orders.placed", target.prefix());
    for (dead_letters, garbage) in [(2, "first"), (4, "second")] {
        nats.provision(&StreamOptions::default()).await.unwrap();
        jetstream.publish(subject.clone(), garbage.into()).await.unwrap().await.unwrap();
        let consumer = Consumer::new((*world).clone(), ()).transport(nats.clone());
        let consumer = consumer.handler::<note>().handler::<in_order>();
        run_until(consumer, async || world.rows("dead_letters").await == dead_letters).await;
        jetstream.delete_stream(&target.name).await.unwrap();
    }
    let dead_letters = world.inbox(CONSUMER).dead_letters(10).await.unwrap();
    let kept = Vec::from_iter(dead_letters.iter().map(|dead_letter| &*dead_letter.message.payload));
    assert_eq!(kept, [b"second".as_slice(), b"first"]);
}

/// The source fails while a handler runs, and the handler is not what failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_lives_on_beside_the_source_that_comes_after_the_one_that_failed() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    publish(&world, 1..2).await;
    relay.published(1).await;
    let (gate, mut entries) = Gate::new();
    let nats = Nats::with_options(target.existing()).unwrap();
    let (stop, consuming) =
        running(Consumer::new((*world).clone(), gate.clone()).transport(nats).handler::<gated>());
    assert_eq!(in_time(entries.recv()).await, Some(1));
    let stream = target.jetstream().await.get_stream(&target.name).await.unwrap();
    stream.delete_consumer("tests_broker").await.unwrap();
    publish(&world, 2..3).await;
    assert_eq!(in_time(entries.recv()).await, Some(2));
    assert_eq!(world.rows("inbox").await, 0, "the first runs still");
    gate.leave.add_permits(2);
    eventually(async || (world.rows("inbox").await == 2).then_some(())).await;
    eventually(async || (target.unsettled(CONSUMER).await == 0).then_some(())).await;
    stop.cancel();
    in_time(consuming).await.unwrap().unwrap();
    assert_eq!(world.effects().await, [1, 2]);
    assert!(entries.try_recv().is_err(), "each ran once");
    relay.stop().await;
}

#[event_handler(consumer = "tests.broker", concurrency = 1)]
async fn stuck(gate: &Arc<Gate>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    gate.pass(order.n).await;
    Ok(())
}

#[event_handler(consumer = "tests.broker", concurrency = 1)]
async fn quick(_: &Arc<Gate>, tx: &mut Tx<'_, Postgres>, order: Delivery<Confirmed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, 1000 + order.n).await?)
}

/// More of the slow one than may run or wait come first.
#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_is_slow_holds_up_no_other_of_its_consumer() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    publish(&world, 0..12).await;
    let mut tx = world.begin().await.unwrap();
    for n in 0..3 {
        world.outbox().publish(&mut tx, &Confirmed { n }).await.unwrap();
    }
    tx.commit().await.unwrap();
    relay.published(15).await;
    let (gate, mut entries) = Gate::new();
    let consumer = Consumer::new((*world).clone(), gate.clone());
    let nats = Nats::with_options(target.existing()).unwrap();
    let (stop, consuming) = running(consumer.transport(nats).handler::<stuck>().handler::<quick>());
    in_time(entries.recv()).await.unwrap();
    eventually(async || (world.rows("inbox").await == 3).then_some(())).await;
    assert_eq!(world.effects().await, [1000, 1001, 1002]);
    gate.leave.add_permits(12);
    eventually(async || (world.rows("inbox").await == 15).then_some(())).await;
    stop.cancel();
    in_time(consuming).await.unwrap().unwrap();
    relay.stop().await;
}

/// A message is worth more than its trace.
#[tokio::test(flavor = "multi_thread")]
async fn row_49_a_trace_that_cannot_be_read_is_left_out() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let nats = target.destination();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let jetstream = target.jetstream().await;
    let traces = ["", "garbage", "00-0-0-0", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"];
    for (n, trace) in (0..).zip(traces) {
        let mut headers = HeaderMap::new();
        let attributes = [
            ("ce-specversion", "1.0"),
            ("ce-id", &format!("{n}")),
            ("ce-source", "shop"),
            ("ce-type", "orders.placed"),
            ("ce-time", "2026-01-01T00:00:00Z"),
            ("ce-traceparent", trace),
            ("traceparent", trace),
            ("tracestate", &"k=v,".repeat(2048)),
        ];
        attributes.iter().for_each(|(name, value)| headers.insert(*name, *value));
        let subject = format!("{}.0.orders.placed", target.prefix());
        let sent = jetstream.publish_with_headers(subject, headers, format!("{{\"n\":{n}}}").into()).await;
        sent.unwrap().await.unwrap();
    }
    let consumer =
        Consumer::new((*world).clone(), ()).transport(nats).handler::<note>().handler::<in_order>();
    run_until(consumer, async || world.rows("inbox").await == 8).await;
    assert_eq!(world.effects().await, [0, 1, 2, 3, 2000, 2001, 2002, 2003]);
    assert_eq!(world.rows("dead_letters").await, 0);
}
