//! Benchmarks. Each measures a ratio to a raw limit of the same run, or times.
//!
//! `cargo xtask bench NAME` starts the servers and runs one benchmark, `cargo xtask bench all` those of the
//! table. `--json FILE` and `--chart FILE` write what was measured, `--compare FILE` shows the medians of
//! another run beside it. `--peers` adds the benchmark `peers`, which builds other outboxes first.
mod chart;
mod console;
mod consumer;
mod effects;
mod embedded;
mod end_to_end;
mod eventbridge;
mod failure;
mod http;
mod idle;
mod latency;
mod log;
mod mysql;
mod nats;
mod ops;
mod orders;
mod parked;
mod peers;
mod processes;
mod producer;
mod program;
mod purge;
mod relay;
mod report;
mod row;
mod spread;
mod streams;
mod targets;
mod three;

use failure::Failure;
use report::Report;
use tokio::runtime::Builder;

/// The allocator of the program `twinbox-relay`, for the measured code and for the raw limit.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The benchmarks of the table.
const TABLE: [&str; 14] = [
    "producer",
    "relay",
    "latency",
    "consumer",
    "end-to-end",
    "http",
    "eventbridge",
    "embedded",
    "parked",
    "effects",
    "idle",
    "ops",
    "console",
    "mysql",
];
/// Benchmarks that are not in the table.
const OTHERS: [&str; 6] = ["peers", "relay-three", "log", "purge", "purge-mysql", "streams"];

fn main() -> Result<(), Failure> {
    let (mut report, arguments) = Report::of_arguments(std::env::args().skip(1))?;
    let name = arguments.first().map(String::as_str).unwrap_or_default();
    let with_peers = arguments.iter().any(|argument| argument == "--peers");
    let names = if name == "all" { TABLE.to_vec() } else { vec![name] };
    let names = names.into_iter().chain(with_peers.then_some("peers"));
    let mut failed = Vec::new();
    for name in names {
        println!("\n{name}");
        if let Err(error) = run(name, arguments.get(1), &mut report) {
            eprintln!("{name} failed: {error}");
            failed.push(name);
        }
    }
    report.print();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}

/// Runs a benchmark, on as many threads as its program would have.
fn run(name: &str, argument: Option<&String>, report: &mut Report) -> Result<(), Failure> {
    match name {
        "producer" => on(2, producer::run(report)),
        "relay" => on(1, relay::run(report)),
        "relay-three" => on(3, three::run(argument)),
        "latency" => on(2, latency::run(report)),
        "console" => on(1, console::run(report)),
        "consumer" => on(2, consumer::run(report)),
        "end-to-end" => on(2, end_to_end::run(report)),
        "http" => on(2, http::run(report)),
        "eventbridge" => on(2, eventbridge::run(report)),
        "embedded" => on(2, embedded::run(report)),
        "effects" => on(2, effects::run(report)),
        "idle" => on(1, idle::run(report)),
        "log" => on(1, log::run()),
        "mysql" => on(2, mysql::run(argument, report)),
        "ops" => on(1, ops::run(report)),
        "parked" => on(2, parked::run(report)),
        "peers" => on(1, peers::run(report)),
        "purge" => on(2, purge::run(argument, report)),
        "purge-mysql" => on(2, purge::run_mysql(argument, report)),
        "streams" => on(2, streams::run(report)),
        _ => {
            let known = [&TABLE[..], &OTHERS].concat().join(", ");
            Err(format!("unknown benchmark {name:?}, use `all` or one of: {known}").into())
        }
    }
}

fn on(threads: usize, bench: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let threads = threads.min(std::thread::available_parallelism()?.get());
    Builder::new_multi_thread().worker_threads(threads).enable_all().build()?.block_on(bench)
}
