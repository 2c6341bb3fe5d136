//! What a handler publishes: ids that every run lands on, and the context of what caused it.
use crate::support::{
    cases::cases,
    stores::{Confirmed, Placed, TestDb, World, effect, failed, placed},
};
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use twinbox::{
    BatchTx, Consumer, Delivery, DeliveryOutcome, Dialect, Draft, Event, HandlerResult, Message, MessageId,
    Tx, event_handler, id,
};
use twinbox_testkit::Harness;

#[derive(Debug, Clone, Serialize, Deserialize, Event)]
#[event(type = "orders.audited", version = 1)]
struct Audited;

#[event_handler(consumer = "tests.confirm")]
async fn confirm<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    for key in [1, 1, 2] {
        tx.publish(&Confirmed { n: order.n * 10 + key }).await?;
    }
    if order.attempt() == 1 { Err("once more".into()) } else { Ok(()) }
}

/// The same with another event before and other keys first.
#[event_handler(consumer = "tests.confirm")]
async fn confirm_and_audit<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    tx.publish(&Audited).await?;
    for key in [2, 1, 1] {
        tx.publish(&Confirmed { n: order.n * 10 + key }).await?;
    }
    Ok(())
}

#[event_handler(consumer = "tests.another")]
async fn confirm_elsewhere<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    tx.publish(&Confirmed { n: order.n * 10 + 1 }).await?;
    Ok(())
}

async fn ids<DB: TestDb>(world: &World<DB>) -> Vec<String> {
    let messages = world.published("orders.confirmed", 1_000).await.unwrap();
    let mut ids: Vec<_> = messages.into_iter().map(|m| m.id).collect();
    ids.sort();
    ids
}

/// A deploy that publishes another event, or walks its keys in another order, shifts no id.
async fn a_run_again_lands_on_the_same_ids<DB: TestDb>() {
    let (first, second, third) =
        (World::<DB>::new().await, World::<DB>::new().await, World::<DB>::new().await);
    let order = placed(4);
    assert!(failed(&first.deliver::<confirm>(&order).await, "once more"));
    assert_eq!(first.deliver::<confirm>(&order).await, DeliveryOutcome::Handled);
    assert_eq!(second.deliver::<confirm_and_audit>(&order).await, DeliveryOutcome::Handled);
    assert_eq!(third.deliver::<confirm_elsewhere>(&order).await, DeliveryOutcome::Handled);
    let found = ids(&first).await;
    assert_eq!(found, ids(&second).await);
    let mut expected = [(41, 1), (41, 2), (42, 1)].map(|(key, nth)| {
        let key = Some(i64::to_string(&key));
        id::derived_event_id(
            "test",
            order.message_id(),
            "tests.confirm",
            "orders.confirmed",
            key.as_deref(),
            nth,
        )
    });
    expected.sort();
    assert_eq!(found, expected);
    assert!(!found.contains(&ids(&third).await[0]), "another consumer publishes another message");
}

/// By the outbox, inside a handler, it is the same.
async fn the_outbox_in_a_handler_publishes_as_the_handler_does<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let (outbox, harness) = (world.outbox(), Harness::new(&world, ()));
    harness
        .run(async |tx| {
            let first = tx.publish(&Confirmed { n: 1 }).await?;
            let second = outbox.publish(tx, &Confirmed { n: 1 }).await?;
            let third = outbox.publish_all(tx, vec![Draft::of(&Confirmed { n: 1 })?]).await?[0];
            let cause = tx.message_id();
            for (nth, found) in (1..).zip([first, second, third]) {
                let id = id::derived_event_id("test", cause, "harness", "orders.confirmed", Some("1"), nth);
                assert_eq!(found, MessageId::of("test", "orders.confirmed", &id));
            }
            Ok(())
        })
        .await
        .unwrap();
    for message in world.published("orders.confirmed", 10).await.unwrap() {
        assert!(message.causation_id.is_some());
    }
}

#[event_handler(consumer = "tests.both")]
async fn alone<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    Ok(())
}

