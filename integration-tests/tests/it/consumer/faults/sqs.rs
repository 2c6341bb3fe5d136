//! SQS delivers twice, forgets, refuses, and loses its patience. Fault 33
use crate::support::{
    consumer::{Gate, run_until},
    stores::{Placed, World, chain, effect},
    wait::{eventually, in_time},
};
use serde_json::json;
use sqlx::Postgres;
use std::{sync::Arc, time::Duration};
use twinbox::{
    CancellationToken, Consumer, Delivery, HandlerError, HandlerResult, Tx,
    aws::{Sqs, SqsOptions},
    consumer::ErrorKind as ConsumerErrorKind,
    event_handler,
    seam::{
        Transport as _,
        source::{SourceErrorKind, Subscription},
    },
};
use twinbox_testkit::aws::{Answer, FakeSqs};

const CONSUMER: &str = "tests.sqs";
const VISIBILITY: Duration = Duration::from_secs(30);

#[event_handler(consumer = "tests.sqs")]
async fn note(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, order.n).await?)
}

#[event_handler(consumer = "tests.sqs")]
async fn gated(gate: &Arc<Gate>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    gate.pass(order.n).await;
    Ok(())
}

struct Rig {
    world: World<Postgres>,
    sqs: FakeSqs,
}

impl Rig {
    async fn new() -> Self {
        let sqs = FakeSqs::start().await.unwrap();
        sqs.queue(CONSUMER);
        Self { world: World::new().await, sqs }
    }

    fn options(&self) -> SqsOptions {
        SqsOptions::new()
            .queue(CONSUMER, self.sqs.queue(CONSUMER))
            .region("eu-west-1")
            .endpoint_url(self.sqs.endpoint_url())
            .credentials("any", "any", None)
            .visibility_timeout(VISIBILITY)
            .wait_time(Duration::from_secs(1))
    }

    fn consumer<S: Send + Sync + 'static>(&self, state: S) -> Consumer<Postgres, S> {
        let transport = Sqs::with_options(self.options()).unwrap();
        Consumer::new((*self.world).clone(), state).transport(transport)
    }

    fn send(&self, n: i64) {
        let event = json!({
            "specversion": "1.0", "id": n.to_string(), "source": "shop", "type": "orders.placed",
            "time": "2026-01-01T00:00:00Z", "partitionkey": n.to_string(), "data": {"n": n}
        });
        self.sqs.send(event.to_string());
    }

    /// Runs until the queue is empty. After each call of this name the time passes that deliveries are hidden
    /// for.
    async fn until_empty(&self, call: &str) {
        let mut seen = 0;
        let done = async || {
            let calls = self.sqs.calls(call).len();
            if calls > seen {
                seen = calls;
                self.sqs.advance(VISIBILITY);
            }
            self.sqs.len(CONSUMER) == 0
        };
        run_until(self.consumer(()).handler::<note>(), done).await;
    }
}

#[tokio::test]
async fn row_33_a_receipt_that_expired() {
    let rig = Rig::new().await;
    let (gate, mut entries) = Gate::new();
    rig.send(1);
    let released = gate.clone();
    let watch = async {
        assert_eq!(in_time(entries.recv()).await, Some(1));
        rig.sqs.advance(VISIBILITY);
        eventually(async || (rig.sqs.deliveries() == 2).then_some(())).await;
        released.leave.add_permits(2);
    };
    let consumer = rig.consumer(gate).handler::<gated>();
    tokio::join!(watch, run_until(consumer, async || rig.sqs.len(CONSUMER) == 0));
    assert_eq!(rig.world.effects().await, [1]);
    assert!(entries.try_recv().is_err(), "the copy did not run");
}

#[tokio::test]
async fn row_33_deletions_that_fail_in_part_or_in_doubt() {
    let answers = [
        Answer::Entries(vec![Some("InternalError"), None, Some("ReceiptHandleIsInvalid")]),
        Answer::WrongCount,
        Answer::Cut,
        Answer::Truncated,
        Answer::Malformed,
        Answer::Throttle(None),
        Answer::Status(500),
        Answer::Error(400, "InvalidBatchEntryId"),
    ];
    let rig = Rig::new().await;
    let count = answers.len();
    rig.sqs.answer_next("DeleteMessageBatch", answers);
    (0..10).for_each(|n| rig.send(n));
    rig.until_empty("DeleteMessageBatch").await;
    assert!(rig.sqs.calls("DeleteMessageBatch").len() > count);
    assert_eq!(rig.world.effects().await, Vec::from_iter(0..10));
    assert_eq!((rig.world.rows("inbox").await, rig.world.rows("attempts").await), (10, 0));
}

#[tokio::test]
async fn row_33_two_messages_with_one_event() {
    let rig = Rig::new().await;
    for _ in 0..20 {
        rig.send(1);
        rig.send(2);
    }
    run_until(rig.consumer(()).handler::<note>(), async || rig.sqs.len(CONSUMER) == 0).await;
    assert_eq!(rig.world.effects().await, [1, 2]);
}

