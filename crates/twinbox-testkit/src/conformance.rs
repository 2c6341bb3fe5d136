//! What every source of deliveries promises, as tests for one of your own.
//!
//! ```no_run
//! use twinbox_core::Transport;
//! use twinbox_testkit::conformance::{Bench, message};
//!
//! /// What publishes to where the transport reads from.
//! struct Mine;
//!
//! impl Bench for Mine {
//!     fn transport(&self) -> impl Transport {
//! #       twinbox_sql::Store::new(sqlx::SqlitePool::connect_lazy("sqlite:x").unwrap(), "x").unwrap().log()
//! #       /*
//!         my::transport()
//! #       */
//!     }
//!
//!     async fn publish(&self, event_type: &str, key: Option<&str>, text: &str) {
//!         let message = message(event_type, key, text);
//! #       /*
//!         my::publish(message).await
//! #       */
//!     }
//! }
//!
//! // A test for each promise, `mine::what_is_published_is_delivered` and so on, with a bench of its own.
//! twinbox_testkit::source_conformance! {
//!     mine: async { Mine };
//! }
//! ```
use futures::FutureExt as _;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use twinbox_core::{Message, Received, Source, SourceErrorKind, Subscription, Transport};

/// The source of what is published.
pub const SOURCE: &str = crate::database::SERVICE;

/// A transport, and a way to publish to where it reads from. What the bench is given by then is empty.
#[expect(async_fn_in_trait, reason = "no test sends it to another thread")]
pub trait Bench {
    /// Whether one subscriber gets the messages of a key in the order of publishing.
    const KEEPS_ORDER: bool = true;
    /// Whether types that nobody asked for are not delivered. Otherwise they are, and the consumer keeps them as dead
    /// letters.
    const FILTERS_TYPES: bool = true;
    /// How many types a consumer may ask for; one that asks for more is refused.
    const TYPES_MAX: usize = usize::MAX;

    /// The transport. A delivery that nobody settles comes again within a few seconds, so that the tests are quick.
    fn transport(&self) -> impl Transport;

    /// Publishes [`message`] where the transport reads from, for every consumer.
    async fn publish(&self, event_type: &str, key: Option<&str>, text: &str);
}

/// The message of the suite whose id and payload are `text`.
pub fn message(event_type: &str, key: Option<&str>, text: &str) -> Message {
    let time = twinbox_core::Timestamp::from_micros(1_789_000_000_000_000);
    Message {
        event_type: event_type.to_owned(),
        key: key.map(str::to_owned),
        content_type: "text/plain".to_owned(),
        ..Message::unreadable(text.to_owned(), SOURCE.to_owned(), time, text.to_owned().into())
    }
}

/// A test for each promise and each bench: `NAME: FUTURE OF A BENCH;`.
#[macro_export]
macro_rules! source_conformance {
    ($($module:ident: $bench:expr;)+) => {
        $(mod $module {
            #[allow(unused_imports)]
            use super::*;
            $crate::source_conformance! { @ $bench, [
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
            ] }
        })+
    };
    (@ $bench:expr, [$($case:ident)+]) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $case() {
            let bench = $bench.await;
            $crate::conformance::in_time($crate::conformance::$case(&bench)).await;
        })+
    };
}

/// Waits for at most a minute.
///
/// # Panics
/// It takes longer.
pub async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("nothing takes a minute")
}

/// A subscription of one consumer.
pub fn to(consumer: &str, types: &[&str]) -> Subscription {
    let types = types.iter().map(|&name| name.to_owned()).collect();
    Subscription { consumer: consumer.to_owned(), types, concurrency: 10, ordered: false }
}

/// Subscribes as the consumer of the suite, again and again while the one before still has the lease.
pub async fn subscribe(bench: &impl Bench) -> Box<dyn Source> {
    subscribe_to(bench, &to("billing", &["a.x"])).await
}

