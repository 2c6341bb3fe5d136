//! A consumer of orders with crash points: Postgres or MySQL, and NATS, as the environment names them.
use integration_tests::OrderPlaced;
use std::{env, error::Error, time::Duration};
use twinbox::{
    CancellationToken, Consumer, Delivery, HandlerResult, Store, Tx, event_handler,
    nats::{Nats, NatsOptions},
};

macro_rules! handlers {
    ($database:ident, $invoice:literal, $ledger:literal) => {
        #[event_handler(consumer = "billing.invoice", max_attempts = 50, concurrency = 16)]
        async fn invoice(tx: &mut Tx<'_, sqlx::$database>, order: Delivery<OrderPlaced>) -> HandlerResult {
            let attempt = i64::from(order.attempt());
            sqlx::query($invoice).bind(order.order_id).bind(attempt).execute(&mut **tx).await?;
            if order.order_id < 0 {
                std::process::abort();
            }
            if order.order_id % 50 == 0 && order.attempt() == 1 {
                return Err("the printer is jammed".into());
            }
            Ok(())
        }

        /// Says in which order the orders of a customer came.
        #[event_handler(consumer = "billing.ledger", max_attempts = 50, concurrency = 16, order = "key")]
        async fn ledger(tx: &mut Tx<'_, sqlx::$database>, order: Delivery<OrderPlaced>) -> HandlerResult {
            sqlx::query($ledger).bind(order.customer).bind(order.order_id).execute(&mut **tx).await?;
            if order.order_id % 50 == 7 && order.attempt() == 1 {
                return Err("the ink is dry".into());
            }
            Ok(())
        }

        pub(crate) async fn run(url: &str) -> Result<(), Box<dyn Error>> {
            let store = Store::new(sqlx::Pool::<sqlx::$database>::connect(url).await?, "test")?;
            let consumer = Consumer::new(store, ()).transport(transport()?);
            let consumer = match env::var("ORDER").as_deref() {
                Ok("key") => consumer.handler::<ledger>(),
                _ => consumer.handler::<invoice>(),
            };
            Ok(consumer.run(CancellationToken::new()).await?)
        }
    };
}

mod postgres {
    use super::*;

    handlers! {
        Postgres,
        "INSERT INTO invoices (order_id, attempt) VALUES ($1, $2)",
        "INSERT INTO ledger (customer, order_id) VALUES ($1, $2)"
    }
}

mod mysql {
    use super::*;

    handlers! {
        MySql,
        "INSERT INTO invoices (order_id, attempt) VALUES (?, ?)",
        "INSERT INTO ledger (customer, order_id) VALUES (?, ?)"
    }
}

fn transport() -> Result<Nats, Box<dyn Error>> {
    let stream = env::var("STREAM")?;
    let options = NatsOptions::new(env::var("NATS_URL")?)
        .stream(&stream)
        .prefix(env::var("PREFIX")?)
        .inbox_prefix(env::var("NATS_INBOX_PREFIX")?)
        .ack_wait(Duration::from_secs(2));
    Ok(Nats::with_options(options)?)
}

pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    let url = env::var("DATABASE_URL")?;
    if url.starts_with("mysql:") { mysql::run(&url).await } else { postgres::run(&url).await }
}
