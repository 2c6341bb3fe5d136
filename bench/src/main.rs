//! Measurements, each as a ratio to a raw limit in the same run or as plain times. `cargo xtask bench NAME`
//! brings the servers up and runs one of them.
mod latency;
mod log;
mod nats;
mod orders;
mod relay;
mod spread;

/// As in the program `twinbox-relay`, for the raw limit and for what is held against it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// With as many threads as the program has for one destination.
#[tokio::main(worker_threads = 1)]
async fn main() -> Result<(), Failure> {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "relay" => relay::run().await,
        "latency" => latency::run().await,
        "log" => log::run().await,
        _ => Err(format!("no benchmark is called {name:?}: relay, latency, log").into()),
    }
}
