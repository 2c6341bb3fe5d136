//! Attacks of others on the same broker: a neighbour that may publish types of its own and hear orders, and a
//! spy that may use the inboxes of clients.
mod answers;
mod database;
mod growth;
mod options;
mod permissions;

use crate::support::{
    consumer::run_until,
    logged::Lines,
    program::Program,
    relay::{PATIENCE, Running},
    shared_broker::SharedBroker,
    stores::{Placed, World, effect},
    wait::{eventually, in_time},
};
use async_nats::{
    Client, Event as ClientEvent, HeaderMap,
    jetstream::{self, consumer::pull, stream::DiscardPolicy},
};
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use tokio::{sync::mpsc, time::timeout};
use twinbox::{
    Consumer, Delivery, Draft, Event, HandlerResult, MessageId, Tx, event_handler, id,
    nats::{Nats, StreamOptions},
    relay::Relay,
};

const STREAM: &str = "EVENTS";

#[derive(Debug, Clone, Serialize, Deserialize, Event)]
#[event(type = "reviews.written", version = 1, key = n)]
struct Written {
    n: i64,
}

#[event_handler(consumer = "billing.invoice")]
async fn invoice(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, order.n).await?)
}

#[event_handler(consumer = "billing.invoice")]
async fn review(tx: &mut Tx<'_, Postgres>, review: Delivery<Written>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, 1000 + review.n).await?)
}

#[event_handler(consumer = "search.index", order = "key")]
async fn index(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, 2000 + order.n).await?)
}

async fn start() -> (World<Postgres>, SharedBroker) {
    (World::new().await, SharedBroker::with_stream(&StreamOptions::default()).await)
}

fn billing(world: &World<Postgres>, broker: &SharedBroker) -> Consumer<Postgres, ()> {
    let consumer = Consumer::new((**world).clone(), ()).transport(broker.nats("billing"));
    consumer.handler::<invoice>().handler::<review>()
}

fn search(world: &World<Postgres>, broker: &SharedBroker) -> Consumer<Postgres, ()> {
    Consumer::new((**world).clone(), ()).transport(broker.nats("search")).handler::<index>()
}

/// The program, as the user of the book.
async fn relay(world: &World<Postgres>, broker: &SharedBroker) -> Program {
    Program::run(world.url(), &[], &destination(broker)).await
}

/// The stream of the book, for the file of the relay.
fn destination(broker: &SharedBroker) -> String {
    format!(
        "[destinations.main]\nkind = \"nats\"\nstart = \"beginning\"\nurl = {:?}\n\
         inbox_prefix = \"_INBOX_relay\"\n",
        broker.url("relay")
    )
}

/// Commits orders with event ids that the application has chosen: `order-0` and so on.
async fn place(world: &World<Postgres>, numbers: std::ops::Range<i64>) {
    let mut tx = world.begin().await.unwrap();
    let drafts = numbers.map(|n| Draft::of(&Placed { n }).unwrap().id(format!("order-{n}")));
    world.outbox().publish_all(&mut tx, drafts.collect()).await.unwrap();
    tx.commit().await.unwrap();
}

/// How many messages of a subject the stream has.
async fn held(broker: &SharedBroker, subject: &str) -> u64 {
    let jetstream = jetstream::new(broker.client("admin").await);
    let stream = jetstream.get_stream(STREAM).await.unwrap();
    let config = pull::Config { filter_subject: subject.to_owned(), ..Default::default() };
    stream.create_consumer(config).await.unwrap().cached_info().num_pending
}

async fn holds(broker: &SharedBroker, subject: &str, count: u64) {
    let whole = eventually(async || (held(broker, subject).await >= count).then_some(()));
    assert!(timeout(PATIENCE, whole).await.is_ok(), "{} of {count}", held(broker, subject).await);
}

/// The headers of a message that says so of itself.
fn headers(id: &str, event_type: &str, key: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", id),
        ("ce-source", "test"),
        ("ce-type", event_type),
        ("ce-time", "2026-11-27T21:00:00Z"),
        ("ce-partitionkey", key),
    ] {
        headers.insert(name, value);
    }
    headers
}

