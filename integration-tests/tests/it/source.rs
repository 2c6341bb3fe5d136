//! What every source of deliveries promises, asked of each of them: a case is written once and listed once
//! below; each case on each source is one test.
use futures::FutureExt as _;
use std::{
    collections::BTreeSet,
    future::Future,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;
use twinbox::{
    Dialect, Draft, Message, Timestamp, Transport,
    nats::{Nats, NatsOptions, StreamOptions},
    seam::{
        destination::{Destination as _, Publisher},
        source::{Received, Source, SourceErrorKind, Subscription},
    },
};
use twinbox_testkit::database::{self, TestDatabase};
use uuid::Uuid;

macro_rules! conformance {
    ([$($module:ident: $bench:expr;)+] $cases:tt) => {
        $(mod $module { use super::*; conformance!(@ $bench, $cases); })+
    };
    (@ $bench:expr, [$($case:ident)+]) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $case() {
            let bench = $bench.await;
            in_time(super::$case(&bench)).await;
        })+
    };
}

conformance! {
    [
        log_sqlite: async { Log(database::sqlite().await) };
        log_postgres: async { Log(database::postgres().await) };
        nats_2_15: JetStream::new();
    ]
    [
        what_is_published_is_delivered
        at_most_as_many_as_asked_for
        what_is_acknowledged_never_comes_again
        a_nak_comes_again_and_not_before_its_delay
        a_dropped_delivery_comes_again
        deliveries_of_a_dropped_source_come_again
        a_closed_source_goes_on_where_it_was
        one_subscriber_gets_the_messages_of_a_key_in_order
        only_the_types_asked_for_are_delivered
        consumers_know_nothing_of_each_other
        receive_is_cancel_safe
        a_delivery_in_progress_is_not_delivered_again
    ]
}

/// A transport, and a way to publish to where it reads from.
trait Bench {
    fn transport(&self) -> impl Transport;
    async fn publish(&self, event_type: &str, key: Option<&str>, text: &str);
}

struct Log<DB: Dialect>(TestDatabase<DB>);

impl<DB: Dialect> Bench for Log<DB> {
    fn transport(&self) -> impl Transport {
        self.0.log().lease(Duration::from_millis(500))
    }

