//! EventBridge as a destination, against a fake with scripted responses.
mod faults;

use crate::support::{
    publisher::{outgoing, results, secret, send_to},
    wait::eventually,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::timeout;
use twinbox::aws::{EventBridge, EventBridgeOptions};
use twinbox_core::{
    Destination, Message, PublishError, PublishErrorKind as K, Publisher, Timestamp, destination::Receipt,
};
use twinbox_testkit::aws::{Answer, FakeEventBridge};

/// The longest time of any step.
const LIMIT: Duration = Duration::from_secs(60);

async fn fake() -> FakeEventBridge {
    FakeEventBridge::start("orders").await.unwrap()
}

fn options(url: impl Into<String>) -> EventBridgeOptions {
    EventBridgeOptions::new("orders")
        .region("eu-west-1")
        .endpoint_url(url)
        .credentials("AKIDTEST", "secret", None)
        .publish_timeout(Duration::from_secs(20))
        .request_timeout(Duration::from_secs(20))
}

async fn connect(options: EventBridgeOptions) -> Result<Box<dyn Publisher>, PublishError> {
    timeout(LIMIT, EventBridge::with_options(options).unwrap().connect(&secret())).await.unwrap()
}

async fn publisher(fake: &FakeEventBridge) -> Box<dyn Publisher> {
    connect(options(fake.endpoint_url())).await.unwrap()
}

/// A message with a key of its own.
pub(crate) fn message(n: usize) -> Message {
    Message {
        id: format!("{n}"),
        source: "shop".into(),
        event_type: "orders.placed".into(),
        version: 1,
        key: Some(format!("order {n}")),
        subject: None,
        time: Timestamp::from_micros(1_789_000_000_123_456),
        sequence: Some(42),
        correlation_id: None,
        causation_id: None,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        content_type: "application/json".into(),
        headers: vec![("Region".into(), "eu".into())],
        payload: json!({ "order": n }).to_string().into(),
    }
}

async fn send(publisher: &mut dyn Publisher, messages: &[Message]) -> Vec<Result<Receipt, PublishError>> {
    let batch: Vec<_> = messages.iter().collect();
    send_to(publisher, &batch).await
}

fn detail(entry: &Value) -> Value {
    serde_json::from_str(entry["Detail"].as_str().unwrap()).unwrap()
}

fn ids(entries: &[Value]) -> Vec<String> {
    entries.iter().map(|entry| detail(entry)["id"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn failed(answer: &Result<Receipt, PublishError>, kind: K, code: &str) {
    let error = answer.as_ref().unwrap_err();
    assert_eq!((error.kind(), error.code()), (kind, code), "{error:?}");
    assert!(!error.to_string().contains("as the test says"), "the text has no words of the service");
}

#[tokio::test]
async fn messages_arrive_as_cloud_events_ten_at_a_time() {
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    let messages: Vec<_> = (0..25).map(message).collect();
    for answer in send(&mut *publisher, &messages).await {
        assert_eq!(answer.unwrap(), Receipt { is_duplicate: false });
    }
    let mut requests = fake.requests();
    requests.sort_by_key(|request| ids(&request.entries)[0].parse::<usize>().unwrap());
    let sizes: Vec<_> = requests.iter().map(|request| request.entries.len()).collect();
    assert_eq!(sizes, [10, 10, 5]);
    assert!(requests.iter().all(|request| request.signed));
    let sent: Vec<_> = requests.into_iter().flat_map(|request| request.entries).collect();
    assert_eq!(ids(&sent), (0..25).map(|n| n.to_string()).collect::<Vec<_>>());
    let entry = &sent[7];
    let trace = "Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1";
    for (field, value) in [
        ("EventBusName", json!("orders")),
        ("Source", json!("shop")),
        ("DetailType", json!("orders.placed")),
        ("Time", json!(1_789_000_000.123_456)),
        ("TraceHeader", json!(trace)),
    ] {
        assert_eq!(entry[field], value, "{field}");
    }
    let detail = detail(entry);
    assert_eq!(detail["data"], json!({"order": 7}));
    assert_eq!(detail["twinboxheaders"], r#"[["Region","eu"]]"#);
    assert_eq!((&detail["specversion"], &detail["partitionkey"]), (&json!("1.0"), &json!("order 7")));
}

#[tokio::test]
async fn an_arn_names_the_bus_and_the_region() {
    let fake = fake().await;
    let arn = "arn:aws:events:eu-west-1:123456789012:event-bus/orders";
    let options = EventBridgeOptions::new(arn).endpoint_url(fake.endpoint_url()).credentials("a", "b", None);
    let mut publisher = connect(options).await.unwrap();
    assert!(send(&mut *publisher, &[message(1)]).await[0].is_ok());
    assert_eq!(fake.taken()[0]["EventBusName"], arn);
}

#[tokio::test]
async fn a_request_holds_no_more_bytes_than_it_may_and_no_key_twice() {
    let fake = fake().await;
    let options = options(fake.endpoint_url()).request_bytes_max(2500);
    let mut publisher = connect(options).await.unwrap();
    let large = |n| Message { payload: format!("\"{}\"", "x".repeat(700)).into(), ..message(n) };
    let same_key = |n| Message { key: Some("same".into()), ..message(n) };
    let too_large = Message { payload: format!("\"{}\"", "x".repeat(2500)).into(), ..message(9) };
    let messages = [large(0), large(1), too_large, large(2), same_key(3), same_key(4), same_key(5)];
    let answers = send(&mut *publisher, &messages).await;
    failed(&answers[2], K::RefusedForGood, "eventbridge.too_large");
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 6);
    let requests: BTreeSet<_> = fake.requests().iter().map(|request| ids(&request.entries)).collect();
    let expected: BTreeSet<_> = [vec!["0", "1"], vec!["2", "3"], vec!["4"], vec!["5"]]
        .map(|ids| ids.into_iter().map(str::to_owned).collect())
        .into();
    assert_eq!(requests, expected);
}

#[tokio::test]
async fn an_acknowledgement_may_be_dropped() {
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    drop(publisher.send(&outgoing([&message(1)])).await);
    fake.wait_for_requests(1).await;
    assert!(send(&mut *publisher, &[message(2)]).await[0].is_ok());
    assert_eq!(fake.taken().len(), 2);
}

#[tokio::test]
async fn a_request_without_a_response_delays_no_other() {
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    fake.answer_next([Answer::Hang]);
    let first = message(1);
    let hanging = publisher.send(&outgoing([&first])).await;
    timeout(LIMIT, fake.wait_for_requests(1)).await.unwrap();
    assert!(send(&mut *publisher, &[message(2)]).await[0].is_ok());
    drop(hanging);
}

#[tokio::test]
async fn messages_in_flight_are_in_doubt_when_the_publisher_is_dropped() {
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    fake.answer_next([Answer::Hang, Answer::Hang]);
    let messages: Vec<_> = (0..11).map(message).collect();
    let answers = publisher.send(&outgoing(&messages)).await;
    timeout(LIMIT, fake.wait_for_requests(2)).await.unwrap();
    drop(publisher);
    // Long before the publish time-out.
    let answers = timeout(Duration::from_secs(10), results(answers)).await.unwrap();
    for answer in &answers {
        failed(answer, K::InDoubt, "eventbridge.aborted");
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_fails_alone() {
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    let bad = Message { source: "aws.shop".into(), ..message(2) };
    let answers = send(&mut *publisher, &[message(1), bad, message(3)]).await;
    failed(&answers[1], K::RefusedForGood, "eventbridge.source");
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_eq!(ids(&fake.requests()[0].entries), ["1", "3"]);
}

#[tokio::test]
async fn a_refused_request_is_sent_message_by_message() {
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    fake.answer_next([Answer::Error(400, "ValidationException"), Answer::Ok, Answer::Status(413)]);
    let answers = send(&mut *publisher, &[message(1), message(2), message(3)]).await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    failed(&answers[1], K::RefusedForGood, "eventbridge.too_large");
    assert_eq!(ids(&fake.taken()), ["1", "3"]);
}

#[tokio::test]
async fn a_throttled_batch_stops() {
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    fake.answer_next(vec![Answer::Throttle(Some(7)); 32]);
    let messages: Vec<_> = (0..400).map(message).collect();
    let answers = send(&mut *publisher, &messages).await;
    let code = |n: usize| answers[n].as_ref().unwrap_err().code().to_owned();
    assert_eq!((code(0), code(399)), ("eventbridge.throttled".into(), "eventbridge.not_sent".into()));
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.retry_after()), (K::Throttled, Some(Duration::from_secs(7))));
    }
    assert_eq!(fake.requests().len(), 32);
    assert!(send(&mut *publisher, &[message(1)]).await[0].is_ok());
}

#[tokio::test]
async fn health_checks_the_bus_and_sends_nothing() {
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    publisher.health().await.unwrap();
    assert_eq!((fake.describe_calls(), fake.requests().len()), (2, 0));
    fake.answer_next_look([Answer::Throttle(None), Answer::Status(503), Answer::Truncated]);
    for _ in 0..3 {
        assert_eq!(publisher.health().await.unwrap_err().kind(), K::Unavailable);
    }
    fake.delete_bus("orders");
    let error = publisher.health().await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (K::Misconfigured, "eventbridge.no_bus"));
    fake.create_bus("orders");
    publisher.health().await.unwrap();
    assert!(send(&mut *publisher, &[message(1)]).await[0].is_ok());
}

/// The service would acknowledge and drop the message.
#[tokio::test]
async fn a_deleted_bus_is_detected() {
    let fake = fake().await;
    let options = options(fake.endpoint_url()).describe_interval(Duration::from_millis(10));
    let mut publisher = connect(options).await.unwrap();
    fake.delete_bus("orders");
    let answer =
        eventually(async || send(&mut *publisher, &[message(1)]).await.pop().filter(Result::is_err)).await;
    failed(&answer, K::Misconfigured, "eventbridge.no_bus");
    let before = fake.requests().len();
    failed(&send(&mut *publisher, &[message(2)]).await[0], K::Misconfigured, "eventbridge.no_bus");
    assert_eq!(fake.requests().len(), before);
}

#[tokio::test]
async fn a_request_beyond_the_limit_of_the_bus_is_sent_one_by_one() {
    let fake = fake().await;
    let mut publisher = connect(options(fake.endpoint_url()).request_entries_max(100)).await.unwrap();
    let messages: Vec<_> = (0..25).map(message).collect();
    assert!(send(&mut *publisher, &messages).await.iter().all(Result::is_ok));
    let sizes: Vec<_> = fake.requests().iter().map(|request| request.entries.len()).collect();
    assert_eq!((sizes[0], sizes.len()), (25, 26));
    assert_eq!(ids(&fake.taken()), (0..25).map(|n| n.to_string()).collect::<Vec<_>>());
}
