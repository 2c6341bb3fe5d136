//! The program `twinbox-relay` and other outboxes, which publish a backlog to JetStream in turns.
//!
//! They are in the folder `bench/peers`, with their settings. Their messages have the same payload, and one
//! header where the relay's have nine.
use crate::{
    failure::Failure,
    nats::Server,
    orders,
    program::{self, Messages},
    report::Report,
    spread::Spread,
};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};
use tokio::process::Command;
use twinbox_testkit::database;

const BACKLOG: usize = 300_000;
const RUNS: usize = 3;

struct Peer {
    name: &'static str,
    row: &'static str,
    backlog: usize,
}

const PEERS: [Peer; 4] = [
    Peer { name: "cf-modkit-db", row: "cf-modkit-db, messages/s", backlog: BACKLOG },
    Peer { name: "graphile_worker", row: "graphile_worker, messages/s", backlog: BACKLOG },
    Peer { name: "oxide-outbox", row: "oxide-outbox, messages/s", backlog: BACKLOG },
    // It reads its whole backlog again and again: with 20,000 it has half the speed.
    Peer { name: ON_NODE, row: "pg-transactional-outbox, messages/s", backlog: 10_000 },
];

/// The one that is written for Node.js.
const ON_NODE: &str = "pg-transactional-outbox";

/// How the others are run.
struct Programs {
    rust: PathBuf,
    /// None: this machine has no Node.js.
    script: Option<PathBuf>,
}

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let programs = Programs::build().await?;
    let server = Server::connect().await?;
    let store = orders::filled(BACKLOG, BACKLOG).await?;
    println!("{BACKLOG} messages of 0.5 KB, {RUNS} interleaved runs");
    let mut ratios = Vec::new();
    let mut rates: [Vec<f64>; PEERS.len()] = Default::default();
    for run in 0..RUNS {
        let relay = program::relay(&server, &store, &format!("peers{run}"), of(BACKLOG), true).await?;
        print!("  relay {:.0}/s", relay.per_second);
        for (peer, rates) in PEERS.iter().zip(&mut rates) {
            let Some(program) = programs.of(peer) else { continue };
            let rate = measure(&program, peer, &server).await?;
            print!(", {} {rate:.0}/s", peer.name);
            rates.push(rate);
        }
        println!();
        let best = rates.iter().filter_map(|rates| rates.last()).fold(0.0, |best, rate| rate.max(best));
        ratios.push(relay.per_second / best);
    }
    server.delete().await;
    for (peer, rates) in PEERS.iter().zip(rates).filter(|(_, rates)| !rates.is_empty()) {
        report.add(peer.row, Spread::of(rates))?;
    }
    report.add("relay / best other outbox", Spread::of(ratios))
}

fn of(backlog: usize) -> Messages {
    Messages { all: backlog, timed: backlog }
}

impl Programs {
    async fn build() -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let target = program.ancestors().nth(2).ok_or("the target folder is missing")?.join("peers");
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers");
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--locked", "--manifest-path"]);
        cargo.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(&target);
        if !cargo.status().await?.success() {
            return Err("the other outboxes cannot be built".into());
        }
        let script = install(&folder.join(ON_NODE), &target.join(ON_NODE)).await?;
        Ok(Self { rust: target.join("release/twinbox-peers"), script })
    }

    /// Returns the command line of an outbox, without what it is to do.
    fn of(&self, peer: &Peer) -> Option<[OsString; 2]> {
        match peer.name {
            ON_NODE => Some(["node".into(), self.script.clone()?.into()]),
            name => Some([self.rust.clone().into(), name.into()]),
        }
    }
}

/// Copies the script with its dependencies to a folder. Returns its path, or nothing without Node.js.
async fn install(from: &Path, to: &Path) -> Result<Option<PathBuf>, Failure> {
    std::fs::create_dir_all(to)?;
    for name in ["package.json", "main.mjs"] {
        std::fs::copy(from.join(name), to.join(name))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"]).current_dir(to);
    match npm.status().await {
        Ok(status) if status.success() => Ok(Some(to.join("main.mjs"))),
        Ok(_) => Err(format!("{ON_NODE} cannot be installed").into()),
        Err(error) => {
            println!("{ON_NODE} is left out: npm cannot be run ({error})");
            Ok(None)
        }
    }
}

/// Fills the tables of another outbox and lets it publish them. Returns messages per second.
async fn measure([program, name]: &[OsString; 2], peer: &Peer, server: &Server) -> Result<f64, Failure> {
    let database = database::empty_postgres().await;
    // The older sqlx of the others takes no settings with dots in a URL.
    let url = database.url().split('?').next().unwrap_or_default();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.arg(name).args(arguments).env("DATABASE_URL", url).env("NATS_URL", server.url());
        command.env("RUST_LOG", "error").kill_on_drop(true);
        command
    };
    if !command(&["fill", &peer.backlog.to_string()]).status().await?.success() {
        return Err(format!("{} cannot be filled", peer.name).into());
    }
    server.destination(0).await?;
    let running = command(&["run"]).spawn()?;
    Ok(program::while_running(running, server, database.url(), of(peer.backlog)).await?.per_second)
}
