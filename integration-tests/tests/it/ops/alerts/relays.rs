//! Faults of the program `twinbox-relay`, its databases and its brokers.
use super::watch::{ONLY, Watch};
use crate::support::{
    database::{self, TestDatabase},
    operations::{end, key, open_lease},
    postgres::{postgres_address, through},
    program::{Program, destination},
    relay::{Running, Target, free_leases, publish},
    stores::World,
    tool::Tool,
    wait::eventually,
};
use async_nats::jetstream::stream::Config;
use sqlx::Postgres;
use std::net::SocketAddr;
use twinbox::{Draft, Store, nats::Nats, relay::Relay};
use twinbox_testkit::{proxy::Proxy, servers::NatsServer};

/// With a lease that outlasts what a busy machine adds.
const OPTIONS: &str = "create_stream = true\nlease = \"12s\"";

/// The one destination of a relay with a database and a broker that go away.
pub(super) struct Fragile {
    database: TestDatabase<Postgres>,
    by: Proxy,
    nats: NatsServer,
    target: Target,
    program: Program,
}

impl Fragile {
    async fn program(database: &TestDatabase<Postgres>, by: &Proxy, target: &Target) -> Program {
        let url = through(database.url(), by);
        Program::run(&url, &[], &destination("events", target, OPTIONS)).await
    }

    /// Starts the only relay, and goes through its absence. Prometheus reads its metrics by a proxy.
    pub(super) async fn start(watch: &Watch, admin: &Proxy) -> Self {
        let database = database::postgres().await;
        let by = Proxy::start(postgres_address(database.url())).await.unwrap();
        let nats = NatsServer::start().unwrap();
        let target = Target::at(nats.url());
        let program = Self::program(&database, &by, &target).await;
        admin.lead_to(address(&program));
        watch.prometheus.has("twinbox_relay_leased{destination='events'} == 1").await;
        let mut fragile = Self { database, by, nats, target, program };
        // It fires while the first relay starts.
        watch.prometheus.has("absent(ALERTS{alertname='TwinboxRelayAway'})").await;

        let away = watch.silent("TwinboxRelayAway", ONLY).await;
        fragile.program.child.kill().await.unwrap();
        free_leases(&fragile.database).await;
        away.fires().await;
        fragile.program = Self::program(&fragile.database, &fragile.by, &fragile.target).await;
        admin.lead_to(address(&fragile.program));
        away.clears().await;
        fragile
    }

    /// Goes through outages of the database and of the broker.
    pub(super) async fn outages(mut self, watch: &Watch) {
        let away = watch.silent("TwinboxDatabaseAway", ONLY).await;
        self.by.cut();
        away.fires().await;
        self.by.restore();
        away.clears().await;
        // The breaker opens for a database too.
        watch.prometheus.has("absent(ALERTS{alertname='TwinboxCircuitBreakerOpen'})").await;

        let of = ("destination", "events");
        watch.prometheus.has("twinbox_relay_leased{destination='events'} == 1").await;
        let waits = watch.silent("TwinboxMessagesWait", of).await;
        let open = watch.silent("TwinboxCircuitBreakerOpen", of).await;
        self.nats.kill().unwrap();
        publish(&self.database, 0..5).await;
        tokio::join!(waits.fires(), open.fires());
        self.nats.restart().unwrap();
        tokio::join!(waits.clears(), open.clears());
    }
}

fn address(program: &Program) -> SocketAddr {
    program.address.parse().unwrap()
}

async fn send(store: &Store<Postgres>, id: &str, event_type: &str, bytes: usize) {
    let mut tx = store.begin().await.unwrap();
    let draft = Draft::raw(event_type, 1, vec![b' '; bytes]).id(id).key("ada");
    store.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.commit().await.unwrap();
}

