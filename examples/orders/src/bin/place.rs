//! `cargo run -p orders --bin place`.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    orders::place::run().await
}
