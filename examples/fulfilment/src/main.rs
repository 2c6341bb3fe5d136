//! Places orders and waits until each is picked and billed: `cargo run -p fulfilment -- 100`.
#[tokio::main]
async fn main() -> Result<(), fulfilment::Failure> {
    fulfilment::run_from_environment().await
}
