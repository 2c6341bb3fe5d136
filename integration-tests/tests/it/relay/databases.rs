//! One run of the program that serves many databases.
use super::*;
use crate::support::{
    database::TestDatabase,
    long,
    program::{Program, destination},
};
use futures::{StreamExt as _, future::join_all};
use std::{fmt::Write as _, time::Instant};
use twinbox::StoreOptions;
use twinbox_testkit::proxy::Proxy;

/// Beside the one that is away and the one that is slow.
const HEALTHY: usize = 18;

/// A database of a tenant, and the store of its service.
struct Tenant {
    database: TestDatabase<Postgres>,
    store: Store<Postgres>,
    name: String,
}

impl Tenant {
    async fn new(name: &str) -> Self {
        let (database, name) = (database::empty_postgres().await, name.to_owned());
        let service = format!("shop-{name}");
        let store = Store::with_options(database.pool().clone(), &service, StoreOptions::new()).unwrap();
        Self { database, store, name }
    }

    /// The tables of the file for this database, which the program reaches at `url`.
    fn tables(&self, url: &str, target: &Target) -> String {
        let name = &self.name;
        format!("[databases.{name}]\nurl = {url:?}\nservice = \"shop-{name}\"\nmax_connections = 4\n")
            + &destination(name, target, &format!("create_stream = true\ndatabase = \"{name}\""))
    }

    /// The URL of this database through a proxy.
    fn by(&self, proxy: &Proxy) -> String {
        let (head, rest) = self.database.url().split_once("127.0.0.1:").unwrap();
        format!("{head}{}{}", proxy.address(), rest.trim_start_matches(|c: char| c.is_ascii_digit()))
    }

    async fn publish(&self, id: &str) {
        let mut tx = self.store.begin().await.unwrap();
        let draft = Draft::raw("orders.placed", 1, "{}").id(id);
        self.store.outbox().publish_draft(&mut tx, draft).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// The service and the id of the next message.
async fn arrived(messages: &mut async_nats::Subscriber) -> (String, String) {
    let message = timeout(PATIENCE, messages.next()).await.expect("it arrives").unwrap();
    let headers = message.headers.unwrap();
    let header = |name| headers.get(name).unwrap().to_string();
    (header("ce-source"), header("ce-id"))
}

/// Publishes some messages in each database in turn. Answers with the times from the commit to the broker,
/// sorted. More rounds only tell the times better.
async fn rounds(tenants: &[Tenant], phase: &str, messages: &mut async_nats::Subscriber) -> Vec<Duration> {
    let mut times = Vec::new();
    for n in 0..long::or(20, 3) {
        for tenant in tenants {
            let id = format!("{phase}-{n}");
            tenant.publish(&id).await;
            let committed = Instant::now();
            while arrived(messages).await != (format!("shop-{}", tenant.name), id.clone()) {}
            times.push(committed.elapsed());
        }
    }
    times.sort();
    times
}

/// The times are for whoever reads the output: a test of them would fail on a busy machine.
#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_databases_one_that_is_away_and_one_that_is_slow_stop_no_other() {
    let (main, target) = (database::empty_postgres().await, Target::shared());
    let server = main.url().split("127.0.0.1:").nth(1).unwrap().split('/').next().unwrap();
    let upstream = format!("127.0.0.1:{server}").parse().unwrap();
    let (away_by, slow_by) = (Proxy::start(upstream).await.unwrap(), Proxy::start(upstream).await.unwrap());
    let (away, slow) = (Tenant::new("away").await, Tenant::new("slow").await);
    let tenants = join_all((0..HEALTHY).map(async |n| Tenant::new(&format!("t{n}")).await)).await;
    let mut file = away.tables(&away.by(&away_by), &target) + &slow.tables(&slow.by(&slow_by), &target);
    for tenant in &tenants {
        let _ = write!(file, "{}", tenant.tables(tenant.database.url(), &target));
    }
    let client = async_nats::connect(&target.url).await.unwrap();
    let mut messages = client.subscribe(format!("{}.>", target.prefix())).await.unwrap();
    away.store.migrate().await.unwrap();
    away_by.cut();
    let program = Program::run(main.url(), &["--migrate"], &file).await;
    for tenant in tenants.iter().chain([&away, &slow]) {
        tenant.publish("first").await;
    }
    let mut first = Vec::new();
    for _ in 0..HEALTHY + 1 {
        first.push(arrived(&mut messages).await.0);
    }
    first.sort();
    first.dedup();
    assert!(first.len() == HEALTHY + 1 && !first.contains(&"shop-away".to_owned()), "{first:?}");
    away_by.restore();
    assert_eq!(arrived(&mut messages).await, ("shop-away".to_owned(), "first".to_owned()));
    assert_eq!(program.get("/readyz").await, (200, "ok\n".to_owned()));

    let well = rounds(&tenants, "well", &mut messages).await;
    away_by.cut();
    slow_by.delay(Duration::from_millis(500));
    program.shows("twinbox_relay_database_up{schema=\"away\"} 0").await;
    away.publish("while-away").await;
    let ill = rounds(&tenants, "ill", &mut messages).await;
    for (phase, times) in [("all are well", well), ("one is away, one is slow", ill)] {
        let (half, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{phase}: p50 {half:?}, p99 {most:?} of {}", times.len());
    }
    let (status, text) = program.get("/readyz").await;
    assert!(status == 200 && text.starts_with("ok\ndatabase away: "), "{status} {text}");
    program.shows("twinbox_relay_database_up{schema=\"t0\"} 1").await;
    program.shows("twinbox_relay_backlog_messages{destination=\"t0\",schema=\"t0\"} 0").await;

    away_by.restore();
    while arrived(&mut messages).await != ("shop-away".to_owned(), "while-away".to_owned()) {}
}
