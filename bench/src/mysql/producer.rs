//! The cost of an outbox row in a business transaction on MariaDB, of one round trip each.
use crate::{failure::Failure, report::Report, spread::Spread};
use futures::future::try_join_all;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};
use std::time::{Duration, Instant};
use twinbox_testkit::database;

const CLIENTS: usize = 8;
const TIME: Duration = Duration::from_secs(4);
const RUNS: usize = 5;

const TABLES: &str = "
    CREATE TABLE customers (id INT PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0);
    INSERT INTO customers
        SELECT n - 1, 0
        FROM JSON_TABLE(CONCAT('[0', REPEAT(',0', 9999), ']'), '$[*]' COLUMNS (n FOR ORDINALITY)) numbers;
    CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer INT, n BIGINT, note TEXT);
    CREATE TABLE plain_outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, type VARCHAR(128) NOT NULL,
        `key` VARCHAR(255), payload MEDIUMBLOB NOT NULL, created_at DATETIME(6) DEFAULT NOW(6))";

/// The statements that publish.
const OUTBOXES: [&str; 3] = [
    "INSERT INTO plain_outbox (type, `key`, payload) VALUES ('orders.placed', 'o-CUSTOMER', 'PAYLOAD')",
    "INSERT INTO twinbox_outbox (type, `key`, payload) VALUES ('orders.placed', 'o-CUSTOMER', 'PAYLOAD')",
    "CALL twinbox_publish('orders.placed', 'o-CUSTOMER', 'PAYLOAD', NULL, NULL)",
];

pub(super) async fn run(report: &mut Report) -> Result<(), Failure> {
    let store = database::mysql().await;
    sqlx::raw_sql(TABLES).execute(store.pool()).await?;
    println!("producers: {CLIENTS} clients, {RUNS} interleaved runs of {} s", TIME.as_secs());
    let mut rates: [Vec<f64>; OUTBOXES.len()] = Default::default();
    for _ in 0..RUNS {
        for (publish, rates) in OUTBOXES.iter().zip(&mut rates) {
            let clients = (0..CLIENTS).map(|client| transactions(store.url(), client, publish));
            let done: usize = try_join_all(clients).await?.iter().sum();
            rates.push(done as f64 / TIME.as_secs_f64());
        }
        let last = rates.each_ref().map(|rates| rates.last().copied().unwrap_or_default());
        println!("  plain {:.0}/s, twinbox {:.0}/s, procedure {:.0}/s", last[0], last[1], last[2]);
    }
    let over = |a: usize, b: usize| Spread::of(rates[a].iter().zip(&rates[b]).map(|(a, b)| a / b));
    report.add("MySQL: producer / plain outbox insert", over(1, 0))?;
    report.add("MySQL: producer: procedure / insert", over(2, 1))
}

/// Returns how many transactions one client did.
async fn transactions(url: &str, client: usize, publish: &str) -> Result<usize, Failure> {
    let mut conn = MySqlConnection::connect(url).await?;
    let payload = format!("{{\"order_id\":1,\"pad\":\"{}\"}}", "x".repeat(430));
    let publish = publish.replace("PAYLOAD", &payload);
    let (begun, mut done) = (Instant::now(), 0);
    while begun.elapsed() < TIME {
        let customer = (client + CLIENTS * done * 7) % 10_000;
        let publish = publish.replace("CUSTOMER", &customer.to_string());
        let sql = format!(
            "BEGIN; UPDATE customers SET n = n + 1 WHERE id = {customer};
            INSERT INTO orders (customer, n, note) VALUES ({customer}, 1, 'x'); {publish}; COMMIT"
        );
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
        done += 1;
    }
    Ok(done)
}
