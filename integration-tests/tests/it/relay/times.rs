//! Rows whose time no program can read.
use crate::support::{
    cases::cases,
    relay::{Running, Target, assert_whole_and_ordered, publish},
    stores::World,
    times::{BrokenTimes, drop_rules, insert_broken},
    wait::eventually,
};
use twinbox::ops::Ops;

/// Each is a dead letter at once, also between messages of its key, and the others are sent in order.
async fn a_message_without_a_readable_time_is_a_dead_letter_and_others_are_sent<DB: BrokenTimes>() {
    let (world, target) = (World::<DB>::new().await, Target::shared());
    drop_rules(&world).await;
    publish(&*world, 0..35).await;
    insert_broken(&world, "orders.placed", "k-1").await;
    publish(&*world, 35..70).await;
    let running = Running::run(target.quick(&*world));
    running.published(70).await;
    let ops = Ops::new(&*world);
    let dead = eventually(async || {
        let parked = ops.parked_messages("nats", 100).await.unwrap();
        let dead = parked.into_iter().filter(|one| one.state == "dead");
        let dead = Vec::from_iter(dead.map(|one| (one.message.id, one.first_error, one.attempts)));
        (dead.len() == DB::BROKEN.len()).then_some(dead)
    })
    .await;
    for (n, (id, code, attempts)) in dead.iter().enumerate() {
        assert_eq!((&**id, &**code, *attempts), (&*format!("broken-{n}"), "relay.time", 1));
    }
    let counters = running.stop().await;
    assert_eq!((counters.published(), counters.dead_letters()), (70, DB::BROKEN.len() as u64));
    assert_whole_and_ordered(&target.messages(70).await, 70);
    assert_eq!(target.count().await, 70);

    // Operators see them.
    assert_eq!(ops.readers().await.unwrap()[0].dead_letters, DB::BROKEN.len() as u64);
    assert_eq!(ops.trail("broken-0").await.unwrap().log.len(), 1);
}

cases! {
    all: [a_message_without_a_readable_time_is_a_dead_letter_and_others_are_sent]
}
