//! Delayed messages whose times no program can read.
use super::*;
use crate::support::times::{BrokenTimes, drop_rules, run_unchecked};
use twinbox::{log::Log, ops::Ops};

/// Each enters the log with the time of now, as one without a time does, and holds up no other.
async fn a_broken_time_stops_no_mover<DB: BrokenTimes>() {
    let world = World::<DB>::new().await;
    drop_rules(&world).await;
    let (delayed, payload) = (DB::table_of("delayed_messages"), DB::PAYLOAD);
    let past = DB::time(Timestamp::from_micros(0));
    let broken_times = DB::BROKEN.iter().map(|time| (past.as_str(), *time));
    let rows = Vec::from_iter(broken_times.chain(DB::PAST.iter().map(|due| (*due, "NULL"))));
    for (n, (due, time)) in rows.iter().enumerate() {
        let insert = format!(
            "INSERT INTO {delayed} (type, key, not_before, time, payload)
            VALUES ('orders.placed', 'k-{n}', {due}, {time}, {payload})"
        );
        run_unchecked(&world, &insert).await;
    }
    let before = now(&world).await;
    let mut tx = world.begin().await.unwrap();
    let draft = Draft::of(&Placed { n: 1 }).unwrap().not_before(before);
    world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.commit().await.unwrap();
    assert!(Ops::new(&*world).delayed_overdue().await.unwrap().is_some());

    eventually(async || {
        Log::new(&*world).move_due(2).await.unwrap();
        (world.rows("delayed_messages").await == 0).then_some(())
    })
    .await;
    assert_eq!(Ops::new(&*world).delayed_overdue().await.unwrap(), None);
    let messages = world.published("orders.placed", 100).await.unwrap();
    assert_eq!(messages.len(), rows.len() + 1);
    // Times of SQLite have milliseconds.
    let since = before.as_micros() - 1_000..=now(&world).await.as_micros() + 1_000;
    for message in messages {
        assert!(since.contains(&message.time.as_micros()), "{message:?}");
    }
}

cases! {
    all: [a_broken_time_stops_no_mover]
}
