//! The sources of Twinbox, held against what every source promises.
use crate::support::{
    broker_users::{inbox_of, prefix_of},
    database::{self, TestDatabase},
    log::{Names, now},
    publisher::{secret, send_to},
    wait::{self, Pause},
};
use futures::FutureExt as _;
use sqlx::{AssertSqlSafe, Sqlite};
use std::{process::Command, sync::LazyLock, time::Duration};
use tokio::sync::Mutex;
use twinbox::{
    Dialect, Draft,
    aws::{EventBridge, EventBridgeOptions, Sqs, SqsOptions},
    log::LogTransport,
    nats::{Nats, NatsOptions, StreamOptions},
    seam::{
        Transport,
        destination::{Destination as _, Publisher},
        source::SourceErrorKind,
    },
};
use twinbox_testkit::{
    aws::{FakeEventBridge, FakeSqs},
    conformance::{TransportUnderTest, ack_until, in_time, message, one, publish, subscribe, to},
    servers::{MotoServer, NatsOptions as ServerOptions, NatsServer, find},
    source_conformance,
};
use uuid::Uuid;

source_conformance! {
    log_sqlite: async { Log(database::sqlite().await) };
    log_postgres: async { Log(database::postgres().await) };
    log_mysql: async { Log(database::mysql().await) };
    nats_2_15: JetStream::<{ usize::MAX }>::new(std::env::var("TWINBOX_NATS_URL").expect("it names a \
        server"));
    nats_2_9: JetStream::<1>::new(OLD.url());
    sqs_fake: Queues::fake();
    sqs_moto: Queues::moto();
}

/// For all tests of this process, whose end they do not survive.
static OLD: LazyLock<NatsServer> = LazyLock::new(|| {
    let binary = find::nats_server_old().unwrap();
    NatsServer::start_with(ServerOptions::default().binary(binary)).unwrap()
});
static MOTO: LazyLock<MotoServer> = LazyLock::new(|| MotoServer::start().unwrap());

struct Log<DB: Dialect>(TestDatabase<DB>);

impl<DB: Dialect> TransportUnderTest for Log<DB> {
    fn transport(&self) -> impl Transport {
        // Longer than a busy machine keeps the database from an answer.
        LogTransport::new(&self.0).lease(Duration::from_secs(2))
    }

