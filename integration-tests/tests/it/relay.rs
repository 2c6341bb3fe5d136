//! The relay between real databases and a real NATS.
#[cfg(feature = "programs")]
mod admin;
#[cfg(feature = "programs")]
mod check;
#[cfg(feature = "programs")]
mod crash;
#[cfg(feature = "programs")]
mod databases;
mod faults;
#[cfg(feature = "programs")]
mod hot_key;
#[cfg(feature = "programs")]
mod idle;
mod in_process;
#[cfg(feature = "programs")]
mod memory;
#[cfg(feature = "programs")]
mod otlp;
mod parking;
#[cfg(feature = "programs")]
mod pooler;
mod replays;
#[cfg(feature = "programs")]
mod routes;
#[cfg(feature = "programs")]
mod schemas;
#[cfg(feature = "programs")]
mod secure;
#[cfg(feature = "programs")]
mod shares;
#[cfg(feature = "programs")]
mod slow;
#[cfg(feature = "consumer")]
mod streams;
#[cfg(feature = "programs")]
mod three;
mod times;
#[cfg(feature = "programs")]
mod vendors;

use crate::support::{
    database,
    relay::{PATIENCE, Running, Target, assert_whole_and_ordered, free_leases, n_payload, publish},
};
use async_nats::jetstream::{self, stream};
use sqlx::Postgres;
use std::{collections::HashMap, time::Duration};
use tokio::time::timeout;
use twinbox::{
    CancellationToken, Dialect, Draft, Store,
    log::StartPosition,
    nats::Nats,
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::servers::NatsServer;
use uuid::Uuid;

async fn whole_and_in_order_of_keys<DB: Dialect>(store: &Store<DB>) {
    let target = Target::shared();
    publish(store, 0..500).await;
    let running = Running::start(store, &target);
    for n in 5..10 {
        publish(store, n * 100..(n + 1) * 100).await;
    }
    running.published(1000).await;
    let counters = running.stop().await;
    assert_eq!((counters.published(), counters.duplicates(), counters.refused()), (1000, 0, 0));
    assert_whole_and_ordered(&target.messages(1000).await, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_in_the_order_of_its_key_from_postgres() {
    let store = database::postgres().await;
    whole_and_in_order_of_keys::<Postgres>(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_in_the_order_of_its_key_from_sqlite() {
    let store = database::sqlite().await;
    whole_and_in_order_of_keys::<sqlx::Sqlite>(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopped_relay_has_published_is_not_sent_again() {
    let (store, target) = (database::postgres().await, Target::shared());
    publish(&store, 0..300).await;
    let first = Running::start(&store, &target);
    first.published(300).await;
    first.stop().await;
    publish(&store, 300..301).await;
    let second = Running::start(&store, &target);
    second.published(1).await;
    let counters = second.stop().await;
    assert_eq!((counters.published(), counters.duplicates()), (1, 0));
}

/// With `create_stream` the stream is made again, and what is published from then on arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_lost_its_disk_gets_its_stream_back() {
    let (store, mut server) = (database::postgres().await, NatsServer::start().unwrap());
    let target = Target::at(server.url());
    publish(&store, 0..50).await;
    let running = Running::start(&store, &target);
    running.published(50).await;
    server.kill().unwrap();
    server.wipe_store().unwrap();
    server.restart().unwrap();
    publish(&store, 50..80).await;
    running.published(80).await;
    running.stop().await;
    assert_eq!(target.count().await, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_relays_works_and_the_other_takes_over() {
    let (store, target) = (database::postgres().await, Target::shared());
    let relay = || {
        let options = RelayOptions::new().lease(Duration::from_secs(20));
        Relay::with_options((*store).clone(), target.destination(), options)
    };
    let first = Running::run(relay());
    publish(&store, 0..10).await;
    first.published(10).await;
    let second = Running::run(relay());
    publish(&store, 10..20).await;
    first.published(20).await;
    assert_eq!(second.counters.published(), 0);
    first.task.abort();
    assert!(first.task.await.unwrap_err().is_cancelled());
    free_leases(&store).await;
    publish(&store, 20..30).await;
    // What the first had published and not recorded is sent again, and the stream knows it.
    timeout(PATIENCE, async { while target.count().await < 30 {} }).await.expect("the second takes over");
    second.stop().await;
    assert_whole_and_ordered(&target.messages(30).await, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_messages_with_one_id_are_both_sent() {
    let (store, target) = (database::postgres().await, Target::shared());
    let running = Running::start(&store, &target);
    publish(&store, 0..1).await;
    running.published(1).await;
    publish(&store, 0..1).await;
    running.published(2).await;
    let counters = running.stop().await;
    assert_eq!((target.count().await, counters.duplicates(), counters.renamed()), (2, 0, 0));
}

/// The stream has it, and the relay begins anew: as after a restore of the database, or with a stranger who
/// has the secret.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_name_is_taken_is_sent_under_another() {
    let (store, target) = (database::postgres().await, Target::shared());
    let running = Running::start(&store, &target);
    publish(&store, 0..3).await;
    running.published(3).await;
    running.stop().await;
    sqlx::query("DELETE FROM twinbox.cursors").execute(store.pool()).await.unwrap();
    let options = RelayOptions::new().start(StartPosition::Beginning);
    let running = Running::run(Relay::with_options((*store).clone(), target.destination(), options));
    running.published(3).await;
    let counters = running.stop().await;
    assert_eq!((target.count().await, counters.renamed(), counters.duplicates()), (6, 3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_partitions_is_refused_with_the_steps_to_take() {
    let (store, target) = (database::postgres().await, Target::shared());
    let first = Running::start(&store, &target);
    publish(&store, 0..1).await;
    first.published(1).await;
    first.stop().await;
    let other = Nats::with_options(target.options().partitions(8)).unwrap();
    let error = Relay::new((*store).clone(), other).run(CancellationToken::new()).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("16 partitions") && text.contains("asked for 8") && text.contains("another id"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_leaves_no_time_to_publish_is_refused() {
    let (store, target) = (database::postgres().await, Target::shared());
    let options = RelayOptions::new().lease(Duration::from_secs(2));
    let relay = Relay::with_options((*store).clone(), target.destination(), options);
    let error = timeout(PATIENCE, relay.run(CancellationToken::new())).await.unwrap().unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("make the lease 4s or longer"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_another_shape_is_refused() {
    let (store, target) = (database::postgres().await, Target::shared());
    let client = async_nats::connect(&target.url).await.unwrap();
    let memory = stream::Config {
        name: target.name.clone(),
        subjects: vec![format!("{}.>", target.prefix())],
        storage: stream::StorageType::Memory,
        ..Default::default()
    };
    jetstream::new(client).create_stream(memory).await.unwrap();
    let relay = Relay::new((*store).clone(), target.destination());
    let error = timeout(PATIENCE, relay.run(CancellationToken::new())).await.unwrap().unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("storage"), "{error}: {source}");
}