async fn send(client: &Client, subject: &str, headers: HeaderMap, payload: &str) {
    client.publish_with_headers(subject.to_owned(), headers, payload.to_owned().into()).await.unwrap();
    client.flush().await.unwrap();
}

async fn dead_letters(world: &World<Postgres>) -> Vec<(String, String)> {
    let mut conn = world.pool().acquire().await.unwrap();
    let all = sqlx::query_as("SELECT type, error FROM twinbox.dead_letters ORDER BY id");
    all.fetch_all(&mut *conn).await.unwrap()
}

/// The server drops a message whose name it knows, on whatever subject. The neighbour knows all that makes a
/// message id, and hears every name that was used before.
#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_keeps_no_message_out_of_the_stream() {
    let (world, broker) = start().await;
    let neighbour = broker.client("reviews").await;
    let mut heard = neighbour.subscribe("events.*.orders.>").await.unwrap();
    let poison = async |name: String| {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", name);
        send(&neighbour, "events.0.reviews.junk", headers, "junk").await;
    };
    for n in 0..200 {
        let id = MessageId::of("test", "orders.placed", &format!("order-{n}"));
        poison(id.to_string()).await;
        poison(format!("{id}.events")).await;
    }
    holds(&broker, "events.0.reviews.junk", 400).await;
    place(&world, 0..200).await;
    let program = relay(&world, &broker).await;
    holds(&broker, "events.*.orders.placed", 200).await;

    // A message that an order causes, under the name that the neighbour can compute.
    let order = in_time(heard.next()).await.unwrap();
    let order = order.headers.unwrap();
    let header = |name| order.get(name).unwrap().as_str();
    let cause = MessageId::of(header("ce-source"), header("ce-type"), header("ce-id"));
    let caused = id::derived_event_id("test", cause, "billing.invoice", "orders.paid", Some("1"), 1);
    poison(MessageId::of("test", "orders.paid", &caused).to_string()).await;
    poison(header("Nats-Msg-Id").to_owned()).await;
    let mut tx = world.begin().await.unwrap();
    let paid = Draft::raw("orders.paid", 1, "{}").id(caused).key("1");
    world.outbox().publish_draft(&mut tx, paid).await.unwrap();
    // The same event id, of a producer that may publish another type.
    let review = Draft::raw("reviews.written", 1, "{}").id("order-800");
    world.outbox().publish_draft(&mut tx, review).await.unwrap();
    let placed = Draft::raw("orders.late", 1, "{}").id("order-800");
    world.outbox().publish_draft(&mut tx, placed).await.unwrap();
    tx.commit().await.unwrap();
    for subject in ["events.*.orders.paid", "events.*.reviews.written", "events.*.orders.late"] {
        holds(&broker, subject, 1).await;
    }
    assert_eq!(world.rows("parked_messages").await, 0);
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_is_not_taken_for_another_type() {
    let (world, broker) = start().await;
    let neighbour = broker.client("reviews").await;
    let forged = headers("order-66", "orders.placed", "66");
    send(&neighbour, "events.5.reviews.written", forged, "{\"n\":66}").await;
    send(&neighbour, "events.5.reviews.written", HeaderMap::new(), "no event").await;
    send(&neighbour, "events.5.reviews.written", headers("r-1", "reviews.written", "1"), "{\"n\":1}").await;
    run_until(billing(&world, &broker), async || {
        world.rows("dead_letters").await == 2 && world.effects().await == [1001]
    })
    .await;
    let dead_letters = dead_letters(&world).await;
    assert!(dead_letters.iter().all(|(event_type, _)| event_type == "reviews.written"), "{dead_letters:?}");
    let is_forged = |why: &str| why.contains("`type` is not the type of the subject");
    assert!(dead_letters.iter().any(|(_, why)| is_forged(why)), "{dead_letters:?}");
}

