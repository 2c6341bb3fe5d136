//! Other outboxes that publish a backlog to JetStream, each with the best settings that were found.
//!
//! `twinbox-peers NAME fill COUNT` makes the tables and a backlog in `DATABASE_URL`. `twinbox-peers NAME run`
//! publishes it to `NATS_URL` until it is killed: each message with an acknowledgement, before the outbox
//! counts it as sent.
mod broker;
mod graphile;
mod modkit;
mod oxide;

use anyhow::{Context as _, bail};
use sqlx::{Connection as _, PgConnection};
use std::env;

/// The allocator of the program `twinbox-relay`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A payload of the messages that the relay is measured with. SQL, of the number `n`.
const PAYLOAD: &str = r#"jsonb_build_object('order_id', gen_random_uuid(), 'n', n, 'customer', 'c-123456',
    'note', repeat('x', 300), 'lines', '[{"sku": "a", "qty": 1}, {"sku": "b", "qty": 2}]'::jsonb)"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let database = env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    match arguments[..] {
        ["oxide-outbox", "fill", count] => fill(&database, count, oxide::FILL).await,
        ["oxide-outbox", "run"] => oxide::run(&database).await,
        ["cf-modkit-db", "fill", count] => {
            modkit::prepare(&database).await?;
            fill(&database, count, modkit::FILL).await
        }
        ["cf-modkit-db", "run"] => modkit::run(&database).await,
        ["graphile_worker", "fill", count] => {
            graphile::prepare(&database).await?;
            fill(&database, count, graphile::FILL).await
        }
        ["graphile_worker", "run"] => graphile::run(&database).await,
        _ => bail!("use: oxide-outbox|cf-modkit-db|graphile_worker, then: fill COUNT|run"),
    }
}

/// Runs statements in which `COUNT` stands for the number of messages, and `PAYLOAD` for the payload of one.
async fn fill(database: &str, count: &str, statements: &str) -> anyhow::Result<()> {
    let count: u32 = count.parse()?;
    let statements = statements.replace("COUNT", &count.to_string()).replace("PAYLOAD", PAYLOAD);
    let mut conn = PgConnection::connect(database).await?;
    sqlx::raw_sql(&statements).execute(&mut conn).await?;
    Ok(())
}
