//! Places orders: ten a second until Ctrl-C, or as many as the first argument says.
use crate::{OrderPlaced, log, stop_at_ctrl_c, store};
use std::{error::Error, time::Duration};
use twinbox::CancellationToken;

/// Places orders until Ctrl-C, or as many as the first argument says.
///
/// # Errors
/// The database failed, or the argument is no number.
pub async fn run() -> Result<(), Box<dyn Error>> {
    log();
    let count = std::env::args().nth(1).map_or(Ok(u64::MAX), |n| n.parse())?;
    let (store, stop) = (store("shop").await?, stop_at_ctrl_c());
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, cents bigint NOT NULL)")
        .execute(store.pool())
        .await?;
    let mut placed = 0;
    while placed < count && !stop.is_cancelled() {
        let mut tx = store.begin().await?;
        let cents = 100 * (1 + i64::try_from(placed % 50)?);
        let order_id = sqlx::query_scalar("INSERT INTO orders (cents) VALUES ($1) RETURNING id")
            .bind(cents)
            .fetch_one(&mut *tx)
            .await?;
        store.outbox().publish(&mut tx, &OrderPlaced { order_id, cents }).await?;
        tx.commit().await?;
        placed += 1;
        println!("placed order {order_id}: {cents} cents");
        pause(&stop).await;
    }
    println!("{placed} orders placed");
    Ok(())
}

async fn pause(stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(100)) => {}
        () = stop.cancelled() => {}
    }
}
