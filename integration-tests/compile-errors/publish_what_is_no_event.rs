use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres};
use twinbox::{Event, Outbox};

#[derive(Serialize, Deserialize)]
struct Underived;

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1, retired)]
struct PlacedV1;

async fn place(pool: PgPool, outbox: Outbox<Postgres>) {
    let mut tx = pool.begin().await.unwrap();
    let _ = outbox.publish(&mut tx, &Underived).await;
    let _ = outbox.publish(&mut tx, &PlacedV1).await;
}

fn main() {}
