//! The program dies while messages are put aside and tried again.
use crate::support::relay::{PATIENCE, Rig, publish_as};
use std::{os::unix::process::ExitStatusExt as _, time::Duration};
use tokio::time::timeout;

const MESSAGES: u32 = 200;
const POINTS: [&str; 9] = [
    "log.before_park",
    "log.after_park",
    "log.after_park:3",
    "log.before_park:2",
    "relay.after_read:2",
    "relay.after_send:2",
    "relay.after_ack:5",
    "relay.after_ack:60",
    "log.after_park:2",
];

/// Every seventh has no home at first.
async fn publish(rig: &Rig, numbers: std::ops::Range<u32>) {
    let event_type = |n| if n % 7 == 3 { "orders.paid" } else { "orders.placed" };
    publish_as(&rig.database, numbers, event_type).await;
}

/// At every point of parking, sending and settling.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_dies_while_it_parks_loses_nothing_and_keeps_the_order() {
    let rig = Rig::new(&["orders.placed"]).await;
    let mut deaths = 0;
    for (n, point) in (0u32..).zip(POINTS) {
        publish(&rig, n * 20..(n + 1) * 20).await;
        if n == 5 {
            rig.target.update(rig.target.forgetful(&["orders.placed", "orders.paid"])).await;
        }
        let mut relay = rig.doomed(point);
        match timeout(Duration::from_secs(8), relay.wait()).await {
            Ok(ended) => {
                assert_eq!(ended.unwrap().signal(), Some(9), "killed, not ended, at {point}");
                deaths += 1;
            }
            Err(_) => relay.kill().await.unwrap(),
        }
    }
    assert!(deaths >= 7, "only {deaths} died where they should");
    publish(&rig, 180..MESSAGES).await;
    let mut relay = rig.start();
    rig.target.whole(MESSAGES as usize).await;
    timeout(PATIENCE, relay.kill()).await.unwrap().unwrap();
}
