//! Orders become invoices, each once, although deliveries come twice, a handler fails and some orders are
//! poison. One SQLite file, no broker, no server: `cargo run -p quickstart`. Run it again, and it carries on.
mod report;
mod shop;
mod unreliable;

use report::{FILE, Report};
use shop::{Billing, place_orders};
use std::{error::Error, time::Duration};
use twinbox::{CancellationToken, Consumer, Store, log::LogTransport, sqlite};
use unreliable::Unreliable;

/// How long the consumer may take for what is placed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Places orders, and waits until each is settled.
///
/// # Errors
/// An order was lost or invoiced twice, or the database failed.
pub async fn run() -> Result<(), Box<dyn Error>> {
    let pool = sqlite::open(FILE).await?;
    let store = Store::new(pool, "shop")?;
    store.migrate().await?;
    shop::create_tables(&store).await?;
    let before = Report::read(&store).await?;

    // The consumer reads the log of the same file, through a transport that repeats every third delivery.
    let stop = CancellationToken::new();
    let billing = Billing::default();
    let transport = Unreliable::new(LogTransport::new(&store));
    let deliveries = transport.deliveries();
    let consumer =
        Consumer::new(store.clone(), billing.clone()).transport(transport).handler::<shop::invoice>();
    let running = tokio::spawn(consumer.run(stop.clone()));

    place_orders(&store).await?;
    let settled = tokio::time::timeout(PATIENCE, report::everything_settled(&store)).await;
    stop.cancel();
    running.await??;
    settled.map_err(|_| "the consumer did not settle everything in time")??;

    let after = Report::read(&store).await?;
    store.pool().close().await;
    after.print(&before, deliveries.count(), &billing);
    if after.lost() == 0 && after.invoiced_twice() == 0 {
        Ok(())
    } else {
        Err("orders were lost or invoiced twice".into())
    }
}
