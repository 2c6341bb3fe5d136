//! A shop that places orders and a billing department that invoices them.
use serde::{Deserialize, Serialize};
use sqlx::Sqlite;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use twinbox::{Delivery, Event, HandlerError, HandlerResult, OwnedTx, Store, Tx, event_handler};

/// Customers who order beside each other.
const CUSTOMERS: i64 = 8;
/// What each of them orders.
const ORDERS_EACH: i64 = 25;

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = order_id)]
pub(crate) struct OrderPlaced {
    pub(crate) order_id: i64,
    pub(crate) cents: i64,
}

pub(crate) async fn create_tables(store: &Store<Sqlite>) -> sqlx::Result<()> {
    // No unique constraint on the invoices: what keeps them single is the inbox.
    let tables = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL);
        CREATE TABLE IF NOT EXISTS invoices (order_id INTEGER NOT NULL, cents INTEGER NOT NULL);";
    sqlx::raw_sql(tables).execute(store.pool()).await?;
    Ok(())
}

/// Every customer orders at once. Each 50th order has a total that no invoice can have.
pub(crate) async fn place_orders(store: &Store<Sqlite>) -> Result<(), Box<dyn std::error::Error>> {
    let customers: Vec<_> = (0..CUSTOMERS)
        .map(|customer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 1..=ORDERS_EACH {
                    let poison = (customer * ORDERS_EACH + n) % 50 == 0;
                    place_order(&store, if poison { -1 } else { n * 100 }).await?;
                }
                Ok::<_, twinbox::Error>(())
            })
        })
        .collect();
    for customer in customers {
        customer.await??;
    }
    Ok(())
}

/// The order and the news of it commit together, or not at all.
async fn place_order(store: &Store<Sqlite>, cents: i64) -> Result<(), twinbox::Error> {
    let mut tx: OwnedTx<Sqlite> = store.begin().await?;
    let order_id = sqlx::query_scalar("INSERT INTO orders (cents) VALUES (?) RETURNING id")
        .bind(cents)
        .fetch_one(&mut *tx)
        .await?;
    store.outbox().publish(&mut tx, &OrderPlaced { order_id, cents }).await?;
    tx.commit().await
}

/// What billing counts while it runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Billing {
    runs: Arc<AtomicU64>,
}

impl Billing {
    /// How often the handler ran.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(Relaxed)
    }
}

/// Invoices an order. The printer jams at the first attempt of each tenth order, after the invoice is
/// written: the rollback takes it back.
#[event_handler(consumer = "billing.invoice", max_attempts = 5)]
pub(crate) async fn invoice(
    app: &Billing,
    tx: &mut Tx<'_, Sqlite>,
    order: Delivery<OrderPlaced>,
) -> HandlerResult {
    app.runs.fetch_add(1, Relaxed);
    if order.cents < 0 {
        return Err(HandlerError::reject("an order cannot have a negative total"));
    }
    sqlx::query("INSERT INTO invoices (order_id, cents) VALUES (?, ?)")
        .bind(order.order_id)
        .bind(order.cents)
        .execute(&mut **tx)
        .await?;
    if order.order_id % 10 == 0 && order.attempt() == 1 {
        return Err("the printer is jammed".into());
    }
    Ok(())
}
