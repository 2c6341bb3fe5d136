use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres};
use twinbox::{Event, Outbox};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 1)]
struct Placed;

async fn place(pool: PgPool, outbox: Outbox<Postgres>) {
    let mut connection = pool.acquire().await.unwrap();
    let _ = outbox.publish(&mut connection, &Placed).await;
}

fn main() {}
