//! Relays that are processes share their destinations.
use super::*;
use crate::support::{
    database::TestDatabase,
    databases::MySql,
    program::{Program, destination},
    stores::TestDb,
    wait::{self, Pause, eventually, in_time},
};
use sqlx::AssertSqlSafe;
use std::{collections::BTreeMap, time::Instant};
use tokio::task::JoinHandle;
use twinbox::StoreOptions;

/// The cursor of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    /// How many destinations the process of the owner owns.
    owned: i64,
    epoch: i64,
    settled: (i64, i64),
}

/// A database whose destinations are relayed by several processes.
struct Shared<DB: Dialect> {
    database: TestDatabase<DB>,
    cursors: Vec<String>,
    text: String,
    url: String,
}

impl<DB: TestDb> Shared<DB> {
    async fn new(scheme: &str, text: String) -> Self {
        let database = DB::fresh().await;
        let url = format!("{scheme}{}", database.owner_url());
        Self { database, cursors: vec![DB::table_of("cursors")], text, url }
    }

    async fn start(&self) -> Program {
        Program::run(&self.url, &["--migrate"], &self.text).await
    }

    async fn rows(&self) -> BTreeMap<String, Row> {
        let mut rows = BTreeMap::new();
        for table in &self.cursors {
            let sql = format!("SELECT owned, epoch, p, position FROM {table} ORDER BY destination");
            let found = sqlx::query_as::<DB, (i64, i64, i64, i64)>(AssertSqlSafe(sql));
            let mut conn = self.database.pool().acquire().await.unwrap();
            let found = found.fetch_all(&mut *conn).await.unwrap();
            for (n, (owned, epoch, p, position)) in found.into_iter().enumerate() {
                rows.insert(format!("{table}, {n}"), Row { owned, epoch, settled: (p, position) });
            }
        }
        rows
    }

    /// Waits until each process says that it owns `each` of the destinations. Returns how long that took.
    async fn own(&self, each: i64) -> Duration {
        let since = Instant::now();
        let mut last = BTreeMap::new();
        let owned = async {
            loop {
                last = self.rows().await;
                if !last.is_empty() && last.values().all(|row| row.owned == each) {
                    break;
                }
                wait::pause(Pause::Look, Duration::from_millis(20)).await;
            }
        };
        let waited = timeout(PATIENCE, owned).await;
        assert!(waited.is_ok(), "each process owns {each}: {last:?}");
        since.elapsed()
    }

    /// Waits until every cursor has moved.
    async fn moves(&self) -> BTreeMap<String, Row> {
        let before = self.rows().await;
        eventually(async || {
            let rows = self.rows().await;
            rows.iter().all(|(name, row)| row.settled != before[name].settled).then_some(rows)
        })
        .await
    }

    /// Waits until every cursor has moved several times and has kept its owner. On a busy machine a lease may
    /// end before it is renewed, so once is enough.
    async fn stays(&self) {
        let epochs = |rows: &BTreeMap<String, Row>| Vec::from_iter(rows.values().map(|row| row.epoch));
        in_time(async {
            loop {
                let before = epochs(&self.rows().await);
                for _ in 0..20 {
                    self.moves().await;
                }
                let after = epochs(&self.rows().await);
                if after == before {
                    break;
                }
                println!("owners changed: {before:?}, then {after:?}");
            }
        })
        .await;
    }
}

/// Publishes a few messages again and again until it is stopped. Returns how many.
fn publishing<DB: Dialect>(store: Store<DB>, stop: CancellationToken) -> JoinHandle<u32> {
    tokio::spawn(async move {
        let mut count = 0;
        while !stop.is_cancelled() {
            publish(&store, count..count + 7).await;
            count += 7;
            wait::pause(Pause::Pace, Duration::from_millis(70)).await;
        }
        count
    })
}

/// One process starts after the other, one dies and comes back, and one stops.
#[tokio::test(flavor = "multi_thread")]
async fn two_relays_own_half_of_ten_destinations_each() {
    let targets: [Target; 10] = std::array::from_fn(|_| Target::shared());
    let text = targets.iter().enumerate();
    let text = text.map(|(n, target)| destination(&format!("d{n}"), target, "create_stream = true"));
    let relays = Shared::<Postgres>::new("", text.collect()).await;
    let mut first = relays.start().await;
    println!("ten after {:?}", relays.own(10).await);
    let second = relays.start().await;
    println!("five each, without messages, after {:?}", relays.own(5).await);
    let stop = CancellationToken::new();
    let published = publishing((*relays.database).clone(), stop.clone());
    relays.stays().await;

    first.child.kill().await.unwrap();
    println!("ten after {:?}", relays.own(10).await);
    let first = relays.start().await;
    println!("five each again after {:?}", relays.own(5).await);
    relays.stays().await;

    stop.cancel();
    let count = published.await.unwrap();
    for target in &targets {
        target.whole(count as usize).await;
    }
    first.stop().await;
    println!("ten after a normal stop, without messages, within {:?}", relays.own(10).await);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_relays_of_seven_destinations_differ_by_one() {
    let target = Target::shared();
    target.create(target.config(&["orders.placed"])).await;
    let text = (0..7).map(|n| destination(&format!("d{n}"), &target, ""));
    let relays = Shared::<Postgres>::new("", text.collect()).await;
    let _running = [relays.start().await, relays.start().await, relays.start().await];
    let stop = CancellationToken::new();
    let published = publishing((*relays.database).clone(), stop.clone());
    // Of each process as many rows as it owns.
    in_time(async {
        loop {
            let owned = Vec::from_iter(relays.moves().await.values().map(|row| row.owned));
            let of = |count| owned.iter().filter(|owned| **owned == count).count();
            if (of(2), of(3)) == (4, 3) {
                break;
            }
        }
    })
    .await;
    relays.stays().await;
    stop.cancel();
    published.await.unwrap();
}

/// Shares are of all schemas together: in each schema alone nothing is uneven.
async fn schemas_are_shared<DB: TestDb>(scheme: &str) {
    let (orders, invoices) = (Target::shared(), Target::shared());
    let text = "[schemas.billing]\nservice = \"billing\"\n".to_owned()
        + &destination("orders", &orders, "create_stream = true")
        + &destination("invoices", &invoices, "create_stream = true\nschema = \"billing\"");
    let mut relays = Shared::<DB>::new(scheme, text).await;
    let options = StoreOptions::new().namespace("billing");
    let billing = Store::with_options(relays.database.pool().clone(), "billing", options).unwrap();
    billing.migrate().await.unwrap();
    relays.cursors.push(DB::table_of("cursors").replace("twinbox", "billing"));
    let mut first = relays.start().await;
    let stop = CancellationToken::new();
    let stores = [(*relays.database).clone(), billing];
    let published = stores.map(|store| publishing(store, stop.clone()));
    relays.own(2).await;
    let second = relays.start().await;
    println!("one each after {:?}", relays.own(1).await);
    relays.stays().await;
    first.child.kill().await.unwrap();
    println!("both after {:?}", relays.own(2).await);
    stop.cancel();
    for (published, target) in published.into_iter().zip([orders, invoices]) {
        target.whole(published.await.unwrap() as usize).await;
    }
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_share_two_schemas_of_postgres() {
    schemas_are_shared::<Postgres>("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_share_two_prefixes_of_mysql() {
    schemas_are_shared::<MySql>("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_share_two_prefixes_of_one_sqlite_file() {
    schemas_are_shared::<sqlx::Sqlite>("sqlite:").await;
}