    async fn publish(&self, event_type: &str, key: Option<&str>, text: &str) {
        let mut draft = Draft::raw(event_type, 1, text.to_owned()).id(text);
        if let Some(key) = key {
            draft = draft.key(key);
        }
        let mut tx = self.0.begin().await.unwrap();
        self.0.outbox().publish_draft(&mut tx, draft).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// A stream of its own on the server of the tests.
struct JetStream {
    nats: Nats,
    publisher: Mutex<Box<dyn Publisher>>,
}

impl JetStream {
    async fn new() -> Self {
        let url = std::env::var("TWINBOX_NATS_URL").expect("TWINBOX_NATS_URL names a running NATS server");
        let name = format!("source-{}", Uuid::now_v7().simple());
        let options = NatsOptions::new(url).stream(&name).prefix(&name).ack_wait(Duration::from_secs(1));
        let nats = Nats::with_options(options).unwrap();
        nats.provision(&StreamOptions::default()).await.unwrap();
        let publisher = Mutex::new(nats.connect().await.unwrap());
        Self { nats, publisher }
    }
}

impl Bench for JetStream {
    fn transport(&self) -> impl Transport {
        self.nats.clone()
    }

    async fn publish(&self, event_type: &str, key: Option<&str>, text: &str) {
        let message = Message {
            id: text.to_owned(),
            source: database::SERVICE.to_owned(),
            event_type: event_type.to_owned(),
            version: 1,
            key: key.map(str::to_owned),
            subject: None,
            time: Timestamp::from_micros(1_789_000_000_000_000),
            sequence: None,
            correlation_id: None,
            causation_id: None,
            traceparent: None,
            content_type: "application/json".to_owned(),
            headers: Vec::new(),
            payload: text.to_owned().into(),
        };
        let sent = self.publisher.lock().await.send(&[&message]).await.remove(0);
        sent.await.unwrap();
    }
}

async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("nothing takes a minute")
}

fn to(consumer: &str, types: &[&str]) -> Subscription {
    let types = types.iter().map(|&name| name.to_owned()).collect();
    Subscription { consumer: consumer.to_owned(), types, concurrency: 10, ordered: false }
}

/// Subscribes as the consumer of the test, again and again while the one before still has the lease.
async fn subscribe(bench: &impl Bench) -> Box<dyn Source> {
    subscribe_to(bench, &to("billing", &["a.x"])).await
}

async fn subscribe_to(bench: &impl Bench, subscription: &Subscription) -> Box<dyn Source> {
    let transport = bench.transport();
    loop {
        match transport.subscribe(subscription).await {
            Ok(source) => return source,
            Err(error) if error.kind() == SourceErrorKind::OwnedByAnother => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn one(source: &mut Box<dyn Source>) -> Received {
    in_time(source.receive(1)).await.unwrap().remove(0)
}

fn text(received: &Received) -> String {
    String::from_utf8(received.message.payload.to_vec()).unwrap()
}

async fn publish(bench: &impl Bench, texts: &[&str]) {
    for text in texts {
        bench.publish("a.x", None, text).await;
    }
}

/// Acknowledges one delivery after the other up to the one that says `last`.
async fn ack_until(source: &mut Box<dyn Source>, last: &str) -> Vec<String> {
    let mut came = Vec::new();
    while came.last().is_none_or(|text| text != last) {
        let received = one(source).await;
        came.push(text(&received));
        received.settle.ack().await.unwrap();
    }
    came
}

async fn what_is_published_is_delivered(bench: &impl Bench) {
    bench.publish("a.x", Some("k-1"), "one").await;
    bench.publish("a.x", None, "two").await;
    let mut source = subscribe(bench).await;
    let received = one(&mut source).await;
    let message = &received.message;
    assert_eq!((received.defect.as_deref(), received.redelivered), (None, false));
    assert_eq!((message.id.as_str(), message.source.as_str()), ("one", database::SERVICE));
    assert_eq!((message.event_type.as_str(), message.version), ("a.x", 1));
    assert_eq!((message.key.as_deref(), &message.payload[..]), (Some("k-1"), &b"one"[..]));
    received.settle.ack().await.unwrap();
    let received = one(&mut source).await;
    assert_eq!((received.message.id.as_str(), &received.message.key), ("two", &None));
}

async fn at_most_as_many_as_asked_for(bench: &impl Bench) {
    publish(bench, &["a", "b", "c", "d", "e"]).await;
    let mut source = subscribe(bench).await;
    let mut came = BTreeSet::new();
    while came.len() < 5 {
        let batch = in_time(source.receive(2)).await.unwrap();
        assert!((1..=2).contains(&batch.len()));
        came.extend(batch.iter().map(text));
        for received in batch {
            received.settle.ack().await.unwrap();
        }
    }
}

async fn what_is_acknowledged_never_comes_again(bench: &impl Bench) {
    publish(bench, &["a", "b"]).await;
    let mut source = subscribe(bench).await;
    assert_eq!(ack_until(&mut source, "b").await, ["a", "b"]);
    source.close().await.unwrap();
    publish(bench, &["end"]).await;
    let mut source = subscribe(bench).await;
    assert_eq!(ack_until(&mut source, "end").await, ["end"]);
}

async fn a_nak_comes_again_and_not_before_its_delay(bench: &impl Bench) {
    const DELAY: Duration = Duration::from_millis(300);
    publish(bench, &["a", "b"]).await;
    let mut source = subscribe(bench).await;
    let received = one(&mut source).await;
    assert_eq!((text(&received).as_str(), received.redelivered), ("a", false));
    let begun = Instant::now();
    received.settle.nak(DELAY).await.unwrap();
    assert_eq!(ack_until(&mut source, "b").await, ["b"], "another message need not wait");
    let received = one(&mut source).await;
    assert!(begun.elapsed() >= DELAY, "came after {:?}", begun.elapsed());
    assert_eq!((text(&received).as_str(), received.redelivered), ("a", true));
    received.settle.nak(Duration::ZERO).await.unwrap();
    assert_eq!(ack_until(&mut source, "a").await, ["a"]);
}

async fn a_dropped_delivery_comes_again(bench: &impl Bench) {
    publish(bench, &["a"]).await;
    let mut source = subscribe(bench).await;
    drop(one(&mut source).await);
    let received = one(&mut source).await;
    assert_eq!((text(&received).as_str(), received.redelivered), ("a", true));
}

async fn deliveries_of_a_dropped_source_come_again(bench: &impl Bench) {
    publish(bench, &["a", "b", "c"]).await;
    let mut source = subscribe(bench).await;
    let held = one(&mut source).await;
    assert_eq!(text(&held), "a");
    drop(source);
    let mut source = subscribe(bench).await;
    let mut came = BTreeSet::new();
    while came.len() < 3 {
        let received = one(&mut source).await;
        assert!(received.redelivered || text(&received) != "a");
        came.insert(text(&received));
        received.settle.ack().await.unwrap();
    }
}

async fn a_closed_source_goes_on_where_it_was(bench: &impl Bench) {
    publish(bench, &["a", "b", "c", "d"]).await;
    let mut source = subscribe(bench).await;
    assert_eq!(ack_until(&mut source, "b").await, ["a", "b"]);
    source.close().await.unwrap();
    let subscribed = bench.transport().subscribe(&to("billing", &["a.x"])).await;
    let mut source = subscribed.expect("a closed source keeps nobody waiting");
    assert_eq!(ack_until(&mut source, "d").await, ["c", "d"]);
}

async fn one_subscriber_gets_the_messages_of_a_key_in_order(bench: &impl Bench) {
    let expected: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    for text in &expected {
        bench.publish("a.x", Some("k"), text).await;
        bench.publish("a.x", Some("other"), &format!("other {text}")).await;
    }
    let mut source = subscribe(bench).await;
    let (mut came, mut others) = (Vec::new(), 0);
    while came.len() < expected.len() || others < expected.len() {
        for received in in_time(source.receive(5)).await.unwrap() {
            match received.message.key.as_deref() {
                Some("k") => came.push(text(&received)),
                _ => others += 1,
            }
            received.settle.ack().await.unwrap();
        }
    }
    assert_eq!(came, expected);
}

async fn only_the_types_asked_for_are_delivered(bench: &impl Bench) {
    for (event_type, text) in [("b.y", "1"), ("a.x", "2"), ("a.x.more", "3"), ("b.z", "4"), ("a.x", "5")] {
        bench.publish(event_type, None, text).await;
    }
    let mut source = subscribe(bench).await;
    assert_eq!(ack_until(&mut source, "5").await, ["2", "5"]);
    let mut source = subscribe_to(bench, &to("stock", &["a.x", "b.z"])).await;
    assert_eq!(ack_until(&mut source, "5").await, ["2", "4", "5"]);
}

async fn consumers_know_nothing_of_each_other(bench: &impl Bench) {
    publish(bench, &["a", "b"]).await;
    let mut slow = subscribe_to(bench, &to("slow", &["a.x"])).await;
    let mut fast = subscribe_to(bench, &to("fast", &["a.x"])).await;
    let held = one(&mut slow).await;
    assert_eq!(ack_until(&mut fast, "b").await, ["a", "b"]);
    assert_eq!(text(&held), "a");
    held.settle.ack().await.unwrap();
    assert_eq!(ack_until(&mut slow, "b").await, ["b"]);
}

/// Polled once and dropped, again and again, while messages come.
async fn receive_is_cancel_safe(bench: &impl Bench) {
    let names: Vec<_> = (0..60).map(|n| n.to_string()).collect();
    let mut source = subscribe(bench).await;
    let publishing = async {
        for name in &names {
            bench.publish("a.x", None, name).await;
        }
    };
    let receiving = async {
        let mut came = Vec::new();
        while came.len() < names.len() {
            match source.receive(2).now_or_never() {
                None => tokio::task::yield_now().await,
                Some(batch) => {
                    for received in batch.unwrap() {
                        assert!(!received.redelivered, "{} had got lost", text(&received));
                        came.push(text(&received));
                        received.settle.ack().await.unwrap();
                    }
                }
            }
        }
        came
    };
    let ((), came) = tokio::join!(publishing, in_time(receiving));
    assert_eq!(came, names);
}

/// For longer than a broker, or the lease, would wait for a consumer that is gone.
async fn a_delivery_in_progress_is_not_delivered_again(bench: &impl Bench) {
    publish(bench, &["a"]).await;
    let mut source = subscribe(bench).await;
    let held = one(&mut source).await;
    let every = held.settle.progress_interval().unwrap_or(Duration::from_millis(100));
    let working = async {
        for _ in 0..10 {
            tokio::time::sleep(every).await;
            held.settle.progress().await.unwrap();
        }
    };
    tokio::select! {
        () = working => {}
        again = source.receive(1) => panic!("{:?}", again.map(|batch| batch.iter().map(text).collect::<Vec<_>>())),
    }
    held.settle.ack().await.unwrap();
    publish(bench, &["end"]).await;
    assert_eq!(ack_until(&mut source, "end").await, ["end"]);
}

/// Longer than the lease: another process would handle the messages of a key beside those still worked on.
#[tokio::test(flavor = "multi_thread")]
async fn a_closing_log_source_waits_for_its_deliveries_and_keeps_the_lease() {
    let bench = Log(database::sqlite().await);
    publish(&bench, &["a"]).await;
    let mut source = subscribe(&bench).await;
    let held = one(&mut source).await;
    let mut closing = source.close();
    let (begun, another) = (Instant::now(), bench.transport());
    while begun.elapsed() < Duration::from_millis(1500) {
        assert!((&mut closing).now_or_never().is_none(), "a delivery is still out");
        let refused = another.subscribe(&to("billing", &["a.x"])).await.err().expect("the lease is held");
        assert_eq!(refused.kind(), SourceErrorKind::OwnedByAnother);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    held.settle.ack().await.unwrap();
    in_time(closing).await.unwrap();
    publish(&bench, &["end"]).await;
    let mut source = subscribe(&bench).await;
    assert_eq!(ack_until(&mut source, "end").await, ["end"]);
}
