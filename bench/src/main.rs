//! Measurements, each as a ratio to a raw limit in the same run or as plain times. `cargo xtask bench NAME`
//! brings the servers up and runs one of them.
mod backlog;
mod consumer;
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

use tokio::runtime::Builder;

/// As in the program `twinbox-relay`, for the raw limit and for what is held against it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

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
        "http" => on(2, http::run()),
        "latency" => on(1, latency::run()),
        "log" => on(1, log::run()),
        "ops" => on(1, ops::run()),
        "parked" => on(2, parked::run()),
        _ => {
            let known = "relay, relay-backlog, relay-three, consumer, http, latency, log, ops, parked";
            Err(format!("no benchmark is called {name:?}: {known}").into())
        }
    }
}

/// With as many threads as the program has for so many destinations.
fn on(destinations: usize, bench: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let threads = destinations.min(std::thread::available_parallelism()?.get());
    Builder::new_multi_thread().worker_threads(threads).enable_all().build()?.block_on(bench)
}
