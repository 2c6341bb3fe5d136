//! Relays, their streams, and the messages that arrived.
pub(crate) use super::wait::PATIENCE;
use super::{
    broker_users::{at_address, inbox_of, prefix_of},
    database::owner_of,
    stores::TestDb,
    wait::{eventually, in_time},
};
use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, PullConsumer, pull},
    message::PublishMessage,
    stream,
};
use futures::StreamExt as _;
use sqlx::{AssertSqlSafe, Postgres};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};
use tokio::{task::JoinHandle, time::timeout};
use twinbox::{
    CancellationToken, Dialect, Draft, MessageId, Store, Timestamp,
    nats::{Nats, NatsOptions, StreamOptions},
    relay::{CircuitBreakerStatus, Counters, Error, Relay, RelayOptions},
};
use twinbox_testkit::proxy::Proxy;
use uuid::Uuid;

/// The lease of the relays of [`Target::quick`].
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// Time-out of a publish by the relays of [`Target::quick`].
pub(crate) const PUBLISH_TIMEOUT: Duration = Duration::from_millis(500);
/// A copy of a message in a stream: message id, with the token of the replay that sent it, key, sequence.
pub(crate) type Copy = (String, Option<String>, u64);

/// Returns whether streams take batches. `cargo xtask test --one-by-one` says no.
pub(crate) fn batches() -> bool {
    std::env::var_os("TWINBOX_TEST_ONE_BY_ONE").is_none()
}

/// A stream of one test.
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) name: String,
}

