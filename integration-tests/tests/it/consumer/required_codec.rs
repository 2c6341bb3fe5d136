//! A store that requires its codec takes nothing that somebody else wrote.
use crate::support::{
    cases::cases,
    codec::{Cipher, strict},
    consumer::{publish, run_until},
    database::SERVICE,
    stores::{Placed, TestDb, World, effect},
};
use twinbox::{
    BatchTx, Consumer, Delivery, DeliveryOutcome, Dialect, ErrorKind, HandlerResult, Manifest, Store,
    StoreOptions, Tx, event_handler, ops::Ops,
};
use twinbox_testkit::Harness;

#[event_handler(consumer = "tests.strict")]
async fn note<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

#[event_handler(consumer = "tests.strict.batch", batch = 10)]
async fn note_all<DB: Dialect>(tx: &mut BatchTx<'_, DB>, orders: Vec<Delivery<Placed>>) -> HandlerResult {
    for order in orders {
        effect::<DB>(tx, 1_000 + order.n).await?;
    }
    Ok(())
}

/// One that the store has encoded is handled beside it.
async fn a_message_that_nobody_encoded_is_a_dead_letter<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, 1..2).await;
    let store = strict(&world);
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish(&mut tx, &Placed { n: 2 }).await.unwrap();
    tx.commit().await.unwrap();
    let consumer = Consumer::new(store, ()).handler::<note>().handler::<note_all>();
    let rows = async || (world.rows("inbox").await, world.rows("dead_letters").await);
    run_until(consumer, async || rows().await == (4, 2)).await;
    assert_eq!(world.effects().await, [2, 1_002]);
    for name in ["tests.strict", "tests.strict.batch"] {
        let [dead_letter] = &world.inbox(name).dead_letters(9).await.unwrap()[..] else { panic!("one") };
        assert_eq!((dead_letter.reason.as_str(), dead_letter.attempts), ("undecodable", 0));
        assert!(
            dead_letter.error.starts_with("the payload is not encoded")
                && dead_letter.error.contains("`StoreOptions::require_codec`"),
            "{}",
            dead_letter.error
        );
        assert_eq!(dead_letter.message.payload, &br#"{"n":1}"#[..]);
    }
    // What waits for a build that requires the codec is found before its deployment.
    let strict = Consumer::new(strict(&world), ()).handler::<note>().manifest();
    let plain = Consumer::new((*world).clone(), ()).handler::<note>().manifest();
    let check = |manifest: &Manifest| manifest.check("tests.strict", "orders.placed", 1, None);
    assert!(check(&strict).unwrap_err().starts_with("the payload is not encoded"));
    assert_eq!(check(&plain), Ok(()));
}

/// It has no payload, so there is nothing to encode.
async fn a_redacted_message_is_acknowledged_as_ever<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, 3..4).await;
    Ops::new(&world).redact("3").await.unwrap();
    let store = strict(&world);
    let blank = &store.published("orders.placed", 1).await.unwrap()[0];
    assert_eq!(Harness::new(&store, ()).deliver::<note>(blank).await, DeliveryOutcome::Redacted);
    assert_eq!(*store.decode(blank).unwrap(), *blank);
    assert_eq!((world.rows("dead_letters").await, world.effects().await), (0, vec![]));
}

async fn who_cannot_encode_cannot_require_it<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for options in [StoreOptions::new(), StoreOptions::new().decoder(Cipher::new("cipher", 7))] {
        let refused = Store::with_options(world.pool().clone(), SERVICE, options.require_codec());
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("`StoreOptions::codec`"), "{error}");
    }
}

cases! {
    all: [
        a_message_that_nobody_encoded_is_a_dead_letter,
        a_redacted_message_is_acknowledged_as_ever,
        who_cannot_encode_cannot_require_it,
    ]
}
