//! What the file says of all orders that were ever placed in it.
use crate::shop::Billing;
use sqlx::Sqlite;
use std::time::Duration;
use twinbox::Store;

/// The SQLite file of the program, in the folder in which it runs.
pub(crate) const FILE: &str = "quickstart.db";

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    placed: i64,
    dead: i64,
    invoices: i64,
    invoiced: i64,
}

impl Report {
    pub(crate) async fn read(store: &Store<Sqlite>) -> sqlx::Result<Self> {
        let counts = sqlx::query_as::<_, (i64, i64, i64, i64)>(
            "SELECT (SELECT count(*) FROM orders),
                (SELECT count(DISTINCT message_id) FROM twinbox_dead_letters),
                (SELECT count(*) FROM invoices),
                (SELECT count(DISTINCT order_id) FROM invoices)",
        );
        let (placed, dead, invoices, invoiced) = counts.fetch_one(store.pool()).await?;
        Ok(Self { placed, dead, invoices, invoiced })
    }

    /// Orders of which there is neither an invoice nor a dead letter.
    pub(crate) fn lost(&self) -> i64 {
        self.placed - self.invoiced - self.dead
    }

    /// Invoices beyond the first of an order.
    pub(crate) fn invoiced_twice(&self) -> i64 {
        self.invoices - self.invoiced
    }

    pub(crate) fn print(&self, before: &Self, deliveries: u64, billing: &Billing) {
        let line = |what: &str, now: i64, all: i64| println!("  {what:<22}{now:>10}{all:>10}");
        let once = |what: &str, now: u64| println!("  {what:<22}{now:>10}");
        // A run that wrote neither an invoice nor a dead letter was rolled back, and the message came again.
        let ended = (self.invoices - before.invoices + self.dead - before.dead).unsigned_abs();
        println!("\n  Orders become invoices in {FILE}: no broker, no server.\n");
        println!("  {:<22}{:>10}{:>10}", "", "this run", "in all");
        line("orders placed", self.placed - before.placed, self.placed);
        once("delivered", deliveries);
        once("  duplicates ignored", deliveries - billing.runs());
        once("  retried", billing.runs() - ended);
        line("dead-lettered", self.dead - before.dead, self.dead);
        line("invoices written", self.invoices - before.invoices, self.invoices);
        line("invoiced twice", self.invoiced_twice() - before.invoiced_twice(), self.invoiced_twice());
        line("lost", self.lost() - before.lost(), self.lost());
        println!("\n  The dead letters are kept whole, with their error, in twinbox_dead_letters.");
        println!("  Run it again: it carries on in the same file.\n");
    }
}

pub(crate) async fn everything_settled(store: &Store<Sqlite>) -> sqlx::Result<()> {
    while Report::read(store).await?.lost() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
