//! Serves `POST /payments` and `POST /refunds`, each once for an `Idempotency-Key`: `cargo run -p payments`.
//! It uses SQLite, or the Postgres that `DATABASE_URL` names.
use std::{env, error::Error};
use tokio::net::TcpListener;
use twinbox::{Store, sqlite};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("info,sqlx=warn").init();
    let app = match env::var("DATABASE_URL") {
        Ok(url) => payments::app(Store::new(sqlx::PgPool::connect(&url).await?, "payments")?).await?,
        Err(_) => payments::app(Store::new(sqlite::open("payments.db").await?, "payments")?).await?,
    };
    let listener = TcpListener::bind(env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
