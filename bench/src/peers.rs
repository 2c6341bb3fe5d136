//! The program `twinbox-relay` and other outboxes, which publish a backlog to JetStream in turns.
//!
//! They are in the package `bench/peers`, with their settings. Their messages have the same payload, and one
//! header where the relay's have nine.
use crate::{
    failure::Failure,
    nats::Server,
    orders,
    program::{self, Messages},
    report::Report,
    spread::Spread,
};
use std::path::PathBuf;
use tokio::process::Command;
use twinbox_testkit::database;

const BACKLOG: usize = 300_000;
const MESSAGES: Messages = Messages { all: BACKLOG, timed: BACKLOG };
const RUNS: usize = 3;
const PEERS: [(&str, &str); 3] = [
    ("cf-modkit-db", "cf-modkit-db, messages/s"),
    ("graphile_worker", "graphile_worker, messages/s"),
    ("oxide-outbox", "oxide-outbox, messages/s"),
];

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let program = build().await?;
    let server = Server::connect().await?;
    let store = orders::filled(BACKLOG, BACKLOG).await?;
    println!("{BACKLOG} messages of 0.5 KB, {RUNS} interleaved runs");
    let (mut ratios, mut rates): (Vec<f64>, [Vec<f64>; PEERS.len()]) = Default::default();
    for run in 0..RUNS {
        let relay = program::relay(&server, &store, &format!("peers{run}"), MESSAGES, true).await?.per_second;
        for ((name, _), rates) in PEERS.iter().zip(&mut rates) {
            rates.push(peer(&program, name, &server).await?);
        }
        let last = rates.each_ref().map(|rates| rates[run]);
        println!("  relay {relay:.0}/s, {} {last:.0?}", PEERS.map(|(name, _)| name).join(", "));
        ratios.push(relay / last.into_iter().fold(0.0, f64::max));
    }
    server.delete().await;
    for ((_, row), rates) in PEERS.iter().zip(rates) {
        report.add(row, Spread::of(rates))?;
    }
    report.add("relay / best other outbox", Spread::of(ratios))
}

/// Builds the other outboxes. Returns their program.
async fn build() -> Result<PathBuf, Failure> {
    let (folder, profile) = (env!("CARGO_MANIFEST_DIR"), std::env::current_exe()?);
    let target = profile.ancestors().nth(2).ok_or("the target folder is missing")?.join("peers");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--manifest-path"]);
    cargo.arg(format!("{folder}/peers/Cargo.toml")).arg("--target-dir").arg(&target);
    match cargo.status().await?.success() {
        true => Ok(target.join("release/twinbox-peers")),
        false => Err("the other outboxes cannot be built".into()),
    }
}

/// Fills the tables of another outbox and lets it publish them. Returns messages per second.
async fn peer(program: &PathBuf, name: &str, server: &Server) -> Result<f64, Failure> {
    let database = database::empty_postgres().await;
    // The older sqlx of the others takes no settings with dots in a URL.
    let url = database.url().split('?').next().unwrap_or_default();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.arg(name).args(arguments).env("DATABASE_URL", url).env("NATS_URL", server.url());
        command.env("RUST_LOG", "error").kill_on_drop(true);
        command
    };
    if !command(&["fill", &BACKLOG.to_string()]).status().await?.success() {
        return Err(format!("{name} cannot be filled").into());
    }
    server.destination(0).await?;
    let running = command(&["run"]).spawn()?;
    Ok(program::while_running(running, server, database.url(), MESSAGES).await?.per_second)
}
