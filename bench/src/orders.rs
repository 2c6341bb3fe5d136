//! The messages of the benchmarks, of about 0.5 KB.
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::Postgres;
use twinbox::{Dialect, Draft, Event, Store};
use twinbox_testkit::database::{self, TestDatabase};
use uuid::Uuid;

/// The event of every message.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, key = order_id)]
pub(crate) struct Placed {
    pub(crate) order_id: Uuid,
    pub(crate) n: i64,
}

/// The type of every message.
pub(crate) const TYPE: &str = "orders.placed";
/// The trace context of every message.
pub(crate) const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// The number of different keys.
const KEYS: usize = 5000;

pub(crate) fn key(n: usize) -> String {
    format!("o-{}", n % KEYS)
}

pub(crate) fn payload(n: usize) -> Vec<u8> {
    let order = json!({
        "order_id": Uuid::now_v7(), "n": n, "customer": "c-123456", "note": "x".repeat(300),
        "lines": [{"sku": "a", "qty": 1}, {"sku": "b", "qty": 2}],
    });
    order.to_string().into_bytes()
}

pub(crate) fn draft(n: usize) -> Draft {
    Draft::raw(TYPE, 1, payload(n)).key(key(n)).traceparent(TRACEPARENT)
}

/// Publishes `count` messages and updates the statistics of the planner.
pub(crate) async fn fill(store: &Store<Postgres>, count: usize) -> Result<(), Failure> {
    publish(store, count, draft).await?;
    analyze(store).await
}

/// Creates a database with a backlog of `count` messages of so many keys.
pub(crate) async fn filled(count: usize, keys: usize) -> Result<TestDatabase<Postgres>, Failure> {
    let store = database::postgres().await;
    publish(&store, count, |n| draft(n).key(format!("o-{}", n % keys))).await?;
    analyze(&store).await?;
    Ok(store)
}

/// Publishes `count` messages.
pub(crate) async fn publish<DB: Dialect>(
    store: &Store<DB>,
    count: usize,
    draft: impl Fn(usize) -> Draft,
) -> Result<(), Failure> {
    for page in (0..count).collect::<Vec<_>>().chunks(twinbox::limits::PUBLISH_ALL_MAX) {
        let mut tx = store.begin().await?;
        store.outbox().publish_all(&mut tx, page.iter().copied().map(&draft).collect()).await?;
        tx.commit().await?;
    }
    Ok(())
}

async fn analyze(store: &Store<Postgres>) -> Result<(), Failure> {
    sqlx::raw_sql("VACUUM ANALYZE twinbox.outbox").execute(store.pool()).await?;
    Ok(())
}
