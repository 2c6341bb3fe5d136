//! A stream with three copies on three servers, while servers die, leave and are cut off.
#[cfg(feature = "consumer")]
pub(crate) mod consumers;

use super::*;
use crate::support::{database::TestDatabase, wait::pause};
use async_nats::jetstream::{self, stream};
use twinbox::relay::CircuitBreakerState;
use twinbox_testkit::cluster::{NatsCluster, SERVERS};

const TYPES: &[&str] = &["orders.placed"];
/// Messages of one step, in twenty transactions.
const STEP: u32 = 200;

struct World {
    cluster: NatsCluster,
    target: Target,
    store: TestDatabase<Postgres>,
    relay: Option<Running>,
    published: u32,
    #[cfg(feature = "consumer")]
    consumers: Option<consumers::Consumers>,
}

impl World {
    async fn start(batches: bool) -> Self {
        let (cluster, store) = (NatsCluster::start().await.unwrap(), postgres().await);
        let target = Target::at(cluster.url());
        let config =
            stream::Config { num_replicas: SERVERS, allow_batch_publish: batches, ..target.config(TYPES) };
        // The servers have to find each other first.
        let jetstream = target.jetstream().await;
        eventually(async || jetstream.create_stream(config.clone()).await.ok()).await;
        let mut world = Self {
            cluster,
            target,
            store,
            relay: None,
            published: 0,
            #[cfg(feature = "consumer")]
            consumers: None,
        };
        world.start_relay();
        world.publish().await;
        world
    }

    fn start_relay(&mut self) {
        self.start_relay_at(self.cluster.url());
    }

    fn start_relay_at(&mut self, url: String) {
        let destination = Nats::with_options(self.target.by(url).existing()).unwrap();
        self.relay = Some(Running::run(Relay::new((*self.store).clone(), destination)));
    }

    /// Publishes at a steady pace.
    async fn publish(&mut self) {
        for _ in 0..20 {
            publish(&self.store, self.published..self.published + STEP / 20).await;
            self.published += STEP / 20;
            pause(Pause::Pace, Duration::from_millis(20)).await;
        }
    }

    /// Publishes, with another relay in the middle.
    async fn publish_with_a_new_relay(&mut self) {
        self.publish().await;
        let old = self.relay.take().unwrap();
        old.task.abort();
        self.start_relay();
        self.publish().await;
    }

    /// The state of the stream, if a server answers.
    async fn info(&self) -> Option<stream::Info> {
        let jetstream = async_nats::connect(self.target.addresses()).await.ok().map(jetstream::new)?;
        jetstream.get_stream(&self.target.name).await.ok()?.get_info().await.ok()
    }

    /// Waits until the stream has as many messages as were published.
    async fn arrives(&self) {
        let published = u64::from(self.published);
        self.becomes(async || self.info().await.filter(|info| info.state.messages >= published)).await;
    }

    /// As `eventually`. If it waits in vain, it says what is there.
    async fn becomes<T>(&self, look: impl AsyncFnMut() -> Option<T>) -> T {
        match timeout(PATIENCE, eventually(look)).await {
            Ok(found) => found,
            Err(_) => panic!("{}", self.told().await),
        }
    }

