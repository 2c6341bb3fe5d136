//! The operator's tool on a log of a million messages: the time from the start of the program to its end.
//!
//! For comparison, the first line is the time to read every row once.
use crate::{failure::Failure, log::bulk, report::Report, spread::Spread};
use sqlx::{AssertSqlSafe, Sqlite};
use std::{
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::process::Command;
use twinbox::{
    Dialect, Manifest, Store,
    log::{Reader, ReaderOptions, StartPosition},
};
use twinbox_testkit::database;
use uuid::Uuid;

const ROWS: u32 = 1_000_000;
const RUNS: usize = 7;

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let store = database::postgres().await;
    sqlx::raw_sql(AssertSqlSafe(bulk(ROWS))).execute(store.pool()).await?;
    sqlx::raw_sql("VACUUM ANALYZE twinbox.outbox").execute(store.pool()).await?;
    println!("Postgres, {ROWS} messages of 0.5 KB");
    let raw = "SELECT max(length(type || id)) FROM twinbox.outbox";
    let [_, plan, .., status, _] = measure(&store, store.url().to_owned(), raw).await?;
    report.add("tool: plan of a million messages, ms", plan)?;
    report.add("tool: status, a million behind, ms", status)?;
    let store = database::sqlite().await;
    let rows = format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {ROWS}) \
        INSERT INTO twinbox_outbox (type, key, payload) \
        SELECT 'orders.placed', 'o-' || n % 5000, CAST(printf('%.*c', 450, 'x') AS BLOB) FROM n"
    );
    let mut tx = store.begin().await?;
    sqlx::query::<Sqlite>(AssertSqlSafe(rows)).execute(&mut *tx).await?;
    tx.commit().await?;
    println!("SQLite, {ROWS} messages of 0.5 KB");
    let raw = "SELECT max(length(type || id)) FROM twinbox_outbox";
    measure(&store, format!("sqlite:{}", store.url()), raw).await?;
    Ok(())
}

/// The time to read every row, and those of the commands.
type Times = [Spread; 6];

async fn measure<DB: Dialect>(store: &Store<DB>, url: String, raw: &'static str) -> Result<Times, Failure> {
    let (now, beginning) = (ReaderOptions::new().start(StartPosition::Now), ReaderOptions::new());
    for (name, options) in [("nats", now), ("late", beginning)] {
        let reader = Reader::open(store, name, Uuid::now_v7(), options).await?;
        reader.ok_or("another process has the lease")?.close().await?;
    }
    let plan = ["replays", "plan", "resend", "--to", "nats"];
    let manifest = tempfile::NamedTempFile::new()?;
    std::fs::write(manifest.path(), Manifest::new([]).to_json())?;
    let manifest = manifest.path().to_str().ok_or("the path of the manifest is no text")?;
    let commands: [(&str, Vec<&str>); 5] = [
        ("replays plan resend, everything", plan.to_vec()),
        ("replays plan resend, --since 10s", [&plan[..], &["--since", "10s"]].concat()),
        ("replays plan resend, --key o-7", [&plan[..], &["--key", "o-7"]].concat()),
        ("status, a destination a million behind", vec!["status", "--max-unowned", "1h", "--max-age", "1h"]),
        (
            "schemas check, a destination a million behind",
            vec!["schemas", "check", manifest, "--since", "1s"],
        ),
    ];
    let mut times: [Vec<Duration>; 6] = Default::default();
    for _ in 0..RUNS {
        let started = Instant::now();
        let mut conn = store.pool().acquire().await?;
        sqlx::query::<DB>(raw).fetch_one(&mut *conn).await?;
        times[0].push(started.elapsed());
        drop(conn);
        for (n, (_, arguments)) in commands.iter().enumerate() {
            times[n + 1].push(timed(&url, arguments).await?);
        }
    }
    let names = ["reading every row once"].into_iter().chain(commands.iter().map(|(name, _)| *name));
    let times = times.map(|times| Spread::of(times.iter().map(|time| time.as_secs_f64() * 1000.0)));
    for (name, millis) in names.zip(&times) {
        println!("  {name:40} {millis:.0} ms");
    }
    Ok(times)
}

/// Runs the program. Returns the time from its start to its end.
async fn timed(url: &str, arguments: &[&str]) -> Result<Duration, Failure> {
    let program = std::env::current_exe()?.with_file_name("twinbox");
    let started = Instant::now();
    let mut command = Command::new(program);
    command.args(arguments).env("DATABASE_URL", url).stdout(Stdio::null());
    if !command.status().await?.success() {
        return Err(format!("{arguments:?} failed").into());
    }
    Ok(started.elapsed())
}
