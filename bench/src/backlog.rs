//! A relay that is a million rows behind: its rate as a ratio to 50,000 rows behind, and its memory.
use crate::{
    failure::Failure,
    log::bulk,
    nats::{IN_FLIGHT, Server},
    spread::Spread,
};
use sqlx::{AssertSqlSafe, Postgres};
use std::time::{Duration, Instant};
use tokio::{process::Command, time::sleep};
use twinbox::{
    CancellationToken, Store,
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::database::{self, TestDatabase};

const FEW: u32 = 50_000;
const MANY: u32 = 1_000_000;
const RUNS: usize = 5;

pub(crate) async fn run() -> Result<(), Failure> {
    let server = Server::connect().await?;
    let (few, many) = (filled(FEW).await?, filled(MANY).await?);
    println!(
        "\nthe first {FEW} rows of a backlog of {MANY}, and of a backlog of {FEW}, {RUNS} interleaved runs"
    );
    relayed(&server, &few, usize::MAX).await?;
    let mut ratios = Vec::new();
    for run in 0..RUNS {
        let (of_few, of_many) =
            (relayed(&server, &few, 2 * run).await?, relayed(&server, &many, 2 * run + 1).await?);
        println!("  short {of_few:>9.0}/s   long {of_many:>9.0}/s   ratio {:.2}", of_many / of_few);
        ratios.push(of_many / of_few);
    }
    println!("ratio  {:.2}", Spread::of(ratios));
    program(&server, &many).await
}

async fn filled(rows: u32) -> Result<TestDatabase<Postgres>, Failure> {
    let store = database::postgres().await;
    sqlx::raw_sql(AssertSqlSafe(bulk(rows))).execute(store.pool()).await?;
    sqlx::raw_sql("VACUUM ANALYZE twinbox.outbox").execute(store.pool()).await?;
    Ok(store)
}

/// Relays the first messages. Returns messages per second.
async fn relayed(server: &Server, store: &Store<Postgres>, run: usize) -> Result<f64, Failure> {
    let options = RelayOptions::new().in_flight(IN_FLIGHT);
    let relay = Relay::with_options(store.clone(), server.destination(run).await?, options);
    let (stop, counters) = (CancellationToken::new(), relay.counters());
    let started = Instant::now();
    let running = tokio::spawn(relay.run(stop.clone()));
    while counters.published() < u64::from(FEW) {
        sleep(Duration::from_millis(1)).await;
    }
    let pace = counters.published() as f64 / started.elapsed().as_secs_f64();
    stop.cancel();
    running.await??;
    server.delete().await;
    Ok(pace)
}

/// Relays all messages with the program `twinbox-relay`. Prints its rate and its memory.
async fn program(server: &Server, store: &TestDatabase<Postgres>) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("relay.toml");
    server.delete().await;
    let toml = format!(
        "[database]\nurl = {:?}\nservice = {:?}\n[destinations.program]\nkind = \"nats\"\nurl = {:?}\n\
         stream = \"BENCH\"\nprefix = \"bench\"\ncreate_stream = true\nstart = \"beginning\"\n",
        store.url(),
        database::SERVICE,
        server.url(),
    );
    std::fs::write(&config, toml)?;
    let program = std::env::current_exe()?.with_file_name("twinbox-relay");
    let mut command = Command::new(program);
    let mut child =
        command.args(["run", "--config"]).arg(config).env("RUST_LOG", "error").kill_on_drop(true).spawn()?;
    let relayed = async {
        while server.holds(1).await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
        let started = Instant::now();
        server.holds(MANY as usize).await?;
        Ok::<_, Failure>(f64::from(MANY) / started.elapsed().as_secs_f64())
    };
    let pace = tokio::select! {
        pace = relayed => pace?,
        ended = child.wait() => return Err(format!("the program ended: {}", ended?).into()),
    };
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id().ok_or("the program ended")?))?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    println!("the program relays {MANY} messages at {pace:.0}/s, memory at most {}", memory.trim());
    child.kill().await?;
    server.delete().await;
    Ok(())
}