async fn subscribe_to(bench: &impl Bench, subscription: &Subscription) -> Box<dyn Source> {
    let transport = bench.transport();
    loop {
        match transport.subscribe(subscription).await {
            Ok(source) => return source,
            // The lease ends by the clock of the database.
            Err(error) if error.kind() == SourceErrorKind::OwnedByAnother => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// The next delivery.
pub async fn one(source: &mut Box<dyn Source>) -> Received {
    in_time(source.receive(1)).await.expect("a delivery").remove(0)
}

fn text(received: &Received) -> String {
    String::from_utf8_lossy(&received.message.payload).into_owned()
}

/// Publishes messages without a key.
pub async fn publish(bench: &impl Bench, texts: &[&str]) {
    for text in texts {
        bench.publish("a.x", None, text).await;
    }
}

async fn ack(received: Received) {
    received.settle.ack().await.expect("it is confirmed");
}

/// Acknowledges one delivery after the other up to the one that says `last`.
pub async fn ack_until(source: &mut Box<dyn Source>, last: &str) -> Vec<String> {
    let mut came = Vec::new();
    while came.last().is_none_or(|text| text != last) {
        let received = one(source).await;
        came.push(text(&received));
        ack(received).await;
    }
    came
}

/// Acknowledges that many deliveries. What a source that keeps no order brought is sorted.
async fn ack_many<B: Bench>(_: &B, source: &mut Box<dyn Source>, count: usize) -> Vec<String> {
    let mut came = Vec::new();
    while came.len() < count {
        let received = one(source).await;
        came.push(text(&received));
        ack(received).await;
    }
    if !B::KEEPS_ORDER {
        came.sort();
    }
    came
}

/// The promise of its name.
pub async fn what_is_published_is_delivered(bench: &impl Bench) {
    bench.publish("a.x", Some("k-1"), "one").await;
    let mut source = subscribe(bench).await;
    let received = one(&mut source).await;
    let came = &received.message;
    assert_eq!((received.defect.as_deref(), received.redelivered), (None, false));
    assert_eq!((came.id.as_str(), came.source.as_str()), ("one", SOURCE));
    assert_eq!((came.event_type.as_str(), came.version), ("a.x", 1));
    assert_eq!((came.key.as_deref(), &came.payload[..]), (Some("k-1"), &b"one"[..]));
    ack(received).await;
    bench.publish("a.x", None, "two").await;
    let received = one(&mut source).await;
    assert_eq!((received.message.id.as_str(), &received.message.key), ("two", &None));
}

/// The promise of its name.
pub async fn at_most_as_many_as_asked_for(bench: &impl Bench) {
    publish(bench, &["a", "b", "c", "d", "e"]).await;
    let mut source = subscribe(bench).await;
    let mut came = BTreeSet::new();
    while came.len() < 5 {
        let batch = in_time(source.receive(2)).await.expect("deliveries");
        assert!((1..=2).contains(&batch.len()));
        came.extend(batch.iter().map(text));
        for received in batch {
            ack(received).await;
        }
    }
}

/// The promise of its name.
pub async fn what_is_acknowledged_never_comes_again(bench: &impl Bench) {
    publish(bench, &["a", "b"]).await;
    let mut source = subscribe(bench).await;
    assert_eq!(ack_many(bench, &mut source, 2).await, ["a", "b"]);
    source.close().await.expect("it lets go");
    publish(bench, &["end"]).await;
    let mut source = subscribe(bench).await;
    assert_eq!(ack_until(&mut source, "end").await, ["end"]);
}

/// The promise of its name.
pub async fn a_nak_comes_again_and_not_before_its_delay(bench: &impl Bench) {
    const DELAY: Duration = Duration::from_millis(300);
    publish(bench, &["a", "b"]).await;
    let mut source = subscribe(bench).await;
    let received = one(&mut source).await;
    let (name, begun) = (text(&received), Instant::now());
    assert!(!received.redelivered);
    received.settle.nak(DELAY).await.expect("it is confirmed");
    let other = if name == "a" { "b" } else { "a" };
    assert_eq!(ack_many(bench, &mut source, 1).await, [other], "another message need not wait");
    let received = one(&mut source).await;
    assert!(begun.elapsed() >= DELAY, "came after {:?}", begun.elapsed());
    assert_eq!((text(&received), received.redelivered), (name.clone(), true));
    received.settle.nak(Duration::ZERO).await.expect("it is confirmed");
    assert_eq!(ack_many(bench, &mut source, 1).await, [name]);
}

/// The promise of its name.
pub async fn a_dropped_delivery_comes_again(bench: &impl Bench) {
    publish(bench, &["a"]).await;
    let mut source = subscribe(bench).await;
    drop(one(&mut source).await);
    let received = one(&mut source).await;
    assert_eq!((text(&received).as_str(), received.redelivered), ("a", true));
}

/// The promise of its name.
pub async fn deliveries_of_a_dropped_source_come_again(bench: &impl Bench) {
    publish(bench, &["a", "b", "c"]).await;
    let mut source = subscribe(bench).await;
    let held = one(&mut source).await;
    let name = text(&held);
    drop(source);
    drop(held);
    let mut source = subscribe(bench).await;
    let mut came = BTreeSet::new();
    while came.len() < 3 {
        let received = one(&mut source).await;
        assert!(received.redelivered || text(&received) != name);
        came.insert(text(&received));
        ack(received).await;
    }
}

/// The promise of its name.
pub async fn a_closed_source_goes_on_where_it_was(bench: &impl Bench) {
    publish(bench, &["a", "b", "c", "d"]).await;
    let mut source = subscribe(bench).await;
    let mut came = ack_many(bench, &mut source, 2).await;
    source.close().await.expect("it lets go");
    let subscribed = bench.transport().subscribe(&to("billing", &["a.x"])).await;
    let mut source = subscribed.expect("a closed source keeps nobody waiting");
    came.extend(ack_many(bench, &mut source, 2).await);
    came.sort();
    assert_eq!(came, ["a", "b", "c", "d"]);
}

/// The promise of its name; of a source that keeps no order, that each comes once.
pub async fn one_subscriber_gets_the_messages_of_a_key_in_order<B: Bench>(bench: &B) {
    let mut expected: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    for text in &expected {
        bench.publish("a.x", Some("k"), text).await;
        bench.publish("a.x", Some("other"), &format!("other {text}")).await;
    }
    let mut source = subscribe(bench).await;
    let (mut came, mut others) = (Vec::new(), 0);
    while came.len() < expected.len() || others < expected.len() {
        for received in in_time(source.receive(5)).await.expect("deliveries") {
            match received.message.key.as_deref() {
                Some("k") => came.push(text(&received)),
                _ => others += 1,
            }
            ack(received).await;
        }
    }
    if !B::KEEPS_ORDER {
        came.sort();
        expected.sort();
    }
    assert_eq!(came, expected);
}

/// The promise of its name; of a source that filters nothing, that all are delivered under their types.
pub async fn only_the_types_asked_for_are_delivered<B: Bench>(bench: &B) {
    let all = [("b.y", "1"), ("a.x", "2"), ("a.x.more", "3"), ("b.z", "4"), ("a.x", "5")];
    for (event_type, text) in all {
        bench.publish(event_type, None, text).await;
    }
    for (consumer, types) in [("billing", &["a.x"][..]), ("stock", &["a.x", "b.z"])] {
        let expected: Vec<_> =
            all.into_iter().filter(|(t, _)| !B::FILTERS_TYPES || types.contains(t)).collect();
        if types.len() > B::TYPES_MAX {
            let refused =
                bench.transport().subscribe(&to(consumer, types)).await.err().expect("it is refused");
            assert_eq!(refused.kind(), SourceErrorKind::Misconfigured, "{refused}");
            continue;
        }
        let mut source = subscribe_to(bench, &to(consumer, types)).await;
        let mut came = Vec::new();
        while came.len() < expected.len() {
            let received = one(&mut source).await;
            came.push((received.message.event_type.clone(), text(&received)));
            ack(received).await;
        }
        if !B::KEEPS_ORDER {
            came.sort_by(|x, y| x.1.cmp(&y.1));
        }
        let came: Vec<_> = came.iter().map(|(event_type, text)| (&**event_type, &**text)).collect();
        assert_eq!(came, expected);
    }
}

/// The promise of its name.
pub async fn consumers_know_nothing_of_each_other(bench: &impl Bench) {
    publish(bench, &["a", "b"]).await;
    let mut slow = subscribe_to(bench, &to("slow", &["a.x"])).await;
    let mut fast = subscribe_to(bench, &to("fast", &["a.x"])).await;
    let held = one(&mut slow).await;
    assert_eq!(ack_many(bench, &mut fast, 2).await, ["a", "b"]);
    let name = text(&held);
    ack(held).await;
    assert_eq!(ack_many(bench, &mut slow, 1).await, [if name == "a" { "b" } else { "a" }]);
}

/// Polled once and dropped, again and again, while messages come.
pub async fn receive_is_cancel_safe<B: Bench>(bench: &B) {
    let mut names: Vec<_> = (0..60).map(|n| n.to_string()).collect();
    let mut source = subscribe(bench).await;
    let publishing = async {
        for name in &names {
            bench.publish("a.x", None, name).await;
        }
    };
    let receiving = async {
        let mut came = Vec::new();
        while came.len() < 60 {
            match source.receive(2).now_or_never() {
                None => tokio::task::yield_now().await,
                Some(batch) => {
                    for received in batch.expect("deliveries") {
                        assert!(!received.redelivered, "{} had got lost", text(&received));
                        came.push(text(&received));
                        ack(received).await;
                    }
                }
            }
        }
        came
    };
    let ((), mut came) = tokio::join!(publishing, in_time(receiving));
    if !B::KEEPS_ORDER {
        came.sort();
        names.sort();
    }
    assert_eq!(came, names);
}

/// For longer than a broker, or the lease, would wait for a consumer that is gone.
pub async fn a_delivery_in_progress_is_not_delivered_again(bench: &impl Bench) {
    publish(bench, &["a"]).await;
    let mut source = subscribe(bench).await;
    let held = one(&mut source).await;
    let every = held.settle.progress_interval().unwrap_or(Duration::from_millis(100));
    let working = async {
        for _ in 0..10 {
            // No signal tells that a broker has not lost its patience.
            tokio::time::sleep(every).await;
            held.settle.progress().await.expect("it is confirmed");
        }
    };
    tokio::select! {
        () = working => {}
        again = source.receive(1) => panic!("{:?}", again.map(|batch| batch.iter().map(text).collect::<Vec<_>>())),
    }
    ack(held).await;
    publish(bench, &["end"]).await;
    assert_eq!(ack_until(&mut source, "end").await, ["end"]);
}
