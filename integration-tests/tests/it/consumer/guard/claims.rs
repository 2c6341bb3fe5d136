//! The claim is a bounded wait, and the bound is not the handler's.
use crate::support::{
    cases::cases,
    databases::{PgConnection, Postgres},
    postgres::store_with,
    stores::{World, placed},
    wait::{PATIENCE, in_time},
};
use std::time::{Duration, Instant};
use twinbox::{
    Tx,
    inbox::{ClaimTerms, InboxClaim},
};
use twinbox_testkit::Harness;

const CONSUMER: &str = "tests.claims";

/// R67
async fn the_claims_lock_timeout_is_not_the_handlers() {
    let world = World::<Postgres>::new().await;
    for (store, own) in
        [((*world).clone(), "0"), (store_with(world.url(), &[("lock_timeout", "7s")]).await, "7s")]
    {
        let shown = async |conn: &mut PgConnection| -> sqlx::Result<String> {
            sqlx::query_scalar("SHOW lock_timeout").fetch_one(conn).await
        };
        let harness = Harness::new(&store, ());
        let same = async |tx: &mut Tx<'_, Postgres>| {
            assert_eq!(shown(tx).await?, own);
            Ok(())
        };
        harness.run(same).await.unwrap();

        let (known, new) = (placed(1), placed(2));
        let InboxClaim::Open(first) = store.inbox(CONSUMER).claim(&known, false).await.unwrap() else {
            panic!()
        };
        first.commit().await.unwrap();
        // Whichever of the two comes last.
        let mut batch = [known, placed(3), new];
        batch.sort_by_key(|m| m.message_id());
        let mut attempt = store
            .inbox(CONSUMER)
            .claim_batch(ClaimTerms::default(), &batch, false)
            .await
            .unwrap()
            .attempt
            .unwrap();
        assert_eq!(attempt.claimed().len(), 2);
        assert_eq!(shown(&mut attempt.tx()).await.unwrap(), own);
        attempt.rollback().await;
        let mut conn = store.pool().acquire().await.unwrap();
        assert_eq!(shown(&mut conn).await.unwrap(), own);
    }
}

/// Not waited for until the other copy's handler ends, which would hold a connection. Fault 22
async fn row_22_a_claim_that_another_copy_holds_is_given_up_as_contention() {
    let world = World::<Postgres>::new().await;
    let order = placed(1);
    let InboxClaim::Open(held) = world.inbox(CONSUMER).claim(&order, false).await.unwrap() else { panic!() };
    let asked = Instant::now();
    let refused = in_time(world.inbox(CONSUMER).claim(&order, true)).await.err().expect("it is held");
    assert!(refused.is_contention() && refused.is_transient(), "{refused:?}");
    assert!((Duration::from_millis(1_900)..PATIENCE).contains(&asked.elapsed()), "{:?}", asked.elapsed());

    let waits = tokio::spawn({
        let (store, order) = ((*world).clone(), order.clone());
        async move {
            store.inbox(CONSUMER).claim(&order, true).await.map(|c| matches!(c, InboxClaim::Duplicate(_)))
        }
    });
    held.commit().await.unwrap();
    assert!(in_time(waits).await.unwrap().unwrap(), "one that ends in time makes the copy a duplicate");
}

/// The bound holds for each message of a batch, not only for the first. Fault 22
async fn row_22_a_claim_held_in_the_middle_of_a_batch_is_given_up_as_well() {
    let world = World::<Postgres>::new().await;
    let mut orders = [placed(1), placed(2), placed(3)];
    orders.sort_by_key(|m| m.message_id());
    let InboxClaim::Open(held) = world.inbox(CONSUMER).claim(&orders[1], false).await.unwrap() else {
        panic!()
    };
    let inbox = world.inbox(CONSUMER);
    let batch = tokio::time::timeout(PATIENCE, inbox.claim_batch(ClaimTerms::default(), &orders, false));
    let refused =
        batch.await.expect("it is not waited for until the handler ends").err().expect("it is held");
    assert!(refused.is_contention(), "{refused:?}");
    held.rollback().await;
    let all = world
        .inbox(CONSUMER)
        .claim_batch(ClaimTerms::default(), &orders, false)
        .await
        .unwrap()
        .attempt
        .unwrap();
    assert_eq!(all.claimed(), [0, 1, 2]);
}

cases! {
    postgres: [
        the_claims_lock_timeout_is_not_the_handlers,
        row_22_a_claim_that_another_copy_holds_is_given_up_as_contention,
        row_22_a_claim_held_in_the_middle_of_a_batch_is_given_up_as_well,
    ]
}
