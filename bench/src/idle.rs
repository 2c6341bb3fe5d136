//! The cost of a relay that has nothing to do.
use crate::{failure::Failure, nats::Server, processes::Family, program, report::Report, spread::Spread};
use sqlx::Postgres;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use twinbox_testkit::database::{self, TestDatabase};

const MEASURED: Duration = Duration::from_secs(10);
/// A relay asks often for a second after the last message.
const QUIET: Duration = Duration::from_secs(3);
const RUNS: usize = 3;

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let server = Server::connect().await?;
    println!("{RUNS} runs of {} s without a message", MEASURED.as_secs());
    let one = idle(&server, 1).await?;
    report.add("idle, 1 destination: transactions/s", Spread::of(one.transactions))?;
    let ten = idle(&server, 10).await?;
    report.add("idle, 10 destinations: transactions/s", Spread::of(ten.transactions))?;
    report.add("idle, 10 destinations: Postgres, % of a core", Spread::of(ten.postgres))?;
    report.add("idle, 10 destinations: relay, % of a core", Spread::of(ten.relay))
}

#[derive(Default)]
struct Idle {
    transactions: Vec<f64>,
    /// Processor time, in percent of a core.
    postgres: Vec<f64>,
    relay: Vec<f64>,
}

async fn idle(server: &Server, destinations: usize) -> Result<Idle, Failure> {
    let store = database::postgres().await;
    let folder = tempfile::tempdir()?;
    let names: Vec<_> = (0..destinations).map(|n| format!("idle_{n}")).collect();
    let sections = names.iter().map(|name| {
        format!(
            "[destinations.{name}]\nkind = \"nats\"\nurl = {:?}\nstream = \"{name}\"\nprefix = \"{name}\"\n\
            create_stream = true\n",
            server.url()
        )
    });
    let mut child = program::start(&folder, store.url(), &sections.collect::<String>())?;
    let process = child.id().ok_or("the program has ended")?;
    let families = [Family::of(process), Family::serving(store.url())?];
    let mut idle = Idle::default();
    let measured = async {
        owned(&store, destinations).await?;
        sleep(QUIET).await;
        for _ in 0..RUNS {
            let (at, before) = (Instant::now(), transactions(&store).await?);
            let worked = [families[0].seconds()?, families[1].seconds()?];
            sleep(MEASURED).await;
            let now = [families[0].seconds()?, families[1].seconds()?];
            let took = at.elapsed().as_secs_f64();
            idle.transactions.push((transactions(&store).await? - before) as f64 / took);
            idle.relay.push((now[0] - worked[0]) / took * 100.0);
            idle.postgres.push((now[1] - worked[1]) / took * 100.0);
        }
        Ok::<_, Failure>(())
    };
    tokio::select! {
        measured = measured => measured?,
        ended = child.wait() => return Err(format!("the program ended: {}", ended?).into()),
    }
    child.kill().await?;
    for name in names {
        server.delete_named(&name).await;
    }
    Ok(idle)
}

/// Waits until the relay has the lease of every destination.
async fn owned(store: &TestDatabase<Postgres>, destinations: usize) -> Result<(), Failure> {
    let owned = "SELECT count(*) FROM twinbox.cursors WHERE owner IS NOT NULL";
    while sqlx::query_scalar::<_, i64>(owned).fetch_one(store.pool()).await? < destinations as i64 {
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn transactions(store: &TestDatabase<Postgres>) -> Result<i64, Failure> {
    let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    Ok(sqlx::query_scalar(count).fetch_one(store.pool()).await?)
}
