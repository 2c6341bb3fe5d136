//! `cargo run -p signup`: one SQLite file and a provider of mails on loopback, which drops connections.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    signup::run().await
}
