//! `cargo run -p payments`.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    payments::run().await
}
