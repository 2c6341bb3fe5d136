//! `cargo run -p orders --bin billing`.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    orders::billing::run().await
}