impl Target {
    pub(crate) fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), name: format!("RELAY_{}", Uuid::now_v7().simple()) }
    }

    pub(crate) fn shared() -> Self {
        Self::at(std::env::var("TWINBOX_NATS_URL").expect("TWINBOX_NATS_URL: run `cargo xtask test`"))
    }

    /// Returns the same stream with another URL.
    pub(crate) fn by(&self, url: impl Into<String>) -> Self {
        Self { url: url.into(), name: self.name.clone() }
    }

    /// Returns the first words of the subjects of the stream.
    pub(crate) fn prefix(&self) -> String {
        prefix_of(&self.name)
    }

    /// Returns the same stream behind a proxy.
    pub(crate) fn through(&self, proxy: &Proxy) -> Self {
        self.by(at_address(&self.url, proxy.address()))
    }

    /// Returns options for a stream that exists.
    pub(crate) fn existing(&self) -> NatsOptions {
        let options = NatsOptions::new(&self.url).inbox_prefix(inbox_of(&self.url));
        options.stream(&self.name).prefix(self.prefix())
    }

    pub(crate) fn options(&self) -> NatsOptions {
        self.existing().create_stream(StreamOptions::default().batches(batches()))
    }

    pub(crate) fn destination(&self) -> Nats {
        Nats::with_options(self.options()).unwrap()
    }

    /// Returns a relay with short time-outs.
    pub(crate) fn quick<DB: Dialect>(&self, store: &Store<DB>) -> Relay<DB> {
        let options = self.options().publish_timeout(PUBLISH_TIMEOUT);
        let destination = Nats::with_options(options).unwrap();
        Relay::with_options(store.clone(), destination, RelayOptions::new().lease(LEASE))
    }

    pub(crate) fn addresses(&self) -> Vec<async_nats::ServerAddr> {
        self.url.split(',').map(|url| url.parse().unwrap()).collect()
    }

    pub(crate) async fn jetstream(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(self.addresses()).await.unwrap())
    }

    /// Returns the configuration of a stream that takes only these types.
    pub(crate) fn config(&self, types: &[&str]) -> stream::Config {
        let subject = |text: &&str| format!("{}.*.{text}", self.prefix());
        let subjects = types.iter().map(subject).collect();
        stream::Config {
            name: self.name.clone(),
            subjects,
            allow_batch_publish: batches(),
            ..Default::default()
        }
    }

    /// Returns the same with a short duplicate window, so that the stream keeps copies.
    pub(crate) fn forgetful(&self, types: &[&str]) -> stream::Config {
        stream::Config { duplicate_window: Duration::from_millis(100), ..self.config(types) }
    }

    pub(crate) async fn create(&self, config: stream::Config) {
        self.jetstream().await.create_stream(config).await.unwrap();
    }

    async fn info(&self, consumer: &str) -> Option<jetstream::consumer::Info> {
        let stream = self.jetstream().await.get_stream(&self.name).await.unwrap();
        stream.consumer_info(consumer.replace('.', "_")).await.ok()
    }

    /// Returns the number of deliveries to a consumer, or 0 if it does not exist.
    pub(crate) async fn deliveries(&self, consumer: &str) -> u64 {
        self.info(consumer).await.map_or(0, |info| info.delivered.consumer_sequence)
    }

    /// Returns the number of unacknowledged deliveries to a consumer, or 1 if it does not exist.
    pub(crate) async fn unsettled(&self, consumer: &str) -> u64 {
        self.info(consumer).await.map_or(1, |info| info.num_ack_pending as u64)
    }

    /// Returns the sequence up to which a consumer has acknowledged all messages.
    pub(crate) async fn settled(&self, consumer: &str) -> u64 {
        self.info(consumer).await.map_or(0, |info| info.ack_floor.stream_sequence)
    }

    /// Waits until the broker would have delivered every message again that was not acknowledged within
    /// `ack_wait`.
    ///
    /// A consumer of its own, which acknowledges nothing, gets a message twice more.
    pub(crate) async fn redelivers_after(&self, ack_wait: Duration) {
        let stream = self.jetstream().await.get_stream(&self.name).await.unwrap();
        let config = pull::Config {
            ack_policy: AckPolicy::Explicit,
            ack_wait,
            max_ack_pending: 1,
            ..Default::default()
        };
        let consumer: PullConsumer = stream.create_consumer(config).await.unwrap();
        let mut messages = consumer.messages().await.unwrap();
        let deliveries =
            async { while messages.next().await.unwrap().unwrap().info().unwrap().delivered < 3 {} };
        in_time(deliveries).await;
    }

    pub(crate) async fn update(&self, config: stream::Config) {
        self.jetstream().await.update_stream(config).await.unwrap();
    }

    /// Waits until the stream would keep a second copy of each message that it has: its duplicate window is
    /// over, also on a busy server.
    pub(crate) async fn forgets(&self) {
        let jetstream = self.jetstream().await;
        let stream = jetstream.get_stream(&self.name).await.unwrap();
        let subject = stream.cached_info().config.subjects[0].replace('*', "0");
        let store = async || {
            let probe = PublishMessage::build().message_id("probe");
            jetstream.send_publish(subject.clone(), probe).await.unwrap().await.unwrap()
        };
        let first = store().await;
        let second = eventually(async || Some(store().await).filter(|copy| !copy.duplicate)).await;
        for probe in [first, second] {
            assert!(stream.delete_message(probe.sequence).await.unwrap());
        }
    }

    /// Returns the first `count` messages of the stream, oldest first. A cluster answers no request while it
    /// elects who answers.
    pub(crate) async fn messages(&self, count: usize) -> Vec<Copy> {
        let read = async || timeout(PATIENCE, self.read(count)).await.expect("the stream holds that many");
        eventually(read).await
    }

    /// None: the server did not answer a request.
    async fn read(&self, count: usize) -> Option<Vec<Copy>> {
        let config = pull::Config { ack_policy: AckPolicy::None, ..Default::default() };
        let stream = self.jetstream().await.get_stream(&self.name).await.ok()?;
        let consumer: PullConsumer = stream.create_consumer(config).await.ok()?;
        let mut messages = consumer.messages().await.ok()?.take(count);
        let mut all = Vec::with_capacity(count);
        while let Some(message) = messages.next().await {
            let message = message.ok()?;
            let headers = message.headers.clone().unwrap();
            let header = |name| headers.get(name).map(|value| value.as_str().to_owned());
            let sequence = header("ce-sequence").unwrap();
            assert_eq!(sequence.len(), 19);
            let [source, event_type, id] =
                ["ce-source", "ce-type", "ce-id"].map(|name| header(name).unwrap());
            let id = MessageId::of(&source, &event_type, &id).to_string();
            // A replay sends a copy of its own.
            let id = header("twinbox-replay").map_or(id.clone(), |token| format!("{id}.r{token}"));
            all.push((id, header("ce-partitionkey"), sequence.parse().unwrap()));
        }
        Some(all)
    }

    /// Waits until the stream exists and has `count` messages. The client connects with `options`.
    pub(crate) async fn holds(&self, count: u64, options: async_nats::ConnectOptions) {
        self.holds_within(PATIENCE, count, options).await;
    }

    pub(crate) async fn holds_within(
        &self,
        limit: Duration,
        count: u64,
        options: async_nats::ConnectOptions,
    ) {
        let jetstream = jetstream::new(options.connect(self.addresses()).await.unwrap());
        let held = eventually(async || {
            let info = jetstream.get_stream(&self.name).await.ok()?.get_info().await.ok()?;
            (info.state.messages >= count).then_some(())
        });
        timeout(limit, held).await.expect("everything arrives");
    }

    pub(crate) async fn count(&self) -> u64 {
        let jetstream = self.jetstream().await;
        let read = async || jetstream.get_stream(&self.name).await.ok()?.get_info().await.ok();
        eventually(read).await.state.messages
    }

    /// Waits until the stream has `count` different messages. Returns all copies.
    ///
    /// Asserts that the first copies of each key came in order.
    pub(crate) async fn whole(&self, count: usize) -> Vec<Copy> {
        self.holds(count as u64, async_nats::ConnectOptions::new()).await;
        let waiting = eventually(async || {
            let held = usize::try_from(self.count().await).unwrap();
            if held < count {
                return None;
            }
            let copies = self.messages(held).await;
            let distinct = copies.iter().map(|(id, ..)| id).collect::<HashSet<_>>().len();
            (distinct >= count).then_some(copies)
        });
        let waited = timeout(PATIENCE, waiting).await;
        let Ok(copies) = waited else {
            let held = self.count().await;
            let copies = self.messages(usize::try_from(held).unwrap()).await;
            let distinct = copies.iter().map(|(id, ..)| id).collect::<HashSet<_>>().len();
            panic!("{distinct} of {count} messages arrived, in {held} copies");
        };
        let mut seen = HashSet::new();
        let first: Vec<_> = copies.iter().filter(|(id, ..)| seen.insert(id.clone())).cloned().collect();
        assert_whole_and_ordered(&first, count);
        copies
    }
}