/// Goes through the faults of messages, destinations and requests, with a relay that is well.
pub(super) async fn refusals(watch: &Watch, admin: &Proxy) {
    let (world, mirror) = (World::<Postgres>::new().await, Target::shared());
    let (narrow, strict) = (small().await, small().await);
    let former = || {
        let nats = Nats::with_options(mirror.options().id("former")).unwrap();
        Running::run(Relay::new((*world).clone(), nats).without_keeper())
    };
    let before = former();
    eventually(async || (world.rows("cursors").await == 1).then_some(())).await;
    let of = "types = [\"orders.*\"]\non_exhausted = ";
    let text = destination("narrow", &narrow, &format!("{of}\"park_key\""))
        + &destination("strict", &strict, &format!("{of}\"block\""))
        + &destination("pausable", &mirror, &format!("{of}\"dead_letter\""));
    let program = Program::run(world.url(), &[], &text).await;
    admin.lead_to(address(&program));
    for id in ["narrow", "strict", "pausable", "former"] {
        watch.prometheus.has(&format!("twinbox_relay_leased{{destination='{id}'}} == 1")).await;
    }
    let tool = &Tool::of(&world);
    tokio::join!(
        refused(watch, &world, tool),
        unrouted(watch, &world),
        paused(watch, tool),
        unfinished(watch, &world),
        async {
            let alone = watch.silent("TwinboxDestinationWithoutRelay", ("destination", "former")).await;
            before.stop().await;
            alone.fires().await;
            tool.ok(&["destinations", "retire", "former", "--yes", "--reason", "nobody runs it"]).await;
            alone.clears().await;
        },
    );
}

/// A stream that takes no large message.
async fn small() -> Target {
    let target = Target::shared();
    let config = target.config(&["orders.placed"]);
    target.create(Config { max_message_size: 1024, ..config }).await;
    target
}

/// Two brokers refuse a message. At one it is a dead letter, and the next one of its key waits. The other
/// destination waits.
async fn refused(watch: &Watch, store: &Store<Postgres>, tool: &Tool) {
    let of = ("destination", "narrow");
    let dead = watch.silent("TwinboxDeadLetters", of).await;
    let waiting = watch.silent("TwinboxKeysBlocked", of).await;
    let blocked = watch.silent("TwinboxDestinationBlocked", ("destination", "strict")).await;
    send(store, "large", "orders.placed", 4000).await;
    send(store, "small", "orders.placed", 10).await;
    tokio::join!(dead.fires(), waiting.fires(), blocked.fires());
    let reason = ["--yes", "--reason", "the first one is too large"];
    tool.ok(&[&["keys", "unblock", "ada", "--destination", "narrow"], &reason[..]].concat()).await;
    tool.ok(&[&["messages", "skip", "large", "--destination", "strict"], &reason[..]].concat()).await;
    tokio::join!(dead.clears(), waiting.clears(), blocked.clears());
}

async fn unrouted(watch: &Watch, store: &Store<Postgres>) {
    let unrouted = watch.silent("TwinboxMessagesUnrouted", ONLY).await;
    send(store, "stray", "stray.cat", 10).await;
    unrouted.fires().await;
    unrouted.clears().await;
}

async fn paused(watch: &Watch, tool: &Tool) {
    let paused = watch.silent("TwinboxDestinationPaused", ("destination", "pausable")).await;
    tool.ok(&["destinations", "pause", "pausable", "--yes", "--reason", "maintenance"]).await;
    paused.fires().await;
    tool.ok(&["destinations", "resume", "pausable", "--yes"]).await;
    paused.clears().await;
}

/// A request that may have called a vendor fails, and a retry of it ends.
async fn unfinished(watch: &Watch, world: &World<Postgres>) {
    let unfinished = watch.silent("TwinboxUnfinishedRequests", ONLY).await;
    let key = key("refund-1");
    let mut lease = open_lease(world, &key, "").await;
    lease.save("charged ch_1").await.unwrap();
    lease.release().await.unwrap();
    unfinished.fires().await;
    end(&open_lease(world, &key, "").await, 1).await;
    unfinished.clears().await;
}
