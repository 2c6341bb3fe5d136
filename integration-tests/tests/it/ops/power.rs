//! A broker's machine loses power.
use super::{shop::Deployed, shop::Deployment, shop::consumer, shop::publish, shop::settled};
use crate::support::{
    relay::{Running, Target},
    stores::World,
    tool::Tool,
    wait::eventually,
};
use sqlx::Postgres;
use std::sync::Arc;
use twinbox_testkit::{
    servers::{Disk, NatsOptions, NatsServer},
    skipped,
};

const MESSAGES: u64 = 300;
const HANDLED: usize = 100;

/// What was acknowledged and is there when the power is back, after a repair that brought everything back.
async fn survivors(disk: &Disk, jetstream_line: &str) -> u64 {
    let options = NatsOptions::default().store(disk.path().join("store")).jetstream_line(jetstream_line);
    let mut server = NatsServer::start_with(options).unwrap();
    let (world, target) = (World::<Postgres>::new().await, Target::at(server.url()));
    let deployed = Arc::new(Deployment::default());
    publish(&world, 0..HANDLED as i64).await;
    let running = Running::start(&world, &target);
    running.published(HANDLED as u64).await;
    let over_nats = || consumer(&world, &deployed).transport(target.destination());
    let consuming = Deployed::start(over_nats());
    eventually(async || (world.effects().await.len() == HANDLED).then_some(())).await;
    consuming.stop().await;
    disk.sync().unwrap();
    publish(&world, HANDLED as i64..MESSAGES as i64).await;
    running.published(MESSAGES).await;
    settled(&world, MESSAGES).await;
    assert_eq!(target.count().await, MESSAGES, "all is acknowledged");

    disk.cut_power().unwrap();
    server.kill().unwrap();
    disk.restore_power().unwrap();
    server.restart().unwrap();
    let survivors = target.count().await;

    let resend = ["replays", "run", "resend", "--to", "nats", "--since", "1h", "--yes"];
    let told = Tool::of(&world).ok(&resend).await;
    assert!(told.contains("is done: 300 messages"), "{told}");
    assert_eq!(target.count().await, survivors + MESSAGES);
    let consuming = Deployed::start(over_nats());
    eventually(async || (world.effects().await.len() as u64 == MESSAGES).then_some(())).await;
    consuming.stop().await;
    running.stop().await;
    assert_eq!(world.effects().await, Vec::from_iter(0..MESSAGES as i64), "one effect each");
    assert_eq!(world.rows("dead_letters").await, 0);
    survivors
}

/// Fault 15: JetStream acknowledges before it syncs. What the power cut took, a resend brings back.
#[tokio::test(flavor = "multi_thread")]
async fn row_15_what_a_power_cut_took_is_sent_again() {
    let disk = match Disk::new() {
        Ok(disk) => disk,
        Err(error) => return skipped(&format!("the power of a disk cannot be cut here: {error}")),
    };
    let survivors = survivors(&disk, "").await;
    let unsynced = HANDLED as u64..MESSAGES;
    assert!(
        unsynced.contains(&survivors),
        "the disk loses what was not synced, and nothing else: {survivors}"
    );
}

/// The setting that the documentation asks for.
#[tokio::test(flavor = "multi_thread")]
async fn row_15_a_broker_that_always_syncs_loses_nothing() {
    let disk = match Disk::new() {
        Ok(disk) => disk,
        Err(error) => return skipped(&format!("the power of a disk cannot be cut here: {error}")),
    };
    assert_eq!(survivors(&disk, "sync_interval: always").await, MESSAGES);
}
