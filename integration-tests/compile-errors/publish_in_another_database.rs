use serde::{Deserialize, Serialize};
use sqlx::{Postgres, SqlitePool};
use twinbox::{Event, Outbox};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

async fn place(pool: SqlitePool, outbox: Outbox<Postgres>) {
    let mut tx = pool.begin().await.unwrap();
    let _ = outbox.publish(&mut tx, &Placed).await;
}

fn main() {}
