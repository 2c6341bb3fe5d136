//! The broker of the tests: a transport, a way to publish, and steps of the tests.
use std::time::Duration;
use twinbox_core::{Message, ReceivedMessage, Source, SourceErrorKind, Subscription, Transport};

/// The source of the published messages.
pub const SOURCE: &str = crate::database::SERVICE;

/// A transport, and a way to publish to its broker. Every test begins with an empty broker.
#[expect(async_fn_in_trait, reason = "no test sends it to another thread")]
pub trait TransportUnderTest {
    /// Whether a single subscriber gets the messages of a key in the order of publishing.
    const KEEPS_ORDER: bool = true;
    /// Whether the source delivers only the types of the subscription. Otherwise it delivers all types, and
    /// the consumer keeps the others as dead letters.
    const FILTERS_TYPES: bool = true;
    /// The most types of a subscription. One with more types is refused.
    const TYPES_MAX: usize = usize::MAX;

    /// Returns the transport. It redelivers within a few seconds, so that the tests are fast.
    fn transport(&self) -> impl Transport;

    /// Publishes [`message`] to the broker of the transport, for every consumer.
    async fn publish(&self, event_type: &str, key: Option<&str>, text: &str);
}

/// Returns the message whose id and payload are `text`.
pub fn message(event_type: &str, key: Option<&str>, text: &str) -> Message {
    let time = twinbox_core::Timestamp::from_micros(1_789_000_000_000_000);
    Message {
        event_type: event_type.to_owned(),
        key: key.map(str::to_owned),
        content_type: "text/plain".to_owned(),
        ..Message::placeholder(text.to_owned(), SOURCE.to_owned(), time, text.to_owned().into())
    }
}

/// Waits for the future, for at most a minute.
///
/// # Panics
/// The future takes longer.
pub async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it takes less than a minute")
}

/// Returns a subscription of one consumer.
pub fn to(consumer: &str, types: &[&str]) -> Subscription {
    let types = types.iter().map(|&name| name.to_owned()).collect();
    Subscription { consumer: consumer.to_owned(), types, concurrency: 10, is_ordered: false }
}

/// Subscribes as the consumer `billing`. Tries again while the subscriber before it still has the lease.
pub async fn subscribe(broker: &impl TransportUnderTest) -> Box<dyn Source> {
    subscribe_to(broker, &to("billing", &["a.x"])).await
}

pub(super) async fn subscribe_to(
    broker: &impl TransportUnderTest,
    subscription: &Subscription,
) -> Box<dyn Source> {
    let transport = broker.transport();
    loop {
        match transport.subscribe(subscription).await {
            Ok(source) => return source,
            // The clock of the database ends the lease.
            Err(error) if error.kind() == SourceErrorKind::OwnedByAnother => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Receives the next delivery.
pub async fn one(source: &mut Box<dyn Source>) -> ReceivedMessage {
    in_time(source.receive(1)).await.expect("a delivery").remove(0)
}

pub(super) fn text(received: &ReceivedMessage) -> String {
    String::from_utf8_lossy(&received.message.payload).into_owned()
}

/// Publishes messages without a key.
pub async fn publish(broker: &impl TransportUnderTest, texts: &[&str]) {
    for text in texts {
        broker.publish("a.x", None, text).await;
    }
}

pub(super) async fn ack(received: ReceivedMessage) {
    received.settle.ack().await.expect("it is confirmed");
}

/// Acknowledges deliveries up to the one with the text `last`. Returns their texts.
pub async fn ack_until(source: &mut Box<dyn Source>, last: &str) -> Vec<String> {
    let mut came = Vec::new();
    while came.last().is_none_or(|text| text != last) {
        let received = one(source).await;
        came.push(text(&received));
        ack(received).await;
    }
    came
}

/// Acknowledges `count` deliveries. Returns their texts, sorted if the source keeps no order.
pub(super) async fn ack_many<B: TransportUnderTest>(
    _: &B,
    source: &mut Box<dyn Source>,
    count: usize,
) -> Vec<String> {
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
