//! The program `twinbox-relay`, or another one, measured while it sends a backlog.
use crate::{
    failure::Failure,
    nats::Server,
    processes::{Family, memory_max},
};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use twinbox::Dialect;
use twinbox_testkit::database::{SERVICE, TestDatabase};

/// The part of a backlog that is timed: a relay begins with small pages and few in flight, and ends with
/// what is left.
const TIMED: [f64; 2] = [0.10, 0.95];
/// How often the stream is asked for its messages.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The measurements of one run of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    /// Processor time for each message, in microseconds: of the relay, of the database and of NATS.
    pub(crate) processor: [f64; 3],
    /// The most memory of the relay, in MiB.
    pub(crate) memory: f64,
}

/// The messages of a backlog, and how many of the first ones are timed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Messages {
    pub(crate) all: usize,
    pub(crate) timed: usize,
}

/// Relays the backlog of a database to a new stream. The cursor has the name of the run.
pub(crate) async fn relay<DB: Dialect>(
    server: &Server,
    store: &TestDatabase<DB>,
    run: &str,
    messages: Messages,
    in_batches: bool,
) -> Result<Measured, Failure> {
    server.delete().await;
    let folder = tempfile::tempdir()?;
    let destination = format!(
        "[destinations.{run}]\nkind = \"nats\"\nurl = {:?}\nstream = \"BENCH\"\nprefix = \"bench\"\n\
        create_stream = true\nbatches = {in_batches}\nstart = \"beginning\"\n",
        server.url(),
    );
    let child = start(&folder, store.url(), &destination)?;
    while_running(child, server, store.url(), messages).await
}

/// Measures a program that publishes to the stream, and kills it.
pub(crate) async fn while_running(
    mut child: Child,
    server: &Server,
    database: &str,
    messages: Messages,
) -> Result<Measured, Failure> {
    let process = child.id().ok_or("the program has ended")?;
    let servers = [Family::serving(database)?, Family::serving(server.url())?];
    let families = [Family::of(process), servers[0], servers[1]];
    let measured = tokio::select! {
        measured = measure(server, messages, families) => measured?,
        ended = child.wait() => return Err(format!("the program ended: {}", ended?).into()),
    };
    let memory = memory_max(process)?;
    child.kill().await?;
    Ok(Measured { memory, ..measured })
}

/// Starts the program. It is killed when the result is dropped.
pub(crate) fn start(folder: &TempDir, database: &str, destinations: &str) -> Result<Child, Failure> {
    let config = folder.path().join("relay.toml");
    let toml = format!("[database]\nurl = {database:?}\nservice = {SERVICE:?}\n{destinations}");
    std::fs::write(&config, toml)?;
    let mut program = Command::new(std::env::current_exe()?.with_file_name("twinbox-relay"));
    program.args(["run", "--config"]).arg(config).env("RUST_LOG", "error").kill_on_drop(true);
    Ok(program.spawn()?)
}

struct Mark {
    at: Instant,
    stored: u64,
    processor: [f64; 3],
}

async fn measure(server: &Server, of: Messages, families: [Family; 3]) -> Result<Measured, Failure> {
    let [begin, end] = TIMED.map(|share| (of.timed as f64 * share) as u64);
    let mark = async |least: u64| {
        let (stored, at) = (server.stored_at_least(least, LOOK_EVERY).await?, Instant::now());
        let [relay, database, nats] = families;
        let processor = [relay.seconds()?, database.seconds()?, nats.seconds()?];
        Ok::<_, Failure>(Mark { at, stored, processor })
    };
    let (first, last) = (mark(begin).await?, mark(end).await?);
    let messages = (last.stored - first.stored) as f64;
    let worked = |n: usize| (last.processor[n] - first.processor[n]) * 1e6 / messages;
    server.stored_at_least(of.all as u64, LOOK_EVERY).await?;
    Ok(Measured {
        per_second: messages / (last.at - first.at).as_secs_f64(),
        processor: [worked(0), worked(1), worked(2)],
        memory: 0.0,
    })
}
