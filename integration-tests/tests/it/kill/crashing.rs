//! A database that is crashed, a broker that is killed, and relays and consumers that are killed and frozen,
//! while producers write plain SQL.
use super::*;
use crate::support::{
    stores::TestDb,
    wait::{self, Pause},
};
use sqlx::{AssertSqlSafe, Connection as _};
use std::collections::HashMap;
use tokio::time::Instant;
use twinbox::Dialect;
use twinbox_testkit::servers::{MySqlServer, NatsServer, PostgresServer};

const CUSTOMERS: i64 = 40;
/// How long a process is frozen: longer than its lease.
const FROZEN: Duration = Duration::from_secs(6);
/// How long nothing may move on after the last fault.
const HEALED: Duration = Duration::from_secs(300);

/// A server of a database that can crash.
pub(super) trait Server: Send {
    fn url(&self) -> String;
    /// Returns what the server has said since it was started last.
    fn log(&self) -> String;
    fn crash(&mut self);
    fn recover(&mut self);
}

impl Server for PostgresServer {
    fn url(&self) -> String {
        self.url()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }

    fn crash(&mut self) {
        self.stop_immediate().unwrap();
    }

    fn recover(&mut self) {
        self.start_again().unwrap();
    }
}

impl Server for MySqlServer {
    fn url(&self) -> String {
        self.url()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }

    fn crash(&mut self) {
        self.kill().unwrap();
    }

    fn recover(&mut self) {
        self.restart().unwrap();
    }
}

/// The tables and the SQL of producers and handlers.
pub(super) trait Shop: TestDb {
    /// Scripts that make the tables, each in its own transaction.
    const TABLES: &[&str];

    /// Returns SQL that publishes in any language.
    fn publish(order: i64, customer: i64) -> String;

    /// Returns the URL for relays and consumers.
    async fn programs_url(store: &Store<Self>, url: String) -> String;

    /// Returns how many transactions are prepared and not ended: each holds its locks, also after a crash.
    async fn prepared(store: &Store<Self>) -> usize;
}

/// The number of faults of each kind.
#[derive(Clone, Copy)]
pub(super) struct Faults {
    pub(super) crashes: usize,
    /// Of each other kind.
    pub(super) others: usize,
    /// A crash may take commits with it that were acknowledged.
    pub(super) forgets: bool,
}

struct Rig {
    server: Box<dyn Server>,
    broker: NatsServer,
    programs: Programs,
    processes: Vec<(Role, Child)>,
    random: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Relay,
    Invoices,
    Ledger,
}

const ROLES: [Role; 6] =
    [Role::Relay, Role::Relay, Role::Invoices, Role::Invoices, Role::Ledger, Role::Ledger];

impl Rig {
    fn start(&mut self, role: Role) {
        let mut command = match role {
            Role::Relay => self.programs.command(Program::Relay),
            Role::Invoices | Role::Ledger => self.programs.command(Program::Consumer),
        };
        if role == Role::Ledger {
            command.env("ORDER", "key");
        }
        self.processes.push((role, command.spawn().expect("a program just built starts")));
    }

    fn random(&mut self, below: usize) -> usize {
        // xorshift64, so that a seed tells the events.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % 1000).unwrap() % below
    }

    /// Starts each process again that has ended, as a supervisor does.
    fn revive(&mut self) {
        for n in (0..self.processes.len()).rev() {
            if self.processes[n].1.try_wait().unwrap().is_some() {
                let (role, _) = self.processes.swap_remove(n);
                self.start(role);
            }
        }
    }

    /// 0: the database crashes. 1: the broker is killed. 2: a process is killed. 3: a process is frozen.
    async fn suffer(&mut self, event: usize) {
        let victim = self.random(self.processes.len());
        match event {
            0 => {
                self.server.crash();
                wait::pause(Pause::Outage, Duration::from_millis(200)).await;
                self.server.recover();
            }
            1 => {
                self.broker.kill().unwrap();
                wait::pause(Pause::Outage, Duration::from_millis(200)).await;
                self.broker.restart().unwrap();
            }
            2 => {
                self.processes[victim].1.kill().await.unwrap();
            }
            _ => {
                ordered::signal(&self.processes[victim].1, "STOP").await;
                wait::pause(Pause::Outage, FROZEN).await;
                ordered::signal(&self.processes[victim].1, "CONT").await;
            }
        }
        self.revive();
    }
}

