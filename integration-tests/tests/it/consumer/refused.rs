//! What compiles and would do something else is refused, with what to write instead.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    relay::Target,
    stores::{Confirmed, Placed, TestDb, World, placed},
    wait::in_time,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Postgres};
use std::time::Duration;
use twinbox::{
    BatchTx, CancellationToken, Consumer, Delivery, DeliveryOutcome, Dialect, ErrorKind, Event,
    HandlerResult, Store, Tx,
    consumer::ErrorKind as ConsumerErrorKind,
    event_handler,
    nats::{Nats, StreamOptions},
};

#[derive(Debug, Clone, Serialize, Deserialize, Event)]
#[event(type = "orders.counted", version = 1)]
struct Counted {
    n: i64,
}

#[event_handler(consumer = "tests.refused", order = "key")]
async fn count<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Counted>) -> HandlerResult {
    Ok(())
}

async fn the_order_of_keys_is_refused_where_the_event_has_no_key<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let consumer = Consumer::new((*world).clone(), ()).handler::<count>();
    let error = in_time(consumer.run(CancellationToken::new())).await.unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Configuration);
    let says = "its event \"orders.counted\" has no key: write `key = FIELD` in its `#[event(…)]`";
    assert!(error.to_string().contains(says), "{error}");
}

#[event_handler(consumer = "tests.refused", order = "key", timeout = "60s")]
async fn slow(_: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "tests.refused", order = "key", batch = 10)]
async fn many(_: &mut BatchTx<'_, Postgres>, _: Vec<Delivery<Placed>>) -> HandlerResult {
    Ok(())
}

async fn what_a_lease_of_partitions_cannot_give_is_refused() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    target.destination().provision(&StreamOptions::default()).await.unwrap();
    let consumer = || {
        let nats = Nats::with_options(target.existing()).unwrap();
        Consumer::new((*world).clone(), ()).transport(nats)
    };
    let refused = async |consumer: Consumer<Postgres, ()>, says: &str| {
        let error = in_time(consumer.run(CancellationToken::new())).await.unwrap_err();
        assert_eq!(error.kind(), ConsumerErrorKind::Configuration);
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(
        consumer().handler::<slow>(),
        "before its `timeout` of 60s: write `.lease(Duration::from_millis(60000))`",
    )
    .await;
    refused(consumer().handler::<many>(), "one message each: take `Delivery` without `batch = …`").await;
    // Ends by itself only if it is refused.
    let enough = consumer().handler::<slow>().lease(Duration::from_secs(60));
    run_until(enough, async || world.rows("partition_leases").await == 16).await;
}

#[event_handler(consumer = "tests.refused")]
async fn nested<DB: Dialect>(
    store: &Store<DB>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    let mut inner = tx.begin().await?;
    let event = Confirmed { n: order.n };
    if order.n < 0 {
        store.outbox().publish_all(&mut inner, vec![]).await?;
    }
    store.outbox().publish(&mut inner, &event).await?;
    inner.commit().await?;
    Ok(())
}

#[event_handler(consumer = "tests.refused-too")]
async fn by_itself<DB: Dialect>(
    store: &Store<DB>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    let nested = tx.begin().await?;
    nested.rollback().await?;
    tx.savepoint(async |tx| {
        store.outbox().publish(tx, &Confirmed { n: order.n }).await?;
        Ok(())
    })
    .await
}

async fn a_transaction_of_sqlx_in_a_handler_publishes_nothing<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let harness = twinbox_testkit::Harness::new(&world, (*world).clone());
    for n in [1, -1] {
        let outcome = harness.deliver::<nested>(&placed(n)).await;
        let DeliveryOutcome::Retried { counted: true, error, .. } = &outcome else { panic!("{outcome:?}") };
        assert!(error.contains("write `tx.publish(&event)`"), "{error}");
    }
    assert_eq!(world.rows("outbox").await, 0);
    assert_eq!(harness.deliver::<by_itself>(&placed(1)).await, DeliveryOutcome::Handled);
    assert_eq!(world.rows("outbox").await, 1);
    // Nobody handles anything here.
    let mut tx = world.begin().await.unwrap();
    let mut inner = tx.begin().await.unwrap();
    world.outbox().publish(&mut inner, &Confirmed { n: 2 }).await.unwrap();
    inner.commit().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.rows("outbox").await, 2);
}

/// A transaction of its own is no part of the handler's.
async fn a_handler_may_publish_in_another_transaction() {
    #[event_handler(consumer = "tests.refused-other")]
    async fn other(
        store: &Store<Postgres>,
        _: &mut Tx<'_, Postgres>,
        order: Delivery<Placed>,
    ) -> HandlerResult {
        let mut tx = store.begin().await?;
        let mut inner = tx.begin().await?;
        store.outbox().publish(&mut inner, &Confirmed { n: order.n }).await?;
        inner.commit().await?;
        Ok(tx.commit().await?)
    }
    let world = World::<Postgres>::new().await;
    let harness = twinbox_testkit::Harness::new(&world, (*world).clone());
    assert_eq!(harness.deliver::<other>(&placed(1)).await, DeliveryOutcome::Handled);
    assert_eq!(world.rows("outbox").await, 1);
}

#[event_handler(consumer = "tests.refused", batch = 10)]
async fn uncaused<DB: Dialect>(
    store: &Store<DB>,
    tx: &mut BatchTx<'_, DB>,
    orders: Vec<Delivery<Placed>>,
) -> HandlerResult {
    store.outbox().publish(&mut tx.caused_by(&orders[0]), &Confirmed { n: 0 }).await?;
    let error = store.outbox().publish(tx, &Confirmed { n: 1 }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    Err(error.into())
}

/// Batches that always fail are no secret, although each message is handled by itself.
async fn a_batch_publishes_by_what_caused_it_and_says_so<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, 0..5).await;
    let consumer = Consumer::new((*world).clone(), (*world).clone()).handler::<uncaused>();
    let status = consumer.status();
    run_until(consumer, async || status.consumers().iter().any(|one| one.failed > 0)).await;
    let status = &status.consumers()[0];
    assert!(status.failed_batches > 0);
    let error = status.batch_error.as_deref().unwrap();
    assert!(error.contains("write `tx.caused_by(&delivery).publish(&event)`"), "{error}");
    assert_eq!(world.left_behind().await, (0, 0, 5));
}

cases! {
    all: [
        the_order_of_keys_is_refused_where_the_event_has_no_key,
        a_transaction_of_sqlx_in_a_handler_publishes_nothing,
        a_batch_publishes_by_what_caused_it_and_says_so,
    ]
    postgres: [
        what_a_lease_of_partitions_cannot_give_is_refused,
        a_handler_may_publish_in_another_transaction,
    ]
}