#[event_handler(consumer = "tests.both", batch = 10)]
async fn together<DB: Dialect>(
    seen: &Arc<AtomicBool>,
    tx: &mut BatchTx<'_, DB>,
    orders: Vec<Delivery<Placed>>,
) -> HandlerResult {
    seen.fetch_or(orders.len() > 1, SeqCst);
    for order in orders.iter().rev() {
        effect::<DB>(tx, order.n).await?;
        tx.caused_by(order).publish(&Confirmed { n: order.n }).await?;
    }
    for order in &orders {
        tx.caused_by(order).publish(&Confirmed { n: order.n }).await?;
    }
    Ok(())
}

const TRACES: [&str; 2] = [
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
];

/// Messages as another store published them, one correlation and trace each.
async fn orders<DB: TestDb>() -> Vec<Message> {
    let producer = World::<DB>::new().await;
    let mut tx = producer.begin().await.unwrap();
    for (n, trace) in (0..).zip(TRACES) {
        let draft = Draft::of(&Placed { n }).unwrap().traceparent(trace);
        producer.outbox().publish_draft(&mut tx, draft.correlation_id(format!("c-{n}"))).await.unwrap();
    }
    tx.commit().await.unwrap();
    producer.published("orders.placed", 10).await.unwrap()
}

/// Copies of the messages in this store's log, for its own consumers.
async fn copy<DB: TestDb>(world: &World<DB>, messages: &[Message]) {
    let mut tx = world.begin().await.unwrap();
    for m in messages {
        let draft = Draft::raw(&m.event_type, m.version, m.payload.clone())
            .id(&m.id)
            .key(m.key.clone().unwrap())
            .correlation_id(m.correlation_id.clone().unwrap())
            .traceparent(m.traceparent.clone().unwrap());
        world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// So a batch that fails can be handled one by one.
async fn a_batch_publishes_the_ids_and_the_context_of_single_deliveries<DB: TestDb>() {
    let (single, batch) = (World::<DB>::new().await, World::<DB>::new().await);
    let orders = orders::<DB>().await;
    for order in &orders {
        assert_eq!(single.deliver::<alone>(order).await, DeliveryOutcome::Handled);
    }
    copy(&batch, &orders).await;
    let seen = Arc::new(AtomicBool::new(false));
    let consumer = Consumer::new((*batch).clone(), seen.clone()).handler::<together>();
    crate::support::consumer::run_until(consumer, async || batch.rows("inbox").await == 2).await;
    assert!(seen.load(SeqCst), "two deliveries came in one batch");
    assert_eq!(ids(&single).await.len(), 4);
    assert_eq!(ids(&single).await, ids(&batch).await);
    for world in [&single, &batch] {
        for message in world.published("orders.confirmed", 10).await.unwrap() {
            let n: usize = message.key.unwrap().parse().unwrap();
            assert_eq!(message.causation_id, Some(orders[n].message_id().to_string()));
            assert_eq!(message.correlation_id, Some(format!("c-{n}")));
            assert_eq!(message.traceparent.as_deref(), Some(TRACES[n]));
        }
    }
}

#[event_handler(consumer = "tests.explicit")]
async fn explicit<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    let draft = Draft::of(&Confirmed { n: order.n })?.id("mine").correlation_id("c").causation_id("m");
    tx.publish_draft(draft.traceparent(TRACES[1])).await?;
    Ok(())
}

async fn what_a_draft_says_is_not_inherited<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = orders::<DB>().await.remove(0);
    assert_eq!(world.deliver::<explicit>(&order).await, DeliveryOutcome::Handled);
    let message = &world.published("orders.confirmed", 10).await.unwrap()[0];
    assert_eq!(message.id, "mine");
    assert_eq!(message.correlation_id.as_deref(), Some("c"));
    assert_eq!(message.causation_id.as_deref(), Some("m"));
    assert_eq!(message.traceparent.as_deref(), Some(TRACES[1]));
}

cases! {
    all: [
        a_run_again_lands_on_the_same_ids,
        the_outbox_in_a_handler_publishes_as_the_handler_does,
        a_batch_publishes_the_ids_and_the_context_of_single_deliveries,
        what_a_draft_says_is_not_inherited,
    ]
}