/// Also fault 22
#[tokio::test]
async fn row_33_a_handler_that_is_slower_than_the_visibility() {
    let rig = Rig::new().await;
    let (gate, mut entries) = Gate::new();
    rig.send(1);
    let transport = Sqs::with_options(rig.options().visibility_timeout(Duration::from_secs(6))).unwrap();
    let consumer = Consumer::new((*rig.world).clone(), gate.clone()).transport(transport).handler::<gated>();
    let watch = async {
        assert_eq!(in_time(entries.recv()).await, Some(1));
        // One for each third of that time: the handler is slower.
        in_time(rig.sqs.wait_for_calls("ChangeMessageVisibilityBatch", 4)).await;
        gate.leave.add_permits(1);
    };
    tokio::join!(watch, run_until(consumer, async || rig.sqs.len(CONSUMER) == 0));
    assert_eq!((rig.sqs.deliveries(), rig.world.effects().await), (1, vec![1]));
}

#[event_handler(consumer = "tests.sqs")]
async fn tomorrow(_: &(), _: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Err(HandlerError::retry_after(Duration::from_secs(24 * 3600), "come back tomorrow"))
}

/// The service refuses what would be hidden beyond twelve hours from its receive, and shows it as if nobody
/// had asked.
#[tokio::test]
async fn a_long_delay_is_as_long_as_sqs_allows() {
    let rig = Rig::new().await;
    rig.send(1);
    let settled = async || !rig.sqs.calls("ChangeMessageVisibilityBatch").is_empty();
    run_until(rig.consumer(()).handler::<tomorrow>(), settled).await;
    let asked = &rig.sqs.calls("ChangeMessageVisibilityBatch")[0]["Entries"][0]["VisibilityTimeout"];
    let asked = asked.as_u64().unwrap();
    assert!((43_000..43_200).contains(&asked), "{asked}");
}

#[tokio::test]
async fn row_33_requests_for_messages_that_fail() {
    let rig = Rig::new().await;
    let answers = [
        Answer::Status(503),
        Answer::Throttle(None),
        Answer::Cut,
        Answer::Truncated,
        Answer::Malformed,
        Answer::Error(403, "ExpiredTokenException"),
    ];
    rig.sqs.answer_next("ReceiveMessage", answers);
    (0..3).for_each(|n| rig.send(n));
    rig.until_empty("ReceiveMessage").await;
    assert_eq!(rig.world.effects().await, [0, 1, 2]);
}

/// What is asked for at a time fits what may run, and what was received in vain is given back.
#[tokio::test]
async fn what_a_closing_source_receives_goes_to_the_next() {
    let rig = Rig::new().await;
    let transport = Sqs::with_options(rig.options()).unwrap();
    let to = Subscription {
        consumer: CONSUMER.into(),
        types: vec!["orders.placed".into()],
        concurrency: 8,
        is_ordered: false,
    };
    let mut source = transport.subscribe(&to).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), source.receive(8)).await.is_err());
    in_time(rig.sqs.wait_for_calls("ReceiveMessage", 1)).await;
    rig.send(1);
    in_time(source.close()).await.unwrap();
    let mut source = transport.subscribe(&to).await.unwrap();
    let received =
        tokio::time::timeout(VISIBILITY / 2, source.receive(8)).await.expect("it is not hidden").unwrap();
    assert_eq!((received.len(), &*received[0].message.id), (1, "1"));
    let asked = rig.sqs.calls("ReceiveMessage");
    assert!(asked.iter().all(|call| call["MaxNumberOfMessages"] == 8), "{asked:?}");
}

#[tokio::test]
async fn what_cannot_be_consumed_is_said() {
    let rig = Rig::new().await;
    let to = |consumer: &str, ordered| Subscription {
        consumer: consumer.into(),
        types: vec!["orders.placed".into()],
        concurrency: 8,
        is_ordered: ordered,
    };
    let gone = rig.options().queue("gone", rig.sqs.queue(CONSUMER).replace(CONSUMER, "gone"));
    let transport = Sqs::with_options(gone).unwrap();
    for (subscription, says) in [
        (to(CONSUMER, true), "order = \"none\""),
        (to("stock", false), "the consumer `stock` has no queue: name it with `SqsOptions::queue`"),
        (to("gone", false), "QueueDoesNotExist"),
    ] {
        let error = transport.subscribe(&subscription).await.err().unwrap();
        assert_eq!(error.kind(), SourceErrorKind::Misconfigured);
        assert!(error.to_string().contains(says), "{error}");
    }
    rig.sqs.answer_next(
        "GetQueueAttributes",
        [Answer::Error(403, "AccessDeniedException"), Answer::Status(503)],
    );
    let error = transport.subscribe(&to(CONSUMER, false)).await.err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Misconfigured, "{error}");
}

#[tokio::test]
async fn a_queue_that_is_deleted_ends_the_consumer() {
    let rig = Rig::new().await;
    rig.send(1);
    let running = tokio::spawn(rig.consumer(()).handler::<note>().run(CancellationToken::new()));
    eventually(async || (rig.sqs.len(CONSUMER) == 0).then_some(())).await;
    rig.sqs.delete_queue(CONSUMER);
    let error = in_time(running).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Source);
    let error = chain(&error);
    assert!(error.contains("QueueDoesNotExist"), "{error}");
    assert_eq!(rig.world.effects().await, [1]);
}
