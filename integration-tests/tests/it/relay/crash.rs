//! The program dies while messages are parked and tried again.
use crate::support::{
    relay::publish_as,
    rig::Rig,
    wait::{self, Pause, in_time},
};
use std::{os::unix::process::ExitStatusExt as _, time::Duration};
use tokio::process::Child;
use twinbox::ops::{Ops, replays::Selection};

/// Where the program dies, and how many messages come before. It sends the first 64 of them at once.
const POINTS: [(&str, u32); 9] = [
    ("log.before_park", 20),
    ("log.after_park", 20),
    ("log.after_park:3", 20),
    ("log.before_park:2", 20),
    ("relay.after_read:2", 20),
    ("log.after_park:2", 20),
    ("relay.after_send:2", 100),
    ("relay.after_ack:5", 20),
    ("relay.after_ack:60", 100),
];
/// The number of the point from which on each message has a home.
const AT_HOME: usize = 5;

/// Every seventh has no home at first.
async fn publish(rig: &Rig, numbers: std::ops::Range<u32>) {
    let event_type = |n| if n % 7 == 3 { "orders.paid" } else { "orders.placed" };
    publish_as(&rig.database, numbers, event_type).await;
}

/// Makes all that is parked due, as if its time had passed. A row that the program writes at this moment
/// is left alone.
async fn make_due(rig: &Rig) {
    let due = "UPDATE twinbox.parked_messages SET next_attempt_at = now()
        WHERE (destination, position) IN (
            SELECT destination, position FROM twinbox.parked_messages
            WHERE state = 'waiting' AND next_attempt_at > now()
            FOR UPDATE SKIP LOCKED)";
    sqlx::query(due).execute(rig.database.pool()).await.unwrap();
}

/// Waits until the program has died at a point, or has nothing left to do. Returns whether it has died.
async fn dies(rig: &Rig, relay: &mut Child, at: &str, published: u32) -> bool {
    let watched = async {
        loop {
            tokio::select! {
                ended = relay.wait() => {
                    assert_eq!(ended.unwrap().signal(), Some(9), "killed, not ended, at {at}");
                    return true;
                }
                () = wait::pause(Pause::Look, Duration::from_millis(50)) => {}
            }
            make_due(rig).await;
            let settled = Ops::new(&rig.database).plan_replay("kill", &Selection::new()).await;
            if settled.is_ok_and(|settled| settled.selected == u64::from(published)) {
                return false;
            }
        }
    };
    in_time(watched).await
}

/// At every point of parking, sending and settling.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_dies_while_it_parks_loses_nothing_and_keeps_the_order() {
    let rig = Rig::new(&["orders.placed"]).await;
    let (mut published, mut deaths) = (0, 0);
    for (n, (point, more)) in POINTS.into_iter().enumerate() {
        publish(&rig, published..published + more).await;
        published += more;
        if n == AT_HOME {
            rig.target.update(rig.target.forgetful(&["orders.placed", "orders.paid"])).await;
        }
        let mut relay = rig.doomed(point);
        deaths += usize::from(dies(&rig, &mut relay, point, published).await);
        rig.kill(&mut relay).await;
    }
    // All parked messages may be settled in one statement.
    assert!(deaths >= POINTS.len() - 1, "only {deaths} died where they should");
    publish(&rig, published..published + 20).await;
    make_due(&rig).await;
    let mut relay = rig.start();
    rig.target.whole(published as usize + 20).await;
    rig.kill(&mut relay).await;
}