    /// Reports the state of relay, database and servers.
    async fn told(&self) -> String {
        let rows = "SELECT (SELECT count(*) FROM twinbox.parked_messages), \
            (SELECT max(position) FROM twinbox.cursors)";
        let rows: (i64, i64) = sqlx::query_as(rows).fetch_one(self.store.pool()).await.unwrap();
        let relay = self.relay.as_ref().map(|relay| (relay.counters.clone(), relay.breaker.state()));
        let mut told =
            format!("{} published; parked and settled: {rows:?}; relay: {relay:?}", self.published);
        for server in self.cluster.servers() {
            let connected = async_nats::connect(server.url()).await.map(jetstream::new);
            let info = match connected {
                Ok(jetstream) => match jetstream.get_stream(&self.target.name).await {
                    Ok(stream) => {
                        format!("{:?}", (&stream.cached_info().state, &stream.cached_info().cluster))
                    }
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            let log = std::fs::read_to_string(server.dir().join("log")).unwrap();
            let log = Vec::from_iter(log.lines().rev().take(60));
            let log = Vec::from_iter(log.into_iter().rev()).join("\n");
            told += &format!("\n\n{}: {info}\n{log}", server.name());
        }
        told
    }

    /// Waits until the stream has a leader and all its copies, and answers with the number of the leader.
    /// Asserts that it has everything, each key in order, and that nothing was parked.
    async fn is_whole(&self) -> usize {
        self.arrives().await;
        let leader = self.becomes(async || {
            let cluster = self.info().await?.cluster?;
            let is_whole = cluster.replicas.iter().filter(|copy| copy.current).count() == SERVERS - 1;
            self.cluster.number_of(&cluster.leader?).filter(|_| is_whole)
        });
        let leader = leader.await;
        self.target.whole(self.published as usize).await;
        self.nothing_is_parked().await;
        #[cfg(feature = "consumer")]
        if let Some(consumers) = &self.consumers {
            consumers.handled(self.published).await;
        }
        leader
    }

    async fn nothing_is_parked(&self) {
        let parked = "SELECT count(*) FROM twinbox.parked_messages";
        let parked: i64 = sqlx::query_scalar(parked).fetch_one(self.store.pool()).await.unwrap();
        assert_eq!(parked, 0);
    }

    fn others(number: usize) -> impl Iterator<Item = usize> {
        (0..SERVERS).filter(move |other| *other != number)
    }

    /// Waits until the server that is left knows that the stream has no leader.
    async fn has_no_leader(&self) {
        let has_none = |info: &stream::Info| {
            info.cluster.as_ref().is_some_and(|cluster| cluster.leader.as_deref().unwrap_or("").is_empty())
        };
        eventually(async || self.info().await.filter(has_none)).await;
    }

    async fn has_a_leader(&self) {
        let has_one = |info: &stream::Info| {
            info.cluster.as_ref().is_some_and(|cluster| !cluster.leader.as_deref().unwrap_or("").is_empty())
        };
        self.becomes(async || self.info().await.filter(has_one)).await;
    }

    async fn breaker_opens(&self) {
        let breaker = &self.relay.as_ref().unwrap().breaker;
        eventually(async || (breaker.state() == CircuitBreakerState::Open).then_some(())).await;
    }
}

/// Everything arrives after each fault, in the order of its keys, and nothing is parked.
async fn survives(mut world: World) -> World {
    let leader = world.is_whole().await;
    world.cluster.server(leader).kill().unwrap();
    world.publish_with_a_new_relay().await;
    world.arrives().await;
    world.cluster.server(leader).restart().unwrap();

    let leader = world.is_whole().await;
    for other in World::others(leader) {
        world.cluster.server(other).kill().unwrap();
    }
    world.publish_with_a_new_relay().await;
    world.breaker_opens().await;
    world.has_no_leader().await;
    world.publish().await;
    // Time for more than one look at the stream.
    pause(Pause::Outage, Duration::from_secs(5)).await;
    world.nothing_is_parked().await;
    for other in World::others(leader) {
        world.cluster.server(other).restart().unwrap();
    }
    world.has_a_leader().await;
    let start = Instant::now();
    world.arrives().await;
    let counters = &world.relay.as_ref().unwrap().counters;
    println!("everything is sent {:?} after the stream has a leader again: {counters:?}", start.elapsed());

    let leader = world.is_whole().await;
    world.cluster.cut_off(leader);
    world.publish_with_a_new_relay().await;
    pause(Pause::Outage, Duration::from_secs(12)).await;
    world.publish().await;
    world.cluster.rejoin(leader);

    for server in 0..SERVERS {
        world.is_whole().await;
        world.cluster.server(server).restart().unwrap();
        world.publish_with_a_new_relay().await;
    }

    let leader = world.is_whole().await;
    world.cluster.server(leader).lame_duck().unwrap();
    world.publish_with_a_new_relay().await;
    world.arrives().await;
    world.cluster.server(leader).restart().unwrap();
    world.is_whole().await;
    world.relay.take().unwrap().stop().await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_loses_and_reverses_nothing_in_batches() {
    survives(World::start(true).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_loses_and_reverses_nothing_one_by_one() {
    survives(World::start(false).await).await;
}

/// Nobody listens at the first address. Relay and consumers start, and what they lose they find again at the
/// second one.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_server_may_be_dead_for_good() {
    let (store, mut server) = (postgres().await, NatsServer::start().unwrap());
    let target = Target::at(format!("nats://127.0.0.1:1,{}", server.url()));
    publish(&store, 0..100).await;
    let running = Running::start(&store, &target);
    running.published(100).await;
    #[cfg(feature = "consumer")]
    let consumers = consumers::Consumers::start(&store, Nats::with_options(target.existing()).unwrap()).await;
    #[cfg(feature = "consumer")]
    consumers.handled(100).await;
    server.restart().unwrap();
    publish(&store, 100..200).await;
    running.published(200).await;
    #[cfg(feature = "consumer")]
    {
        consumers.handled(200).await;
        consumers.stop().await;
    }
    running.stop().await;
    target.whole(200).await;
}

/// A leader that has lost its followers takes what it is sent. It is lost with that leader, also where a
/// relay has sent it twice.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_lost_leader_had_is_sent_again() {
    let mut world = World::start(true).await;
    let leader = world.is_whole().await;
    world.relay.take().unwrap().stop().await;
    let url = world.cluster.server(leader).url();
    world.start_relay_at(url.clone());
    world.publish().await;
    world.arrives().await;
    for other in World::others(leader) {
        world.cluster.server(other).kill().unwrap();
    }
    publish(&world.store, world.published..world.published + 2000).await;
    world.published += 2000;
    // No answer comes to what the relay sends meanwhile.
    pause(Pause::Outage, Duration::from_secs(1)).await;
    world.relay.take().unwrap().task.abort();
    free_leases(&world.store).await;
    world.start_relay_at(url);
    world.breaker_opens().await;
    world.cluster.server(leader).kill().unwrap();
    for other in World::others(leader) {
        world.cluster.server(other).restart().unwrap();
    }
    world.relay.take().unwrap().task.abort();
    world.start_relay();
    world.arrives().await;
    world.cluster.server(leader).restart().unwrap();
    world.is_whole().await;
    world.relay.take().unwrap().stop().await;
}
