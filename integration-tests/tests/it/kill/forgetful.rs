//! A database that is crashed and forgets its last commits, a broker that is killed, and relays and consumers
//! that are killed and frozen, while producers write plain SQL.
use super::*;
use sqlx::PgPool;
use std::collections::HashMap;
use tokio::time::Instant;
use twinbox_testkit::servers::{NatsServer, PostgresOptions, PostgresServer};

/// How often the database crashes; the other things happen about as often.
const CRASHES: usize = 10;
const CUSTOMERS: i64 = 40;
/// How long a process is frozen: longer than its lease.
const FROZEN: Duration = Duration::from_secs(6);
/// How long all may take to be handled after the last fault.
const HEALED: Duration = Duration::from_secs(120);

struct Rig {
    database: PostgresServer,
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

    /// Whoever has ended for what was done to it comes back, as by a supervisor.
    fn revive(&mut self) {
        for n in (0..self.processes.len()).rev() {
            if self.processes[n].1.try_wait().unwrap().is_some() {
                let (role, _) = self.processes.swap_remove(n);
                self.start(role);
            }
        }
    }

    async fn suffer(&mut self, event: usize) {
        let victim = self.random(self.processes.len());
        match event {
            0 => {
                self.database.stop_immediate().unwrap();
                sleep(Duration::from_millis(200)).await;
                self.database.start_again().unwrap();
            }
            1 => {
                self.broker.kill().unwrap();
                sleep(Duration::from_millis(200)).await;
                self.broker.restart().unwrap();
            }
            2 => {
                self.processes[victim].1.kill().await.unwrap();
            }
            _ => {
                ordered::signal(&self.processes[victim].1, "STOP").await;
                sleep(FROZEN).await;
                ordered::signal(&self.processes[victim].1, "CONT").await;
            }
        }
        self.revive();
    }
}