/// Else a key would be handled in two partitions at a time, and overtake itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_handled_in_its_own_partition_alone() {
    let (world, broker) = start().await;
    let publisher = broker.client("admin").await;
    for partition in 0..16 {
        let subject = format!("events.{partition}.orders.placed");
        let id = format!("order-{partition}");
        send(&publisher, &subject, headers(&id, "orders.placed", "1"), "{\"n\":1}").await;
    }
    run_until(search(&world, &broker), async || {
        world.rows("dead_letters").await == 15 && world.effects().await == [2001]
    })
    .await;
    let why = &dead_letters(&world).await[0].1;
    assert!(why.contains("another partition"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_no_relay_has_signed_lets_no_message_run_again() {
    let (world, broker) = start().await;
    let neighbour = broker.client("reviews").await;
    let marked = |signature: Option<&str>| {
        let mut headers = headers("r-1", "reviews.written", "1");
        headers.insert("twinbox-replay", "00112233445566778899aabbccddeeff");
        headers.insert("twinbox-replay-for", "billing.invoice");
        signature.inspect(|text| headers.insert("twinbox-replay-signature", *text));
        headers
    };
    let key = nkeys::KeyPair::new_service();
    let signature = format!("{} {}", key.public_key(), "AAAA");
    let payload = "{\"n\":1}";
    send(&neighbour, "events.5.reviews.written", headers("r-1", "reviews.written", "1"), payload).await;
    send(&neighbour, "events.5.reviews.written", marked(None), payload).await;
    send(&neighbour, "events.5.reviews.written", marked(Some(&signature)), payload).await;
    send(&neighbour, "events.5.reviews.written", headers("r-2", "reviews.written", "2"), "{\"n\":2}").await;
    let stream = jetstream::new(broker.client("admin").await).get_stream(STREAM).await.unwrap();
    run_until(billing(&world, &broker), async || {
        let durable = stream.consumer_info("billing_invoice").await;
        durable.is_ok_and(|durable| durable.ack_floor.stream_sequence == 4)
    })
    .await;
    assert_eq!(world.effects().await, [1001, 1002]);
    assert_eq!(world.rows("superseded_claims").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_claims_no_message_of_another_type_ahead() {
    let (world, broker) = start().await;
    let neighbour = broker.client("reviews").await;
    send(&neighbour, "events.5.reviews.written", headers("order-7", "reviews.written", "7"), "{\"n\":7}")
        .await;
    run_until(billing(&world, &broker), async || world.effects().await == [1007]).await;
    place(&world, 7..8).await;
    let program = relay(&world, &broker).await;
    run_until(billing(&world, &broker), async || world.effects().await == [7, 1007]).await;
    assert!(dead_letters(&world).await.is_empty());
    program.stop().await;
}

/// An inbox keeps a claim until the time of its message is past.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_the_far_future_makes_no_claim_that_stays() {
    let (world, broker) = start().await;
    let neighbour = broker.client("reviews").await;
    let mut late = headers("r-9", "reviews.written", "9");
    late.insert("ce-time", "9999-01-01T00:00:00Z");
    send(&neighbour, "events.5.reviews.written", late, "{\"n\":9}").await;
    send(&neighbour, "events.5.reviews.written", headers("r-1", "reviews.written", "1"), "{\"n\":1}").await;
    run_until(billing(&world, &broker), async || {
        world.rows("dead_letters").await == 1 && world.effects().await == [1001]
    })
    .await;
    let why = &dead_letters(&world).await[0].1;
    assert!(why.contains("more than a day in the future"), "{why}");
    let stays = "SELECT count(*) FROM twinbox.inbox
        WHERE greatest(time, claimed_at) > now() + interval '1 day'";
    assert_eq!(world.number(stays).await, 0);
}

/// Else each new owner of its partition would read the stream from its first message.
#[tokio::test]
async fn a_message_of_the_far_future_can_be_at_a_checkpoint() {
    let (world, broker) = start().await;
    let admin = broker.client("admin").await;
    let partition = id::partition(Some("1"), MessageId::of("test", "orders.placed", "order-1"), 16);
    let subject = format!("events.{partition}.orders.placed");
    let mut late = headers("order-1", "orders.placed", "1");
    late.insert("ce-time", "9999-01-01T00:00:00Z");
    send(&admin, &subject, late, "{\"n\":1}").await;
    run_until(search(&world, &broker), async || world.rows("dead_letters").await == 1).await;
    let checkpoints = "SELECT count(*) FROM twinbox.partition_leases WHERE sequence = 1";
    assert_eq!(world.number(checkpoints).await, 1);
    let (lines, _logged) = Lines::record();
    send(&admin, &subject, headers("order-2", "orders.placed", "1"), "{\"n\":2}").await;
    run_until(search(&world, &broker), async || world.effects().await == [2002]).await;
    assert!(lines.saying("reads the stream from its first message").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_a_partition_that_does_not_exist_stops_no_consumer() {
    let (world, broker) = start().await;
    let neighbour = broker.client("reviews").await;
    send(&neighbour, "events.999.reviews.written", HeaderMap::new(), "").await;
    holds(&broker, "events.999.>", 1).await;
    place(&world, 0..20).await;
    let program = relay(&world, &broker).await;
    run_until(search(&world, &broker), async || world.rows("inbox").await == 20).await;
    program.stop().await;
}

/// A client of the spy that hears all inboxes, and what the server refuses it.
async fn spy(broker: &SharedBroker) -> (Client, async_nats::Subscriber, mpsc::UnboundedReceiver<String>) {
    let (refusals, refused) = mpsc::unbounded_channel();
    let options = async_nats::ConnectOptions::new().event_callback(move |event| {
        let refusals = refusals.clone();
        async move {
            if let ClientEvent::ServerError(error) = event {
                let _ = refusals.send(error.to_string());
            }
        }
    });
    let client = broker.client_with("spy", options).await;
    let heard = client.subscribe("_INBOX.>").await.unwrap();
    client.flush().await.unwrap();
    (client, heard, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spy_hears_no_delivery_and_answers_no_relay() {
    let (world, broker) = start().await;
    let (client, mut heard, mut refused) = spy(&broker).await;
    place(&world, 0..200).await;
    let program = relay(&world, &broker).await;
    run_until(billing(&world, &broker), async || world.rows("inbox").await == 200).await;
    program.stop().await;
    // The spy hears what comes to its own inboxes.
    client.publish("_INBOX.mine", "last".into()).await.unwrap();
    assert_eq!(in_time(heard.next()).await.unwrap().payload, "last");
    for inbox in ["_INBOX_relay", "_INBOX_billing"] {
        client.publish(format!("{inbox}.answer"), "forged".into()).await.unwrap();
        let text = in_time(refused.recv()).await.unwrap();
        let text = text.to_lowercase();
        assert!(text.contains("permissions violation") && text.contains(&inbox.to_lowercase()), "{text}");
    }
}

/// With the inbox prefix that everybody has. A stream that is full refuses the first message of a batch.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_behind_a_refusal_settles_no_message() {
    let (world, broker) = start().await;
    let jetstream = jetstream::new(broker.client("admin").await);
    let mut config = jetstream.get_stream(STREAM).await.unwrap().cached_info().config.clone();
    (config.max_messages, config.discard) = (1, DiscardPolicy::New);
    jetstream.update_stream(config.clone()).await.unwrap();
    let admin = broker.client("admin").await;
    send(&admin, "events.0.other", HeaderMap::new(), "").await;
    let (spy, mut heard, _) = spy(&broker).await;
    let (answers, mut answered) = mpsc::unbounded_channel();
    let answering = tokio::spawn(async move {
        while let Some(message) = heard.next().await {
            let is_refusal = message.payload.windows(7).any(|bytes| bytes == b"\"error\"");
            if message.subject.contains(".fail.") && is_refusal {
                let forged = "{\"type\":\"ack\",\"seq\":100000,\"msgs\":1}";
                spy.publish(message.subject, forged.into()).await.unwrap();
                spy.flush().await.unwrap();
                let _ = answers.send(());
            }
        }
    });
    place(&world, 0..300).await;
    let everybody = Nats::with_options(broker.options("admin").inbox_prefix("_INBOX")).unwrap();
    let running = Running::run(Relay::new((*world).clone(), everybody));
    for _ in 0..3 {
        timeout(PATIENCE, answered.recv()).await.expect("the relay sends batches").unwrap();
    }
    answering.abort();
    assert_eq!(running.counters.published(), 0);
    config.max_messages = -1;
    jetstream.update_stream(config).await.unwrap();
    holds(&broker, "events.*.orders.placed", 300).await;
    running.stop().await;
}
