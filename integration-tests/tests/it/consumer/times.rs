//! Rows of the log whose time no program can read.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    stores::{Placed, World, effect},
    times::{BrokenTimes, drop_rules, insert_broken},
};
use twinbox::{Consumer, Delivery, Dialect, HandlerResult, Tx, event_handler};

#[event_handler(consumer = "tests.times")]
async fn note<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

/// They are dead letters that say why, also between messages of their key.
async fn a_message_without_a_readable_time_is_a_dead_letter_and_others_are_handled<DB: BrokenTimes>() {
    let world = World::<DB>::new().await;
    drop_rules(&world).await;
    publish(&world, 0..3).await;
    insert_broken(&world, "orders.placed", "1").await;
    publish(&world, 3..6).await;
    let broken = i64::try_from(DB::BROKEN.len()).unwrap();
    let consumer = Consumer::new((*world).clone(), ()).handler::<note>();
    run_until(consumer, async || {
        world.effects().await.len() == 6 && world.rows("dead_letters").await == broken
    })
    .await;
    assert_eq!(world.effects().await, [0, 1, 2, 3, 4, 5]);
    for dead_letter in world.inbox("tests.times").dead_letters(10).await.unwrap() {
        assert!(dead_letter.message.id.starts_with("broken-"), "{dead_letter:?}");
        assert_eq!((&*dead_letter.reason, dead_letter.attempts), ("undecodable", 0));
        assert!(dead_letter.error.starts_with("its row has no time"), "{dead_letter:?}");
    }
}

cases! {
    all: [a_message_without_a_readable_time_is_a_dead_letter_and_others_are_handled]
}
