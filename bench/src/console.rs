//! The pages of the console beside a million dead letters: the time from the request to the whole answer.
use crate::{failure::Failure, report::Report, spread::Spread};
use sqlx::AssertSqlSafe;
use std::{process::Stdio, time::Instant};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use twinbox_testkit::database;

const ROWS: u32 = 1_000_000;
const RUNS: usize = 31;
const PAGES: [&str; 9] = [
    "/",
    "/dead-letters",
    "/dead-letters/list?consumer=billing.invoice",
    "/dead-letters/list?consumer=billing.invoice&group=00000000000f",
    "/dead-letters/list?destination=warehouse",
    "/dead-letters/one?id=500000",
    "/messages?id=order-500000",
    "/keys?key=customer-7",
    "/consumers?name=billing.invoice",
];

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let store = database::postgres().await;
    for fill in [
        "INSERT INTO twinbox.consumers (consumer) VALUES ('billing.invoice')".to_owned(),
        format!(
            "INSERT INTO twinbox.outbox (id, type, key, payload)
            SELECT 'order-' || n, 'orders.placed', 'customer-' || n % 5000, '{{}}' FROM generate_series(1,
                {ROWS}) n"
        ),
        // A consumer and a destination have 30 groups each, of very different sizes.
        format!(
            "INSERT INTO twinbox.dead_letters (consumer, message_id, reason, error, fingerprint, attempts,
                event_id, source, type, version, key, time, content_type, payload, given_up_at)
            SELECT 'billing.invoice', gen_random_uuid(), 'rejected', 'order ' || n || ' has no customer',
                lpad(to_hex((ln(n) * 3)::int % 30), 12, '0'), 1, 'order-' || n, 'shop', 'orders.placed', 1,
                'customer-' || n % 5000, now(), 'application/json', convert_to(repeat('x', 450), 'UTF8'),
                now() - ({ROWS} - n) * interval '100 milliseconds'
            FROM generate_series(1, {ROWS}) n
            WHERE n % 3 > 0"
        ),
        format!(
            "INSERT INTO twinbox.parked_messages (destination, position, key, type, state, blocks_key,
                attempts, next_attempt_at, first_error, last_error, fingerprint, parked_at)
            SELECT 'warehouse', position, key, type, 'dead', false, 5, now(), 'refused', 'refused',
                lpad(to_hex((ln(position) * 3)::int % 30), 12, '0'),
                now() - ({ROWS} - position) * interval '100 milliseconds'
            FROM twinbox.outbox
            WHERE position % 3 = 0"
        ),
        "VACUUM ANALYZE twinbox.dead_letters, twinbox.parked_messages, twinbox.outbox".to_owned(),
        "CHECKPOINT".to_owned(),
    ] {
        sqlx::raw_sql(AssertSqlSafe(fill)).execute(store.pool()).await?;
    }
    println!("Postgres, {ROWS} dead letters, {RUNS} requests of each page");
    let (console, address) = start(store.url()).await?;
    let client = reqwest::Client::new();
    let mut slowest: Option<Spread> = None;
    for page in PAGES {
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let started = Instant::now();
            let answer = client.get(format!("{address}{page}")).send().await?;
            if answer.status() != 200 {
                return Err(format!("{page} answers {}", answer.status()).into());
            }
            answer.bytes().await?;
            times.push(started.elapsed().as_secs_f64() * 1000.0);
        }
        let spread = Spread::of(times);
        println!("  {page:64} {spread:.1} ms");
        if slowest.as_ref().is_none_or(|slowest| slowest.median() < spread.median()) {
            slowest = Some(spread);
        }
    }
    drop(console);
    report.add("console: slowest page, a million dead letters, ms", slowest.ok_or("no page was measured")?)
}

/// Starts the program. Dropping it ends it.
async fn start(url: &str) -> Result<(Child, String), Failure> {
    let program = std::env::current_exe()?.with_file_name("twinbox");
    let mut command = Command::new(program);
    command.args(["console", "--listen", "127.0.0.1:0"]).env("DATABASE_URL", url);
    let mut child = command.stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stderr.take().ok_or("the program has no output")?).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some((_, rest)) = line.split_once("the console is at ") {
            let address = rest.split(',').next().unwrap_or_default().to_owned();
            return Ok((child, address));
        }
    }
    Err("the console did not start".into())
}
