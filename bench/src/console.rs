//! The pages of the console beside a million dead letters and ten million messages in the log: the time from
//! the request to the whole answer.
mod filled;

use crate::{failure::Failure, report::Report, spread::Spread};
use std::{process::Stdio, time::Instant};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use twinbox_testkit::database;

const RUNS: usize = 31;
const PAGES: [&str; 14] = [
    "/",
    "/dead-letters",
    "/dead-letters/list?consumer=billing.invoice",
    "/dead-letters/list?consumer=billing.invoice&group=000000000020",
    "/dead-letters/list?destination=warehouse",
    "/dead-letters/one?id=500000",
    "/messages?id=order-500000",
    "/keys?key=customer-7",
    "/consumers?name=billing.invoice",
    "/dead-letters/list?key=nobody",
    "/changes/discard?consumer=billing.invoice",
    "/changes/redrive?consumer=billing.invoice&group=000000000020",
    "/changes/discard?destination=warehouse",
    "/changes/discard?consumer=billing.invoice&key=nobody",
];

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    {
        let store = database::postgres().await;
        filled::fill(&store, &filled::POSTGRES).await?;
        let slowest = slowest("Postgres", store.url()).await?;
        report.add("console: slowest page, ms", slowest)?;
    }
    {
        let store = database::mysql().await;
        filled::fill(&store, &filled::MARIADB).await?;
        let slowest = slowest("MariaDB", store.url()).await?;
        report.add("console, MariaDB: slowest page, ms", slowest)?;
    }
    let store = database::sqlite().await;
    filled::fill(&store, &filled::SQLITE).await?;
    let slowest = slowest("SQLite", &format!("sqlite:{}", store.url())).await?;
    report.add("console, SQLite: slowest page, ms", slowest)
}

/// Prints the times of each page, and returns those of the slowest.
async fn slowest(name: &str, url: &str) -> Result<Spread, Failure> {
    println!("{name}, {RUNS} requests of each page");
    let (console, address) = start(url).await?;
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
    slowest.ok_or_else(|| "no page was measured".into())
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
