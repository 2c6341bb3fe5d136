//! One function for each guarantee.
use super::transport::{
    SOURCE, TransportUnderTest, ack, ack_many, ack_until, in_time, one, publish, subscribe, subscribe_to,
    text, to,
};
use futures::FutureExt as _;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use twinbox_core::{SourceErrorKind, Transport as _};

/// The source delivers a published message with its envelope.
pub async fn what_is_published_is_delivered(broker: &impl TransportUnderTest) {
    broker.publish("a.x", Some("k-1"), "one").await;
    let mut source = subscribe(broker).await;
    let received = one(&mut source).await;
    let came = &received.message;
    assert_eq!((received.defect.as_deref(), received.redelivered), (None, false));
    assert_eq!((came.id.as_str(), came.source.as_str()), ("one", SOURCE));
    assert_eq!((came.event_type.as_str(), came.version), ("a.x", 1));
    assert_eq!((came.key.as_deref(), &came.payload[..]), (Some("k-1"), &b"one"[..]));
    ack(received).await;
    broker.publish("a.x", None, "two").await;
    let received = one(&mut source).await;
    assert_eq!((received.message.id.as_str(), &received.message.key), ("two", &None));
}

/// `receive` returns at most as many deliveries as it was asked for.
pub async fn at_most_as_many_as_asked_for(broker: &impl TransportUnderTest) {
    publish(broker, &["a", "b", "c", "d", "e"]).await;
    let mut source = subscribe(broker).await;
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

/// The next subscriber does not get acknowledged messages.
pub async fn what_is_acknowledged_never_comes_again(broker: &impl TransportUnderTest) {
    publish(broker, &["a", "b"]).await;
    let mut source = subscribe(broker).await;
    assert_eq!(ack_many(broker, &mut source, 2).await, ["a", "b"]);
    source.close().await.expect("it lets go");
    publish(broker, &["end"]).await;
    let mut source = subscribe(broker).await;
    assert_eq!(ack_until(&mut source, "end").await, ["end"]);
}

/// The source redelivers a message after the delay of its nak. Other messages do not wait.
pub async fn a_nak_comes_again_and_not_before_its_delay(broker: &impl TransportUnderTest) {
    const DELAY: Duration = Duration::from_millis(300);
    publish(broker, &["a", "b"]).await;
    let mut source = subscribe(broker).await;
    let received = one(&mut source).await;
    let (name, begun) = (text(&received), Instant::now());
    assert!(!received.redelivered);
    received.settle.nak(DELAY).await.expect("it is confirmed");
    let other = if name == "a" { "b" } else { "a" };
    assert_eq!(ack_many(broker, &mut source, 1).await, [other], "another message need not wait");
    let received = one(&mut source).await;
    assert!(begun.elapsed() >= DELAY, "came after {:?}", begun.elapsed());
    assert_eq!((text(&received), received.redelivered), (name.clone(), true));
    received.settle.nak(Duration::ZERO).await.expect("it is confirmed");
    assert_eq!(ack_many(broker, &mut source, 1).await, [name]);
}

/// The source redelivers a message whose delivery was dropped.
pub async fn a_dropped_delivery_comes_again(broker: &impl TransportUnderTest) {
    publish(broker, &["a"]).await;
    let mut source = subscribe(broker).await;
    drop(one(&mut source).await);
    let received = one(&mut source).await;
    assert_eq!((text(&received).as_str(), received.redelivered), ("a", true));
}

/// The next subscriber gets the unsettled deliveries of a dropped source.
pub async fn deliveries_of_a_dropped_source_come_again(broker: &impl TransportUnderTest) {
    publish(broker, &["a", "b", "c"]).await;
    let mut source = subscribe(broker).await;
    let held = one(&mut source).await;
    let name = text(&held);
    drop(source);
    drop(held);
    let mut source = subscribe(broker).await;
    let mut came = BTreeSet::new();
    while came.len() < 3 {
        let received = one(&mut source).await;
        assert!(received.redelivered || text(&received) != name);
        came.insert(text(&received));
        ack(received).await;
    }
}

/// The next subscriber continues at once where a closed source has ended.
pub async fn a_closed_source_goes_on_where_it_was(broker: &impl TransportUnderTest) {
    publish(broker, &["a", "b", "c", "d"]).await;
    let mut source = subscribe(broker).await;
    let mut came = ack_many(broker, &mut source, 2).await;
    source.close().await.expect("it lets go");
    let subscribed = broker.transport().subscribe(&to("billing", &["a.x"])).await;
    let mut source = subscribed.expect("a closed source has no lease");
    came.extend(ack_many(broker, &mut source, 2).await);
    came.sort();
    assert_eq!(came, ["a", "b", "c", "d"]);
}

/// A single subscriber gets the messages of a key in order. Without [`TransportUnderTest::KEEPS_ORDER`] it
/// gets each once.
pub async fn one_subscriber_gets_the_messages_of_a_key_in_order<B: TransportUnderTest>(broker: &B) {
    let mut expected: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    for text in &expected {
        broker.publish("a.x", Some("k"), text).await;
        broker.publish("a.x", Some("other"), &format!("other {text}")).await;
    }
    let mut source = subscribe(broker).await;
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

/// The source delivers only the types of the subscription, or all without
/// [`TransportUnderTest::FILTERS_TYPES`].
pub async fn only_the_types_asked_for_are_delivered<B: TransportUnderTest>(broker: &B) {
    let all = [("b.y", "1"), ("a.x", "2"), ("a.x.more", "3"), ("b.z", "4"), ("a.x", "5")];
    for (event_type, text) in all {
        broker.publish(event_type, None, text).await;
    }
    for (consumer, types) in [("billing", &["a.x"][..]), ("stock", &["a.x", "b.z"])] {
        let expected: Vec<_> =
            all.into_iter().filter(|(t, _)| !B::FILTERS_TYPES || types.contains(t)).collect();
        if types.len() > B::TYPES_MAX {
            let refused =
                broker.transport().subscribe(&to(consumer, types)).await.err().expect("it is refused");
            assert_eq!(refused.kind(), SourceErrorKind::Misconfigured, "{refused}");
            continue;
        }
        let mut source = subscribe_to(broker, &to(consumer, types)).await;
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

/// Every consumer gets every message, and a slow consumer does not delay another.
pub async fn consumers_know_nothing_of_each_other(broker: &impl TransportUnderTest) {
    publish(broker, &["a", "b"]).await;
    let mut slow = subscribe_to(broker, &to("slow", &["a.x"])).await;
    let mut fast = subscribe_to(broker, &to("fast", &["a.x"])).await;
    let held = one(&mut slow).await;
    assert_eq!(ack_many(broker, &mut fast, 2).await, ["a", "b"]);
    let name = text(&held);
    ack(held).await;
    assert_eq!(ack_many(broker, &mut slow, 1).await, [if name == "a" { "b" } else { "a" }]);
}

/// A dropped future of `receive` loses no message. The test polls it once and drops it, again and again.
pub async fn receive_is_cancel_safe<B: TransportUnderTest>(broker: &B) {
    let mut names: Vec<_> = (0..60).map(|n| n.to_string()).collect();
    let mut source = subscribe(broker).await;
    let publishing = async {
        for name in &names {
            broker.publish("a.x", None, name).await;
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

/// Progress keeps a delivery for longer than the broker, or the lease, waits for a consumer.
pub async fn a_delivery_in_progress_is_not_delivered_again(broker: &impl TransportUnderTest) {
    publish(broker, &["a"]).await;
    let mut source = subscribe(broker).await;
    let held = one(&mut source).await;
    let every = held.settle.progress_interval().unwrap_or(Duration::from_millis(100));
    let working = async {
        for _ in 0..10 {
            // No signal shows that the broker has not given up on the delivery.
            tokio::time::sleep(every).await;
            held.settle.progress().await.expect("it is confirmed");
        }
    };
    tokio::select! {
        () = working => {}
        again = source.receive(1) => {
            panic!("{:?}", again.map(|batch| Vec::from_iter(batch.iter().map(text))));
        }
    }
    ack(held).await;
    publish(broker, &["end"]).await;
    assert_eq!(ack_until(&mut source, "end").await, ["end"]);
}
