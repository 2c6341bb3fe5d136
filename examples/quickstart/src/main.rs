//! `cargo run -p quickstart`.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    quickstart::run().await
}