/// A relay in this process.
pub(crate) struct Running {
    pub(crate) stop: CancellationToken,
    pub(crate) counters: Counters,
    pub(crate) breaker: CircuitBreakerStatus,
    pub(crate) task: JoinHandle<Result<(), Error>>,
}

impl Running {
    pub(crate) fn start<DB: Dialect>(store: &Store<DB>, target: &Target) -> Self {
        Self::run(Relay::new(store.clone(), target.destination()))
    }

    pub(crate) fn run<DB: Dialect>(relay: Relay<DB>) -> Self {
        let (stop, counters, breaker) = (CancellationToken::new(), relay.counters(), relay.breaker());
        Self { task: tokio::spawn(relay.run(stop.clone())), stop, counters, breaker }
    }

    /// Waits until the relay has published `count` messages.
    pub(crate) async fn published(&self, count: u64) {
        let published = eventually(async || (self.counters.published() >= count).then_some(()));
        let waited = timeout(PATIENCE, published).await;
        waited.unwrap_or_else(|_| panic!("{} of {count} are published", self.counters.published()));
    }

    pub(crate) async fn stop(self) -> Counters {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.expect("a relay stops when asked").unwrap().unwrap();
        self.counters
    }
}

/// Ends the leases of relays that died, as if their time had passed. A write that one of them had sent to the
/// database before comes too late then, because the cursor has no owner.
pub(crate) async fn free_leases<DB: TestDb>(store: &Store<DB>) {
    let (cursors, past) = (DB::table_of("cursors"), DB::time(Timestamp::from_micros(0)));
    let free = format!("UPDATE {cursors} SET lease_until = {past}, owner = NULL WHERE owner IS NOT NULL");
    let mut conn = owner_of(store).pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(free)).execute(&mut *conn).await.unwrap();
}

pub(crate) async fn publish<DB: Dialect>(store: &Store<DB>, numbers: std::ops::Range<u32>) {
    publish_as(store, numbers, |_| "orders.placed").await;
}

pub(crate) async fn publish_as<DB: Dialect>(
    store: &Store<DB>,
    numbers: std::ops::Range<u32>,
    event_type: impl Fn(u32) -> &'static str,
) {
    let mut tx = store.begin().await.unwrap();
    let draft =
        |n| Draft::raw(event_type(n), 1, n_payload(n)).id(format!("o-{n}")).key(format!("k-{}", n % 7));
    store.outbox().publish_all(&mut tx, numbers.map(draft).collect()).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) fn n_payload(n: u32) -> String {
    format!("{{\"n\":{n}}}")
}

/// Asserts that each of `count` messages came once, and those of a key in the order of their sequence.
#[track_caller]
pub(crate) fn assert_whole_and_ordered(messages: &[Copy], count: usize) {
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
