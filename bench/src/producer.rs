//! The cost of an outbox row in a business transaction, by pgbench: ours, and a plain table by hand.
use crate::{failure::Failure, report::Report, spread::Spread};
use sqlx::Executor as _;
use std::path::PathBuf;
use tokio::process::Command;
use twinbox_testkit::database;

const CLIENTS: u32 = 8;
const SECONDS: u32 = 4;
const RUNS: usize = 5;

const TABLES: &str = "
    CREATE TABLE customers (id int PRIMARY KEY, n bigint DEFAULT 0);
    INSERT INTO customers SELECT n, 0 FROM generate_series(1, 10000) n;
    CREATE TABLE orders (id bigserial PRIMARY KEY, customer int, n bigint, note text);
    CREATE TABLE plain_outbox (id bigserial PRIMARY KEY, type text NOT NULL, key text, payload bytea NOT NULL,
        created_at timestamptz DEFAULT now());";

/// The statements that publish, by the names of their scripts.
const OUTBOXES: [(&str, &str); 3] = [
    ("plain", "INSERT INTO plain_outbox (type, key, payload) VALUES ('orders.placed', 'o-' || :c, PAYLOAD)"),
    (
        "twinbox",
        "INSERT INTO twinbox.outbox (type, key, payload) VALUES ('orders.placed', 'o-' || :c, PAYLOAD)",
    ),
    ("function", "SELECT twinbox.publish('orders.placed', 'o-' || :c, TEXT)"),
];

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let store = database::postgres().await;
    store.pool().execute(TABLES).await?;
    let text = format!("'{{\"order_id\":1,\"pad\":\"{}\"}}'", "x".repeat(430));
    let folder = tempfile::tempdir()?;
    let mut scripts = Vec::new();
    for (name, publish) in OUTBOXES {
        let payload = format!("convert_to({text}, 'UTF8')");
        let publish = publish.replace("PAYLOAD", &payload).replace("TEXT", &text);
        let script = format!(
            "\\set c random(1, 10000)\nBEGIN;\nUPDATE customers SET n = n + 1 WHERE id = :c;\n\
            INSERT INTO orders (customer, n, note) VALUES (:c, 1, 'x');\n{publish};\nEND;\n"
        );
        let file = folder.path().join(name);
        std::fs::write(&file, script)?;
        scripts.push(file);
    }
    println!("{CLIENTS} clients, {RUNS} interleaved runs of {SECONDS} s, Postgres with fsync");
    let mut rates: [Vec<f64>; OUTBOXES.len()] = Default::default();
    for _ in 0..RUNS {
        for (script, rates) in scripts.iter().zip(&mut rates) {
            sqlx::raw_sql("CHECKPOINT").execute(store.pool()).await?;
            rates.push(transactions_a_second(store.url(), script).await?);
        }
        let last = rates.each_ref().map(|rates| rates.last().copied().unwrap_or_default());
        println!("  plain {:.0}/s, twinbox {:.0}/s, SQL function {:.0}/s", last[0], last[1], last[2]);
        sqlx::raw_sql("TRUNCATE plain_outbox, orders, twinbox.outbox").execute(store.pool()).await?;
    }
    let over = |a: usize, b: usize| Spread::of(rates[a].iter().zip(&rates[b]).map(|(a, b)| a / b));
    report.add("producer / plain outbox insert", over(1, 0))?;
    report.add("producer: SQL function / insert", over(2, 1))
}

async fn transactions_a_second(url: &str, script: &PathBuf) -> Result<f64, Failure> {
    let program = PathBuf::from(std::env::var("TWINBOX_PG_BIN")?).join("pgbench");
    let mut command = Command::new(program);
    command.args(["--no-vacuum", "--protocol=prepared", "--jobs=2"]);
    command.args([format!("--client={CLIENTS}"), format!("--time={SECONDS}")]);
    // pgbench refuses the settings of sqlx, which follow the name of the database.
    let url = url.split('?').next().unwrap_or(url);
    let output = command.arg("--file").arg(script).arg(url).output().await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = rate.ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok(rate.split_whitespace().next().unwrap_or_default().parse()?)
}
