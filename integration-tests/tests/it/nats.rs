//! NATS JetStream as a destination and a source, on real servers.
mod accounts;
mod batches;
mod faults;

use crate::support::{
    broker_users::{inbox_of, prefix_of},
    publisher::{secret, send_again, send_to},
    wait::{eventually, in_time},
};
use async_nats::jetstream::consumer;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use twinbox::nats::{ErrorKind, Nats, NatsOptions, StreamOptions};
use twinbox_core::{
    Destination, MaxAge, Message, PublishError, PublishErrorKind, Publisher, ReceivedMessage, Source,
    SourceErrorKind, Subscription, Timestamp, Transport,
    destination::{Outgoing, Receipt},
};

/// The longest time of any step.
const LIMIT: Duration = Duration::from_secs(60);
/// After which a server that does not answer counts as silent. A busy machine answers within it.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a request waits whose answer the server denies. Others of its client are answered in time.
const DENIED: Duration = Duration::from_secs(10);

fn shared_server() -> String {
    std::env::var("TWINBOX_NATS_URL").expect("TWINBOX_NATS_URL names a running NATS server with JetStream")
}

/// A stream of the test's own on the shared server.
async fn stream(name: &str) -> Nats {
    let nats = Nats::with_options(options(&shared_server(), name)).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    nats
}

fn options(url: &str, name: &str) -> NatsOptions {
    let unique = format!("{name}-{}-{:x}", std::process::id(), rand());
    // Longer than a busy machine keeps a delivery that a test holds, or an answer.
    let options = NatsOptions::new(url).inbox_prefix(inbox_of(url));
    let options = options.stream(&unique).prefix(prefix_of(&unique));
    options.ack_wait(Duration::from_secs(60)).publish_timeout(Duration::from_secs(60))
}

fn rand() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(())
}

fn message(id: &str) -> Message {
    Message {
        id: id.into(),
        source: "shop".into(),
        event_type: "orders.placed".into(),
        version: 2,
        key: Some("Zoë \"50%\"".into()),
        subject: Some("order 7".into()),
        time: Timestamp::from_micros(1_789_000_000_123_456),
        sequence: Some(42),
        correlation_id: Some("c".into()),
        causation_id: None,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        content_type: "application/json".into(),
        headers: vec![("A".into(), "1".into()), ("a".into(), "eu, ü".into()), ("a".into(), "us".into())],
        payload: b"{}"[..].into(),
    }
}

fn of_type(id: &str, event_type: &str) -> Message {
    Message { event_type: event_type.into(), ..message(id) }
}

fn subscription(types: &[&str]) -> Subscription {
    let types = types.iter().map(|&text| text.to_owned()).collect();
    Subscription { consumer: "billing.invoice".into(), types, concurrency: 8, is_ordered: false }
}

async fn publisher(nats: &Nats) -> Box<dyn Publisher> {
    Destination::connect(nats, &secret()).await.unwrap()
}

/// Sends a message that may have been sent before.
async fn again(publisher: &mut dyn Publisher, message: Message) -> Receipt {
    send_again(publisher, &[&message]).await.remove(0).unwrap()
}

async fn send(publisher: &mut dyn Publisher, message: Message) -> Result<Receipt, PublishError> {
    send_to(publisher, &[&message]).await.remove(0)
}

async fn receive(source: &mut dyn Source) -> ReceivedMessage {
    let mut received = timeout(LIMIT, source.receive(1)).await.unwrap().unwrap();
    assert_eq!(received.len(), 1);
    received.remove(0)
}

#[track_caller]
fn refused(answer: Result<Receipt, PublishError>, kind: PublishErrorKind, code: &str) {
    let error = answer.unwrap_err();
    assert_eq!((error.kind(), error.code()), (kind, code), "{error:?}");
}

/// A client without the rules of Twinbox: it deletes, floods and forges.
async fn outsider(url: &str) -> async_nats::jetstream::Context {
    async_nats::jetstream::new(async_nats::connect(url).await.unwrap())
}

/// Waits until the consumer of [`subscription`] has this state on the server.
async fn consumer_is(nats: &Nats, url: &str, state: impl Fn(&consumer::Info) -> bool) {
    let stream = outsider(url).await.get_stream(stream_of(nats)).await.unwrap();
    eventually(async || {
        let info = stream.consumer_info("billing_invoice").await.unwrap();
        state(&info).then_some(())
    })
    .await;
}

/// Waits for a message until `signal`, and drops that wait.
async fn receive_until(source: &mut dyn Source, max: usize, signal: impl Future<Output = ()>) {
    tokio::select! {
        received = source.receive(max) => panic!("received {:?} messages", received.map(|all| all.len())),
        () = signal => {}
    }
}

