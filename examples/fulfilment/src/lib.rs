//! One event on two paths: a warehouse hears of an order over NATS, a billing department over EventBridge and
//! SQS.
mod aws;
mod report;

pub use aws::Aws;
pub use report::Report;

use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres};
use std::{env, error::Error, time::Duration};
use tokio::task::JoinSet;
use twinbox::{
    CancellationToken, Consumer, Delivery, Event, HandlerResult, Store, Tx, event_handler,
    nats::{Nats, NatsOptions, StreamOptions},
    relay::Relay,
};

/// Whatever went wrong.
pub type Failure = Box<dyn Error + Send + Sync>;

/// How long it may take until everything that is placed is picked and billed.
const PATIENCE: Duration = Duration::from_secs(300);

/// An order was placed.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = order_id)]
pub struct OrderPlaced {
    /// Which order.
    pub order_id: i64,
    /// What it comes to.
    pub cents: i64,
}

/// Fed by NATS.
#[event_handler(consumer = "warehouse.pick")]
async fn pick(tx: &mut Tx<'_, Postgres>, order: Delivery<OrderPlaced>) -> HandlerResult {
    let pick = sqlx::query("INSERT INTO picks (order_id) VALUES ($1)");
    pick.bind(order.order_id).execute(&mut **tx).await?;
    Ok(())
}

/// Fed by EventBridge, whose rule sends to a queue.
#[event_handler(consumer = "billing.invoice")]
async fn bill(tx: &mut Tx<'_, Postgres>, order: Delivery<OrderPlaced>) -> HandlerResult {
    let bill = sqlx::query("INSERT INTO bills (order_id, cents) VALUES ($1, $2)");
    bill.bind(order.order_id).bind(order.cents).execute(&mut **tx).await?;
    Ok(())
}

/// Where everything is.
#[derive(Debug)]
pub struct Places {
    /// Of Postgres.
    pub database_url: String,
    /// Of NATS.
    pub nats_url: String,
    /// EventBridge and SQS.
    pub aws: Aws,
}

/// Runs the program. The first argument is the number of orders, and the environment says where everything
/// is.
///
/// # Errors
/// The argument is no number, [`run`] failed, or an order was lost or handled twice.
pub async fn run_from_environment() -> Result<(), Failure> {
    let orders = match env::args().nth(1) {
        Some(count) => count.parse().map_err(|_| format!("{count:?} is not a number of orders"))?,
        None => 100,
    };
    let place = |name, default: &str| env::var(name).unwrap_or(default.to_owned());
    let places = Places {
        database_url: place("DATABASE_URL", "postgres://localhost/fulfilment"),
        nats_url: place("NATS_URL", "nats://localhost:4222"),
        aws: Aws {
            region: place("AWS_REGION", "eu-west-1"),
            endpoint_url: env::var("AWS_ENDPOINT_URL").ok(),
        },
    };
    let report = run(orders, &places).await?;
    println!("{report}");
    if report.is_right() { Ok(()) } else { Err("an order was lost, or handled twice".into()) }
}

/// Places so many orders and waits until each is picked and billed. Run again, it carries on.
///
/// # Errors
/// Something cannot be reached, or it takes longer than five minutes.
pub async fn run(orders: i64, places: &Places) -> Result<Report, Failure> {
    let store = Store::new(PgPool::connect(&places.database_url).await?, "shop")?;
    store.migrate().await?;
    sqlx::raw_sql(TABLES).execute(store.pool()).await?;
    let nats =
        Nats::with_options(NatsOptions::new(&places.nats_url).stream("FULFILMENT").prefix("fulfilment"))?;
    nats.provision(&StreamOptions::default()).await?;
    let (bus, queue) = places.aws.prepare("fulfilment", "billing.invoice").await?;

    // In life each of these is a process of its own, or several.
    let stop = CancellationToken::new();
    let mut running = JoinSet::<Result<(), Failure>>::new();
    for relay in [Relay::new(store.clone(), nats.clone()), Relay::new(store.clone(), bus)] {
        let stop = stop.clone();
        running.spawn(async move { Ok(relay.run(stop).await?) });
    }
    let warehouse = Consumer::new(store.clone(), ()).transport(nats).handler::<pick>();
    let billing = Consumer::new(store.clone(), ()).transport(queue).handler::<bill>();
    for consumer in [warehouse, billing] {
        let stop = stop.clone();
        running.spawn(async move { Ok(consumer.run(stop).await?) });
    }

    place(&store, orders).await?;
    let settled = tokio::select! {
        settled = tokio::time::timeout(PATIENCE, report::everything_done(&store)) => settled,
        Some(ended) = running.join_next() => {
            ended??;
            return Err("a relay or a consumer ended by itself".into());
        }
    };
    stop.cancel();
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    settled.map_err(|_| "not everything was picked and billed within five minutes")??;
    Ok(Report::read(&store).await?)
}

const TABLES: &str =
    "CREATE TABLE IF NOT EXISTS orders (order_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
    cents bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS picks (order_id bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS bills (order_id bigint NOT NULL, cents bigint NOT NULL)";

/// Each order and its event in one transaction.
async fn place(store: &Store<Postgres>, orders: i64) -> Result<(), Failure> {
    for n in 0..orders {
        let cents = 500 + n;
        let mut tx = store.begin().await?;
        let insert = sqlx::query_scalar("INSERT INTO orders (cents) VALUES ($1) RETURNING order_id");
        let order_id = insert.bind(cents).fetch_one(&mut *tx).await?;
        store.outbox().publish(&mut tx, &OrderPlaced { order_id, cents }).await?;
        tx.commit().await?;
    }
    Ok(())
}