    async fn publish(&self, event_type: &str, key: Option<&str>, text: &str) {
        let mut draft = Draft::raw(event_type, 1, text.to_owned()).id(text);
        if let Some(key) = key {
            draft = draft.key(key);
        }
        let mut tx = self.0.begin().await.unwrap();
        self.0.outbox().publish_draft(&mut tx, draft).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// A stream of its own on a server whose consumers take so many types.
struct JetStream<const TYPES_MAX: usize> {
    nats: Nats,
    publisher: Mutex<Box<dyn Publisher>>,
}

impl<const TYPES_MAX: usize> JetStream<TYPES_MAX> {
    async fn new(url: String) -> Self {
        let name = format!("source-{}", Uuid::now_v7().simple());
        let options = NatsOptions::new(&url).inbox_prefix(inbox_of(&url)).stream(&name);
        let options = options.prefix(prefix_of(&name)).ack_wait(Duration::from_secs(1));
        let nats = Nats::with_options(options).unwrap();
        nats.provision(&StreamOptions::default()).await.unwrap();
        let publisher = Mutex::new(nats.connect(&secret()).await.unwrap());
        Self { nats, publisher }
    }
}

impl<const TYPES_MAX: usize> TransportUnderTest for JetStream<TYPES_MAX> {
    const TYPES_MAX: usize = TYPES_MAX;

    fn transport(&self) -> impl Transport {
        self.nats.clone()
    }

    async fn publish(&self, event_type: &str, key: Option<&str>, text: &str) {
        send(&self.publisher, event_type, key, text).await;
    }
}

async fn send(publisher: &Mutex<Box<dyn Publisher>>, event_type: &str, key: Option<&str>, text: &str) {
    let message = message(event_type, key, text);
    send_to(&mut **publisher.lock().await, &[&message]).await.remove(0).unwrap();
}

const CONSUMERS: [&str; 4] = ["billing", "stock", "slow", "fast"];

/// A bus with a rule for each queue, of which each consumer has one.
struct Queues {
    sqs: Sqs,
    publisher: Mutex<Box<dyn Publisher>>,
    _fakes: Option<(FakeSqs, FakeEventBridge)>,
}

impl Queues {
    async fn fake() -> Self {
        let (bus, sqs) = (FakeEventBridge::start("orders").await.unwrap(), FakeSqs::start().await.unwrap());
        bus.feed(&sqs);
        let queues = CONSUMERS.map(|consumer| sqs.queue(consumer));
        let queues = Self::new("orders", bus.endpoint_url(), sqs.endpoint_url(), queues).await;
        Self { _fakes: Some((sqs, bus)), ..queues }
    }

    async fn moto() -> Self {
        let (url, bus) = (MOTO.url(), format!("b{}", Uuid::now_v7().simple()));
        let names = CONSUMERS.map(|consumer| format!("{bus}-{consumer}"));
        let mut script = Command::new(find::python().unwrap());
        script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/events.py")).args(["bus", &url, &bus]).args(&names);
        assert!(script.status().unwrap().success());
        let queues = names.map(|name| format!("{url}/123456789012/{name}"));
        Self::new(&bus, url.clone(), url, queues).await
    }

    async fn new(bus: &str, bus_url: String, sqs_url: String, queues: [String; CONSUMERS.len()]) -> Self {
        let bus = EventBridgeOptions::new(bus).region("eu-west-1").endpoint_url(bus_url);
        let bus = EventBridge::with_options(bus.credentials("any", "any", None)).unwrap();
        let mut options = SqsOptions::new()
            .region("eu-west-1")
            .endpoint_url(sqs_url)
            .credentials("any", "any", None)
            .visibility_timeout(Duration::from_secs(1))
            .wait_time(Duration::from_secs(1));
        for (consumer, url) in CONSUMERS.into_iter().zip(queues) {
            options = options.queue(consumer, url);
        }
        let publisher = Mutex::new(bus.connect(&secret()).await.unwrap());
        Self { sqs: Sqs::with_options(options).unwrap(), publisher, _fakes: None }
    }
}

impl TransportUnderTest for Queues {
    const KEEPS_ORDER: bool = false;
    const FILTERS_TYPES: bool = false;

    fn transport(&self) -> impl Transport {
        self.sqs.clone()
    }

    async fn publish(&self, event_type: &str, key: Option<&str>, text: &str) {
        send(&self.publisher, event_type, key, text).await;
    }
}

/// It renews the lease: another process would handle the messages of a key beside those still worked on.
#[tokio::test(flavor = "multi_thread")]
async fn a_closing_log_source_waits_for_its_deliveries_and_keeps_the_lease() {
    const LEASE_SECONDS: u64 = 8;
    let broker = Log(database::sqlite().await);
    publish(&broker, &["a"]).await;
    let transport = || LogTransport::new(&broker.0).lease(Duration::from_secs(LEASE_SECONDS));
    let mut source = transport().subscribe(&to("billing", &["a.x"])).await.unwrap();
    let held = one(&mut source).await;
    let mut closing = source.close();
    // One that ends so late was renewed twice since: it is renewed four times as often as it ends.
    let later = now(&broker.0).await + i64::try_from(LEASE_SECONDS).unwrap() * 1_375_000;
    let renewed = format!("SELECT count(*) FROM {} WHERE lease_until > {later}", Sqlite::CURSORS);
    let renewed = async || {
        let count = sqlx::query_scalar::<_, i64>(AssertSqlSafe(renewed.clone()));
        count.fetch_one(broker.0.pool()).await.unwrap() > 0
    };
    let another = transport();
    while !in_time(renewed()).await {
        assert!((&mut closing).now_or_never().is_none(), "a delivery is still out");
        let refused = another.subscribe(&to("billing", &["a.x"])).await.err().expect("the lease is held");
        assert_eq!(refused.kind(), SourceErrorKind::OwnedByAnother);
        // Nothing happens while the lease is held, so there is no signal to wait for.
        wait::pause(Pause::Look, Duration::from_millis(20)).await;
    }
    held.settle.ack().await.unwrap();
    in_time(closing).await.unwrap();
    publish(&broker, &["end"]).await;
    let mut source = subscribe(&broker).await;
    assert_eq!(ack_until(&mut source, "end").await, ["end"]);
}