/// One order and its event in one transaction.
async fn place(pool: &PgPool, order: i64) -> sqlx::Result<()> {
    let mut conn = pool.acquire().await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
    sqlx::raw_sql("BEGIN").execute(&mut *conn).await?;
    let customer = order % CUSTOMERS;
    // Writers of one customer come one after the other, as they do who change a row of it.
    sqlx::query("UPDATE customers SET orders = orders + 1 WHERE customer = $1")
        .bind(customer)
        .execute(&mut *conn)
        .await?;
    sqlx::query("INSERT INTO orders (order_id, customer) VALUES ($1, $2)")
        .bind(order)
        .bind(customer)
        .execute(&mut *conn)
        .await?;
    let event = "INSERT INTO twinbox.outbox (id, type, key, payload) \
        VALUES ($1, 'orders.placed', $2, convert_to($3, 'UTF8'))";
    sqlx::query(event)
        .bind(format!("order-{order}"))
        .bind(customer.to_string())
        .bind(format!(r#"{{"order_id":{order},"customer":{customer}}}"#))
        .execute(&mut *conn)
        .await?;
    sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
    Ok(())
}

/// Orders of one customer after another, each with its event, in the words of any language.
async fn produce(url: String, first: i64, stop: CancellationToken) {
    let options = sqlx::postgres::PgPoolOptions::new().max_connections(1);
    let pool = options.acquire_timeout(Duration::from_secs(5)).connect_lazy(&url).unwrap();
    let mut order = first;
    while !stop.is_cancelled() {
        let placed = place(&pool, order);
        // An order whose commit is in doubt is placed under another number: it is there or it is not.
        if placed.await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
        order += 2;
        sleep(Duration::from_millis(4)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_forgets_leaves_no_order_out_and_invents_none() {
    let forgets = PostgresOptions::default().set("synchronous_commit", "off").set("wal_writer_delay", "10s");
    let started = tokio::task::spawn_blocking(|| {
        (PostgresServer::start_with(forgets).unwrap(), NatsServer::start().unwrap())
    });
    let (database, broker) = started.await.unwrap();
    let store = crate::support::postgres::store_at(&database.url()).await;
    store.migrate().await.unwrap();
    let tables = "CREATE TABLE customers (customer bigint PRIMARY KEY, orders bigint NOT NULL);
        INSERT INTO customers SELECT n, 0 FROM generate_series(0, 39) n;
        CREATE TABLE orders (order_id bigint PRIMARY KEY, customer bigint NOT NULL);
        CREATE TABLE invoices (order_id bigint NOT NULL, attempt bigint NOT NULL);
        CREATE TABLE ledger (id bigserial PRIMARY KEY, customer bigint NOT NULL, order_id bigint NOT NULL)";
    sqlx::raw_sql(tables).execute(store.pool()).await.unwrap();
    sqlx::raw_sql("CHECKPOINT").execute(store.pool()).await.unwrap();
    let mut programs = Programs::at(database.url());
    programs.nats_url = broker.url();
    let mut rig = Rig { database, broker, programs, processes: Vec::new(), random: seed() };
    ROLES.into_iter().for_each(|role| rig.start(role));
    let stop = CancellationToken::new();
    let producers = [0, 1].map(|n| tokio::spawn(produce(rig.database.url(), n, stop.clone())));
    let mut events =
        Vec::from_iter((0..4).flat_map(|event| vec![event; if event == 0 { CRASHES } else { 5 }]));
    while !events.is_empty() {
        let event = events.swap_remove(rig.random(events.len()));
        rig.suffer(event).await;
        let pause = Duration::from_millis(500 + 200 * rig.random(10) as u64);
        sleep(pause).await;
    }
    stop.cancel();
    for producer in producers {
        producer.await.unwrap();
    }
    let healed = Instant::now();
    let rows = async |sql: &'static str| {
        sqlx::query_scalar::<_, i64>(sql).fetch_one(store.pool()).await.unwrap_or(-1)
    };
    loop {
        let orders = rows("SELECT count(*) FROM orders").await;
        let invoices = rows("SELECT count(*) FROM invoices").await;
        let ledger = rows("SELECT count(*) FROM ledger").await;
        if orders > 0 && invoices >= orders && ledger >= orders {
            break;
        }
        rig.revive();
        assert!(healed.elapsed() < HEALED, "{orders} orders, {invoices} invoices, {ledger} in the ledger");
        sleep(Duration::from_millis(200)).await;
    }
    for (_, process) in &mut rig.processes {
        process.kill().await.unwrap();
    }
    let orders = rows("SELECT count(*) FROM orders").await;
    println!("{orders} orders");
    for table in ["invoices", "ledger"] {
        let invented = format!(
            "SELECT count(*) FROM {table} t LEFT JOIN orders o USING (order_id) WHERE o.order_id IS NULL"
        );
        let twice = format!("SELECT count(*) - count(DISTINCT order_id) FROM {table}");
        for (what, sql) in [("invented", invented), ("twice", twice)] {
            let count: i64 =
                sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(store.pool()).await.unwrap();
            assert_eq!(count, 0, "{table}: {what}");
        }
    }
    let published = sqlx::query_as::<_, (i64, i64)>(
        "SELECT o.position, l.id FROM ledger l JOIN twinbox.outbox o ON o.id = 'order-' || l.order_id ORDER \
         BY l.id",
    );
    let mut last = HashMap::<i64, i64>::new();
    let customers: Vec<i64> =
        sqlx::query_scalar("SELECT customer FROM ledger ORDER BY id").fetch_all(store.pool()).await.unwrap();
    for ((position, _), customer) in
        published.fetch_all(store.pool()).await.unwrap().into_iter().zip(customers)
    {
        let before = last.insert(customer, position).unwrap_or(0);
        assert!(before < position, "of customer {customer}, {position} came after {before}");
    }
    assert_eq!(rows("SELECT count(*) FROM twinbox.dead_letters").await, 0);
}
