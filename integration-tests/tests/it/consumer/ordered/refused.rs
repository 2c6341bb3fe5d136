//! Changes of a consumer that would lose the order of its keys.
use super::*;

async fn partitions_that_nobody_would_read_are_refused() {
    let rig = Rig::<Postgres>::new().await;
    rig.publish(1..40, 0..1, 39).await;
    let nats = Nats::with_options(rig.target.existing().partitions(4)).unwrap();
    let consumer = Consumer::new((*rig.world).clone(), rig.bank.clone()).transport(nats).handler::<book>();
    let error = in_time(consumer.run(CancellationToken::new())).await.unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Source);
    let error = chain(&error);
    assert!(error.contains("reads 4 partitions: set `NatsOptions::partitions`"), "{error}");
    rig.relay.stop().await;
}

/// A place says nothing of types that were not read.
async fn other_types_than_the_places_are_of_are_refused() {
    async fn confirm(_: &Arc<Bank>, _: &mut Tx<'_, Postgres>, _: Delivery<Confirmed>) -> HandlerResult {
        Ok(())
    }
    let policy = Policy::new(CONSUMER).order(DeliveryOrder::Key);
    let rig = Rig::<Postgres>::new().await;
    rig.publish(1..6, 0..1, 5).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 5).await;
    let error = in_time(rig.consumer().register(handler_fn(policy, confirm)).run(CancellationToken::new()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ConsumerErrorKind::Source);
    let says = "keeps its checkpoints for the types `accounts.moved`, and is asked for \
                `accounts.moved orders.confirmed`";
    let error = chain(&error);
    assert!(error.contains(says), "{error}");
    rig.publish(1..6, 1..2, 10).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 10).await;
    rig.relay.stop().await;
}

cases! {
    postgres: [
        partitions_that_nobody_would_read_are_refused,
        other_types_than_the_places_are_of_are_refused,
    ]
}
