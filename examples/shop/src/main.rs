//! `DATABASE_URL=postgres://… cargo run -p shop`.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    shop::run().await
}