/// One order and its event in one transaction.
async fn place<DB: Shop>(conn: &mut DB::Connection, order: i64) -> sqlx::Result<()> {
    // Several producers write for each customer.
    let customer = order / 7 % CUSTOMERS;
    // Writers of one customer come one after the other, as they do who change a row of it.
    let sql = format!(
        "BEGIN;
        UPDATE customers SET orders = orders + 1 WHERE customer = {customer};
        INSERT INTO orders (order_id, customer) VALUES ({order}, {customer});
        {};
        COMMIT",
        DB::publish(order, customer)
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?;
    Ok(())
}

/// Orders of one customer after another, each with its event, in the words of any language. Returns those
/// whose commit was acknowledged.
async fn produce<DB: Shop>(url: String, first: i64, step: usize, stop: CancellationToken) -> Vec<i64> {
    let mut acknowledged = Vec::new();
    let mut orders = (first..).step_by(step);
    while !stop.is_cancelled() {
        let Ok(mut conn) = DB::Connection::connect(&url).await else {
            wait::pause(Pause::Look, Duration::from_millis(50)).await;
            continue;
        };
        // An order whose commit is in doubt is placed under another number: it is there or it is not.
        while !stop.is_cancelled()
            && let Some(order) = orders.next()
            && place::<DB>(&mut conn, order).await.is_ok()
        {
            acknowledged.push(order);
            wait::pause(Pause::Pace, Duration::from_millis(4)).await;
        }
    }
    acknowledged
}

/// Waits until `done` says so of the orders, the invoices and the entries of the ledger, and starts processes
/// again that end meanwhile. A machine may be as slow as it likes, as long as something moves on.
async fn heal<DB: Dialect>(rig: &mut Rig, store: &Store<DB>, done: impl Fn([i64; 3]) -> bool) {
    let (mut moved, mut last) = (Instant::now(), [0; 3]);
    loop {
        match counts(store).await {
            Ok(counts) if done(counts) => return,
            Ok(counts) if counts != last => (moved, last) = (Instant::now(), counts),
            stuck => assert!(moved.elapsed() < HEALED, "{stuck:?} stays\n{}", rig.server.log()),
        }
        rig.revive();
        wait::pause(Pause::Look, Duration::from_millis(200)).await;
    }
}

async fn counts<DB: Dialect>(store: &Store<DB>) -> sqlx::Result<[i64; 3]> {
    Ok([
        rows(store, "SELECT count(*) FROM orders").await?,
        rows(store, "SELECT count(*) FROM invoices").await?,
        rows(store, "SELECT count(*) FROM ledger").await?,
    ])
}

async fn rows<DB: Dialect>(store: &Store<DB>, sql: &str) -> sqlx::Result<i64> {
    let mut conn = store.pool().acquire().await?;
    sqlx::query_scalar::<DB, i64>(AssertSqlSafe(sql.to_owned())).fetch_one(&mut *conn).await
}

/// Each order is invoiced once, and the orders of a customer come to the ledger in their order.
pub(super) async fn survives<DB: Shop>(
    server: impl Server + 'static,
    broker: NatsServer,
    faults: Faults,
    producers: usize,
    orders_min: i64,
) {
    let store = DB::open(&server.url()).await;
    store.migrate().await.unwrap();
    for script in DB::TABLES {
        sqlx::raw_sql(*script).execute(&mut *store.pool().acquire().await.unwrap()).await.unwrap();
    }
    let mut programs = Programs::at(DB::programs_url(&store, server.url()).await);
    programs.nats_url = broker.url();
    let mut rig = Rig { server: Box::new(server), broker, programs, processes: Vec::new(), random: seed() };
    ROLES.into_iter().for_each(|role| rig.start(role));
    let stop = CancellationToken::new();
    let producers = Vec::from_iter((0..producers).map(|n| {
        let first = i64::try_from(n).unwrap();
        tokio::spawn(produce::<DB>(rig.server.url(), first, producers, stop.clone()))
    }));
    let mut events = vec![0; faults.crashes];
    events.extend((1..4).flat_map(|event| vec![event; faults.others]));
    while !events.is_empty() {
        let event = events.swap_remove(rig.random(events.len()));
        rig.suffer(event).await;
        let pause = Duration::from_millis(500 + 200 * rig.random(10) as u64);
        wait::pause(Pause::Pace, pause).await;
    }
    heal(&mut rig, &store, |[orders, ..]| orders >= orders_min).await;
    stop.cancel();
    let mut acknowledged = Vec::new();
    for producer in producers {
        acknowledged.extend(producer.await.unwrap());
    }
    let is_done = |[orders, invoices, ledger]: [i64; 3]| orders > 0 && invoices >= orders && ledger >= orders;
    heal(&mut rig, &store, is_done).await;
    for (_, process) in &mut rig.processes {
        process.kill().await.unwrap();
    }
    let orders = rows(&store, "SELECT count(*) FROM orders").await.unwrap();
    println!("{orders} orders, {} acknowledged", acknowledged.len());
    assert!(!acknowledged.is_empty());
    if !faults.forgets {
        let list = acknowledged.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        let kept = format!("SELECT count(*) FROM orders WHERE order_id IN ({list})");
        assert_eq!(rows(&store, &kept).await.unwrap(), i64::try_from(acknowledged.len()).unwrap());
    }
    for table in ["invoices", "ledger"] {
        let invented = format!(
            "SELECT count(*) FROM {table} t LEFT JOIN orders o USING (order_id) WHERE o.order_id IS NULL"
        );
        let twice = format!("SELECT count(*) - count(DISTINCT order_id) FROM {table}");
        for (what, sql) in [("invented", invented), ("twice", twice)] {
            assert_eq!(rows(&store, &sql).await.unwrap(), 0, "{table}: {what}");
        }
    }
    let published = format!(
        "SELECT o.position, l.customer FROM ledger l JOIN {} o ON o.id = CONCAT('order-', l.order_id)
        ORDER BY l.id",
        DB::table_of("outbox")
    );
    let mut conn = store.pool().acquire().await.unwrap();
    let published = sqlx::query_as::<DB, (i64, i64)>(AssertSqlSafe(published)).fetch_all(&mut *conn);
    let mut last = HashMap::<i64, i64>::new();
    let published = published.await.unwrap();
    assert_eq!(i64::try_from(published.len()).unwrap(), orders);
    for (position, customer) in published {
        let before = last.insert(customer, position).unwrap_or(0);
        assert!(before < position, "of customer {customer}, {position} came after {before}");
    }
    drop(conn);
    assert_eq!(DB::prepared(&store).await, 0);
    let dead = format!("SELECT count(*) FROM {}", DB::table_of("dead_letters"));
    assert_eq!(rows(&store, &dead).await.unwrap(), 0);
}
