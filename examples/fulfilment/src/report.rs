//! What became of all orders that were ever placed.
use sqlx::Postgres;
use std::{fmt, time::Duration};
use twinbox::Store;

/// Orders, and what was done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Orders.
    pub placed: i64,
    /// Picks that the warehouse wrote.
    pub picks: i64,
    /// Orders with a pick.
    pub picked: i64,
    /// Bills that were written.
    pub bills: i64,
    /// Orders with a bill.
    pub billed: i64,
}

impl Report {
    pub(crate) async fn read(store: &Store<Postgres>) -> sqlx::Result<Self> {
        let counts = sqlx::query_as::<_, (i64, i64, i64, i64, i64)>(
            "SELECT (SELECT count(*) FROM orders),
                (SELECT count(*) FROM picks), (SELECT count(DISTINCT order_id) FROM picks),
                (SELECT count(*) FROM bills), (SELECT count(DISTINCT order_id) FROM bills)",
        );
        let (placed, picks, picked, bills, billed) = counts.fetch_one(store.pool()).await?;
        Ok(Self { placed, picks, picked, bills, billed })
    }

    /// Whether each order has one pick and one bill.
    pub fn is_right(&self) -> bool {
        [self.picks, self.picked, self.bills, self.billed] == [self.placed; 4]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n  Each order is to be picked and billed once, although it travels on two paths.\n")?;
        writeln!(f, "  {:<32}{:>8}{:>8}{:>8}", "", "orders", "effects", "twice")?;
        let path =
            |what, orders, effects| format!("  {what:<32}{orders:>8}{effects:>8}{:>8}", effects - orders);
        writeln!(f, "  {:<32}{:>8}", "placed", self.placed)?;
        writeln!(f, "{}", path("picked, by NATS", self.picked, self.picks))?;
        writeln!(f, "{}", path("billed, by EventBridge and SQS", self.billed, self.bills))
    }
}

pub(crate) async fn everything_done(store: &Store<Postgres>) -> sqlx::Result<()> {
    loop {
        let report = Report::read(store).await?;
        if report.picked == report.placed && report.billed == report.placed {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