fn stream_of(nats: &Nats) -> String {
    let text = format!("{nats:?}");
    text.split("stream: \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned()
}

#[tokio::test]
async fn a_published_message_is_received_and_acknowledged() {
    let nats = stream("roundtrip").await;
    let mut publisher = publisher(&nats).await;
    assert!(!send(&mut *publisher, message("1")).await.unwrap().is_duplicate);
    assert!(again(&mut *publisher, message("1")).await.is_duplicate);
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let first = receive(&mut *source).await;
    assert_eq!(first.message, message("1"));
    assert_eq!((first.defect, first.redelivered), (None, false));
    first.settle.progress().await.unwrap();
    let before = Instant::now();
    first.settle.nak(Duration::from_millis(200)).await.unwrap();
    let second = receive(&mut *source).await;
    assert!(second.redelivered && before.elapsed() >= Duration::from_millis(150));
    second.settle.ack().await.unwrap();
    // Below the ack floor the server redelivers nothing.
    consumer_is(&nats, &shared_server(), |consumer| {
        consumer.ack_floor.stream_sequence == 1 && consumer.num_ack_pending == 0
    })
    .await;
    source.close().await.unwrap();
}

#[tokio::test]
async fn a_batch_keeps_its_order_and_receive_its_limit() {
    let nats = stream("order").await;
    let mut publisher = publisher(&nats).await;
    let batch: Vec<_> =
        (0..500).map(|n| Message { key: Some(format!("k{n}")), ..message(&n.to_string()) }).collect();
    for answer in send_to(&mut *publisher, &Vec::from_iter(&batch)).await {
        answer.unwrap();
    }
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let mut ids = Vec::new();
    while ids.len() < 500 {
        // Dropping the call half-way loses nothing.
        let Ok(received) = timeout(Duration::from_micros(300), source.receive(7)).await else { continue };
        let received = received.unwrap();
        assert!((1..=7).contains(&received.len()));
        for delivery in received {
            assert!(!delivery.redelivered);
            ids.push(delivery.message.id.parse::<usize>().unwrap());
            delivery.settle.ack().await.unwrap();
        }
    }
    assert!(ids.iter().copied().eq(0..500));
}

#[tokio::test]
async fn closing_a_source_returns_the_deliveries_that_were_not_received() {
    let nats = stream("close").await;
    let mut publisher = publisher(&nats).await;
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    // The server has the request for eight messages when they arrive, and this process receives none of them.
    receive_until(&mut *source, 8, consumer_is(&nats, &shared_server(), |consumer| consumer.num_waiting > 0))
        .await;
    for id in ["1", "2"] {
        send(&mut *publisher, message(id)).await.unwrap();
    }
    consumer_is(&nats, &shared_server(), |consumer| consumer.num_ack_pending == 2).await;
    source.close().await.unwrap();
    let mut other = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let before = Instant::now();
    assert!(receive(&mut *other).await.redelivered);
    assert!(before.elapsed() < Duration::from_secs(30), "the delivery came only after the ack wait");
}

#[tokio::test]
async fn several_types_are_filtered() {
    let nats = stream("types").await;
    let mut publisher = publisher(&nats).await;
    for event_type in ["orders.placed", "orders.other", "orders.paid"] {
        send(&mut *publisher, of_type(event_type, event_type)).await.unwrap();
    }
    let mut source = nats.subscribe(&subscription(&["orders.paid", "orders.placed"])).await.unwrap();
    for expected in ["orders.placed", "orders.paid"] {
        let delivery = receive(&mut *source).await;
        assert_eq!(delivery.message.event_type, expected);
        delivery.settle.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_foreign_message_is_a_defect_and_not_a_fault() {
    let nats = stream("foreign").await;
    let js = outsider(&shared_server()).await;
    let subject = format!("{}.0.orders.placed", prefix_of(&stream_of(&nats)));
    js.publish(subject, "anything".into()).await.unwrap().await.unwrap();
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let delivery = receive(&mut *source).await;
    assert_eq!(delivery.defect.unwrap(), "the CloudEvents attribute `specversion` is missing");
    assert!(delivery.message.id.starts_with("1@"), "{}", delivery.message.id);
    assert_eq!(delivery.message.source, format!("nats:{}", stream_of(&nats)));
    assert_eq!(delivery.message.payload, &b"anything"[..]);
    assert!(delivery.message.time.as_micros() > 1_700_000_000_000_000);
    delivery.settle.ack().await.unwrap();
}

#[tokio::test]
async fn messages_that_can_never_be_sent_are_refused_for_good() {
    use PublishErrorKind::RefusedForGood;
    let nats = Nats::with_options(options(&shared_server(), "refused")).unwrap();
    nats.provision(&StreamOptions::default().max_message_bytes(10_000)).await.unwrap();
    let mut publisher = publisher(&nats).await;
    let sized = |bytes| Message { payload: vec![b'x'; bytes].into(), ..message("1") };
    refused(send(&mut *publisher, sized(20_000)).await, RefusedForGood, "nats.10054");
    refused(send(&mut *publisher, sized(2_000_000)).await, RefusedForGood, "nats.max_payload");
    refused(send(&mut *publisher, of_type("1", "orders.*")).await, RefusedForGood, "nats.subject");
    let header = |name: &str, value: String| Message { headers: vec![(name.into(), value)], ..message("1") };
    refused(send(&mut *publisher, header("x", "a\r\nb".into())).await, RefusedForGood, "nats.header");
    let of_another_key = Message { key: Some("another key".into()), ..message("2") };
    let mut answers = send_to(&mut *publisher, &[&of_type("1", "*"), &of_another_key]).await;
    answers.pop().unwrap().unwrap();
    refused(answers.pop().unwrap(), RefusedForGood, "nats.subject");
    let mut publisher = self::publisher(&stream("headers").await).await;
    refused(send(&mut *publisher, header("x", "v".repeat(70_000))).await, RefusedForGood, "nats.10097");
}

#[tokio::test]
async fn a_full_stream_is_unavailable() {
    let nats = Nats::with_options(options(&shared_server(), "full")).unwrap();
    nats.provision(&StreamOptions::default().max_messages(1)).await.unwrap();
    let mut publisher = publisher(&nats).await;
    send(&mut *publisher, message("1")).await.unwrap();
    refused(send(&mut *publisher, message("2")).await, PublishErrorKind::Unavailable, "nats.10077");
    publisher.health().await.unwrap();
}

#[tokio::test]
async fn a_type_without_a_stream_has_no_home_while_the_stream_is_there() {
    let js = outsider(&shared_server()).await;
    let options = options(&shared_server(), "home");
    let nats = Nats::with_options(options).unwrap();
    let name = stream_of(&nats);
    let subjects = vec![format!("{}.*.orders.>", prefix_of(&name))];
    let config = async_nats::jetstream::stream::Config { name: name.clone(), subjects, ..Default::default() };
    js.create_stream(config).await.unwrap();
    let mut publisher = publisher(&nats).await;
    send(&mut *publisher, message("1")).await.unwrap();
    refused(
        send(&mut *publisher, of_type("2", "billing.paid")).await,
        PublishErrorKind::Unroutable,
        "nats.no_stream",
    );
    js.delete_stream(&name).await.unwrap();
    refused(send(&mut *publisher, message("3")).await, PublishErrorKind::Unavailable, "nats.10059");
    assert_eq!(publisher.health().await.unwrap_err().kind(), PublishErrorKind::Unavailable);
    let error = Destination::connect(&nats, &secret()).await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (PublishErrorKind::Unavailable, "nats.10059"));
    let error = nats.subscribe(&subscription(&["a"])).await.err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    assert!(error.to_string().contains("the stream does not exist"), "{error}");
}

#[tokio::test]
async fn a_stream_that_differs_is_refused_by_the_name_of_the_field() {
    let nats = stream("differs").await;
    nats.provision(&StreamOptions::default()).await.unwrap();
    let other = StreamOptions::default().max_age(Duration::from_secs(3600));
    let error = nats.provision(&other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let text = error.to_string();
    assert!(
        text.contains("max_age = 604800000000000 on the server and 3600000000000 was asked for"),
        "{text}"
    );
    nats.provision(&StreamOptions::default()).await.unwrap();
}

#[tokio::test]
async fn a_consumer_that_differs_is_refused_and_not_changed() {
    let nats = stream("consumer-differs").await;
    nats.subscribe(&subscription(&["a"])).await.unwrap();
    let error = nats.subscribe(&subscription(&["a", "b"])).await.err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Misconfigured);
    assert!(error.to_string().contains("filter_subject = "), "{error}");
    let same_durable = Subscription { consumer: "billing_invoice".into(), ..subscription(&["a"]) };
    let error = nats.subscribe(&same_durable).await.err().unwrap();
    assert!(error.to_string().contains("description = \"billing.invoice\""), "{error}");
    nats.subscribe(&subscription(&["a"])).await.unwrap();
}

#[tokio::test]
async fn a_deleted_consumer_ends_the_source_and_confirms_nothing() {
    let nats = stream("deleted").await;
    let js = outsider(&shared_server()).await;
    send(&mut *publisher(&nats).await, message("1")).await.unwrap();
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let delivery = receive(&mut *source).await;
    let delete = async {
        consumer_is(&nats, &shared_server(), |consumer| consumer.num_waiting > 0).await;
        let stream = js.get_stream(stream_of(&nats)).await.unwrap();
        stream.delete_consumer("billing_invoice").await.unwrap();
    };
    let (received, ()) = tokio::join!(timeout(LIMIT, source.receive(1)), delete);
    let error = received.unwrap().err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    assert!(error.to_string().contains("`billing.invoice` was deleted"), "{error}");
    assert_eq!(delivery.settle.ack().await.unwrap_err().kind(), SourceErrorKind::NotConfirmed);
    // A new subscription creates the consumer again, from the first message.
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    receive(&mut *source).await.settle.ack().await.unwrap();
}

#[tokio::test]
async fn a_deleted_stream_ends_the_source() {
    let nats = stream("stream-deleted").await;
    let js = outsider(&shared_server()).await;
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let delete = async {
        consumer_is(&nats, &shared_server(), |consumer| consumer.num_waiting > 0).await;
        js.delete_stream(stream_of(&nats)).await.unwrap();
    };
    let (received, ()) = tokio::join!(timeout(LIMIT, source.receive(1)), delete);
    assert_eq!(received.unwrap().err().unwrap().kind(), SourceErrorKind::Unavailable);
}
