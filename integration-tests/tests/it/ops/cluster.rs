//! What `doctor` finds at a stream with copies on the servers of a cluster.
use super::doctor::{of_stream, those};
use crate::support::{relay::Target, stores::World, tool::Tool, wait::eventually};
use async_nats::jetstream::{
    self,
    stream::{Config, DiscardPolicy},
};
use sqlx::Sqlite;
use twinbox_testkit::cluster::{NatsCluster, SERVERS};

/// So many operations that a copy which misses them is behind.
const MANY: usize = 1200;

/// A stream in the cluster with so many copies, once its servers have found each other.
async fn stream(cluster: &NatsCluster, copies: usize) -> Target {
    let target = Target::at(cluster.url());
    let config = Config {
        num_replicas: copies,
        discard: DiscardPolicy::New,
        allow_batch_publish: true,
        ..target.config(&["orders.placed"])
    };
    let jetstream = target.jetstream().await;
    eventually(async || jetstream.create_stream(config.clone()).await.ok()).await;
    target
}

async fn leader(cluster: &NatsCluster, target: &Target) -> usize {
    eventually(async || {
        let jetstream = async_nats::connect(target.addresses()).await.ok().map(jetstream::new)?;
        let info = jetstream.get_stream(&target.name).await.ok()?.cached_info().clone();
        cluster.number_of(&info.cluster?.leader?)
    })
    .await
}

/// Runs `doctor` until one of its findings about the stream begins like this.
async fn finds(tool: &Tool, target: &Target, verdict: &str, begin: &str) -> Vec<(String, String)> {
    eventually(async || {
        let found = of_stream(tool, target).await;
        those(&found, verdict).iter().any(|found| found.starts_with(begin)).then_some(found)
    })
    .await
}

async fn finds_nothing(tool: &Tool, target: &Target) {
    eventually(async || {
        of_stream(tool, target).await.iter().all(|(verdict, _)| verdict == "ok").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_away_or_behind_are_named() {
    let (world, mut cluster) = (World::<Sqlite>::new().await, NatsCluster::start().await.unwrap());
    let (tool, target) = (Tool::of(&world), stream(&cluster, SERVERS).await);
    finds_nothing(&tool, &target).await;
    let leader = leader(&cluster, &target).await;
    let others = Vec::from_iter((0..SERVERS).filter(|other| *other != leader));

    // One that is frozen, and misses a thousand operations.
    cluster.server(others[0]).pause().unwrap();
    let client = async_nats::connect(cluster.server(leader).url()).await.unwrap();
    let jetstream = jetstream::new(client);
    let subject = format!("{}.0.orders.placed", target.prefix());
    for _ in 0..MANY {
        jetstream.publish(subject.clone(), "{}".into()).await.unwrap().await.unwrap();
    }
    let name = cluster.server(others[0]).name();
    let behind = format!("its copy on {name} is offline, and ");
    let found = finds(&tool, &target, "wrong", &behind).await;
    let what_to_do = "start that server, or move the copy to another one with";
    assert!(those(&found, "wrong")[0].contains(what_to_do), "{found:?}");
    assert!(those(&found, "wrong")[0].contains(" operations behind: "), "{found:?}");
    cluster.server(others[0]).resume().unwrap();
    finds_nothing(&tool, &target).await;

    // One that is dead, and then the second one.
    cluster.server(others[0]).kill().unwrap();
    finds(&tool, &target, "wrong", &format!("its copy on {name} is offline: start that server")).await;
    cluster.server(others[1]).kill().unwrap();
    let none = "it has no leader, and neither takes nor gives messages: more than half of its 3 servers";
    finds(&tool, &target, "wrong", none).await;
    for other in others {
        cluster.server(other).restart().unwrap();
    }
    finds_nothing(&tool, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_copy_in_a_cluster_is_named() {
    let (world, mut cluster) = (World::<Sqlite>::new().await, NatsCluster::start().await.unwrap());
    let (tool, target) = (Tool::of(&world), stream(&cluster, 1).await);
    let leader = leader(&cluster, &target).await;
    let name = cluster.server(leader).name();
    let single = format!("it has one copy, though its server {name} is in the cluster twinbox: while that");
    let found = finds(&tool, &target, "warning", &single).await;
    assert!(those(&found, "warning")[0].ends_with("Set `num_replicas: 3`"), "{found:?}");
}
