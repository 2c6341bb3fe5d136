//! The relay between real databases and a real NATS.
mod admin;
mod bus;
mod crash;
mod parking;
mod routes;
mod secure;
mod three;

use async_nats::jetstream::{self, stream};
use futures::StreamExt as _;
use sqlx::Postgres;
use std::{collections::HashMap, time::Duration};
use tokio::{task::JoinHandle, time::timeout};
use twinbox::{
    CancellationToken, Dialect, Draft, Store,
    nats::{Nats, NatsOptions, StreamOptions},
    relay::{Counters, Error, Relay, RelayOptions},
};
use twinbox_testkit::{database, servers::NatsServer};
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(30);

/// A stream of a test's own.
struct Target {
    url: String,
    name: String,
}

impl Target {
    fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), name: format!("RELAY_{}", Uuid::now_v7().simple()) }
    }

    fn shared() -> Self {
        Self::at(std::env::var("TWINBOX_NATS_URL").expect("TWINBOX_NATS_URL: run `cargo xtask test`"))
    }

    fn options(&self) -> NatsOptions {
        NatsOptions::new(&self.url)
            .stream(&self.name)
            .prefix(self.name.to_lowercase())
            .create_stream(StreamOptions::default())
    }

    fn destination(&self) -> Nats {
        Nats::with_options(self.options()).unwrap()
    }

    /// What the stream holds: (message id, key, sequence), oldest first.
    async fn messages(&self, count: usize) -> Vec<(String, Option<String>, u64)> {
        let client = async_nats::connect(&self.url).await.unwrap();
        let stream = jetstream::new(client).get_stream(&self.name).await.unwrap();
        // Unacknowledged, no more than a thousand would come.
        let ack_policy = jetstream::consumer::AckPolicy::None;
        let config = jetstream::consumer::pull::Config { ack_policy, ..Default::default() };
        let consumer: jetstream::consumer::PullConsumer = stream.create_consumer(config).await.unwrap();
        let mut messages = consumer.messages().await.unwrap().take(count);
        let mut all = Vec::with_capacity(count);
        while let Some(message) =
            timeout(PATIENCE, messages.next()).await.expect("the stream holds that many")
        {
            let message = message.unwrap();
            let headers = message.headers.clone().unwrap();
            let header = |name| headers.get(name).map(|value| value.as_str().to_owned());
            let sequence = header("ce-sequence").unwrap();
            assert_eq!(sequence.len(), 19);
            all.push((header("Nats-Msg-Id").unwrap(), header("ce-partitionkey"), sequence.parse().unwrap()));
        }
        all
    }

    /// Waits until the stream is there and holds that many, for a client that is let in by `options`.
    async fn holds(&self, count: u64, options: async_nats::ConnectOptions) {
        let jetstream = jetstream::new(options.connect(&self.url).await.unwrap());
        let held = async {
            loop {
                if let Ok(mut stream) = jetstream.get_stream(&self.name).await
                    && stream.info().await.unwrap().state.messages >= count
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, held).await.expect("everything arrives");
    }

    async fn count(&self) -> u64 {
        let client = async_nats::connect(&self.url).await.unwrap();
        let mut stream = jetstream::new(client).get_stream(&self.name).await.unwrap();
        stream.info().await.unwrap().state.messages
    }
}

struct Running {
    stop: CancellationToken,
    counters: Counters,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start<DB: Dialect>(store: &Store<DB>, target: &Target) -> Self {
        Self::run(Relay::new(store.clone(), target.destination()))
    }

    fn run<DB: Dialect>(relay: Relay<DB>) -> Self {
        let (stop, counters) = (CancellationToken::new(), relay.counters());
        Self { task: tokio::spawn(relay.run(stop.clone())), stop, counters }
    }

    /// Waits until that many are published.
    async fn published(&self, count: u64) {
        let published = async {
            while self.counters.published() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = timeout(PATIENCE, published).await;
        waited.unwrap_or_else(|_| panic!("{} of {count} are published", self.counters.published()));
    }

    async fn stop(self) -> Counters {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.expect("a relay stops when asked").unwrap().unwrap();
        self.counters
    }
}

async fn publish<DB: Dialect>(store: &Store<DB>, numbers: std::ops::Range<u32>) {
    let mut tx = store.begin().await.unwrap();
    let draft =
        |n| Draft::raw("orders.placed", 1, n_payload(n)).id(format!("o-{n}")).key(format!("k-{}", n % 7));
    store.outbox().publish_all(&mut tx, numbers.map(draft).collect()).await.unwrap();
    tx.commit().await.unwrap();
}

fn n_payload(n: u32) -> String {
    format!("{{\"n\":{n}}}")
}

/// Each message once, those of a key in the order of their sequence.
#[track_caller]
fn assert_whole_and_ordered(messages: &[(String, Option<String>, u64)], count: usize) {
    let mut last: HashMap<&Option<String>, u64> = HashMap::new();
    let mut ids: Vec<_> = messages.iter().map(|(id, ..)| id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((messages.len(), ids.len()), (count, count));
    for (id, key, sequence) in messages {
        let before = last.insert(key, *sequence).unwrap_or(0);
        assert!(before < *sequence, "{id} of {key:?} came after a later one");
    }
}

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

/// PITFALLS row 10, 13.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_broker_is_waited_out() {
    let (store, mut server) = (database::postgres().await, NatsServer::start().unwrap());
    let target = Target::at(server.url());
    server.kill().unwrap();
    publish(&store, 0..200).await;
    let running = Running::start(&store, &target);
    server.restart().unwrap();
    running.published(100).await;
    server.kill().unwrap();
    publish(&store, 200..400).await;
    server.restart().unwrap();
    running.published(400).await;
    let counters = running.stop().await;
    assert_eq!(counters.refused(), 0);
    assert_whole_and_ordered(&target.messages(400).await, 400);
}

/// PITFALLS row 14: with `create_stream` the stream is made again, and what is published from then on arrives.
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
        let options = RelayOptions::new().lease(Duration::from_secs(3));
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
    publish(&store, 20..30).await;
    // What the first had published and not recorded is sent again, and the stream knows it.
    timeout(PATIENCE, async { while target.count().await < 30 {} }).await.expect("the second takes over");
    second.stop().await;
    assert_whole_and_ordered(&target.messages(30).await, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_messages_with_one_id_are_counted() {
    let (store, target) = (database::postgres().await, Target::shared());
    let running = Running::start(&store, &target);
    publish(&store, 0..1).await;
    running.published(1).await;
    publish(&store, 0..1).await;
    running.published(2).await;
    let counters = running.stop().await;
    assert_eq!((counters.duplicates(), counters.unexpected_duplicates()), (1, 1));
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
async fn a_stream_of_another_shape_is_refused() {
    let (store, target) = (database::postgres().await, Target::shared());
    let client = async_nats::connect(&target.url).await.unwrap();
    let memory = stream::Config {
        name: target.name.clone(),
        subjects: vec![format!("{}.>", target.name.to_lowercase())],
        storage: stream::StorageType::Memory,
        ..Default::default()
    };
    jetstream::new(client).create_stream(memory).await.unwrap();
    let relay = Relay::new((*store).clone(), target.destination());
    let error = timeout(PATIENCE, relay.run(CancellationToken::new())).await.unwrap().unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("storage"), "{error}: {source}");
}
