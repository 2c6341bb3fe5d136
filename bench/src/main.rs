//! Benchmarks. Each prints a ratio to a raw limit of the same run, or times.
//!
//! `cargo xtask bench NAME` starts the servers and runs one benchmark.
mod backlog;
mod consumer;
mod effects;
mod failure;
mod http;
mod latency;
mod log;
mod nats;
mod ops;
mod orders;
mod parked;
mod relay;
mod spread;
mod three;

use failure::Failure;
use tokio::runtime::Builder;

/// The allocator of the program `twinbox-relay`, for the measured code and for the raw limit.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Failure> {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "relay" => {
            on(1, relay::run())?;
            on(1, backlog::run())?;
            on(3, three::run())
        }
        "relay-backlog" => on(1, backlog::run()),
        "relay-three" => on(3, three::run()),
        "consumer" => on(2, consumer::run()),
        "effects" => on(2, effects::run()),
        "http" => on(2, http::run()),
        "latency" => on(1, latency::run()),
        "log" => on(1, log::run()),
        "ops" => on(1, ops::run()),
        "parked" => on(2, parked::run()),
        _ => {
            let known =
                "relay, relay-backlog, relay-three, consumer, effects, http, latency, log, ops, parked";
            Err(format!("unknown benchmark {name:?}, use one of: {known}").into())
        }
    }
}

/// Runs a benchmark on as many threads as `twinbox-relay` has for this number of destinations.
fn on(destinations: usize, bench: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let threads = destinations.min(std::thread::available_parallelism()?.get());
    Builder::new_multi_thread().worker_threads(threads).enable_all().build()?.block_on(bench)
}
