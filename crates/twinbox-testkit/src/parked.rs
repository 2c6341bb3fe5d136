//! Parked deliveries, as a consumer leaves them in the database.
use std::time::Duration;
use twinbox_core::Message;
use twinbox_sql::{Dialect, Error, Fence, Store, engine::hold_fence};

/// Parks deliveries of a partition, each with the delay of its next attempt. For Twinbox's own tests.
///
/// # Errors
/// Another process owns the partition, or the database refused: no delivery is parked.
#[doc(hidden)]
pub async fn park_deliveries<DB: Dialect>(
    store: &Store<DB>,
    consumer: &str,
    fence: Fence,
    deliveries: &[(Message, Duration)],
) -> Result<(), Error> {
    let engine = store.engine();
    let mut tx = engine.begin_short().await?;
    hold_fence::<DB>(&mut tx, engine.catalog(), consumer, fence).await?;
    let deliveries = Vec::from_iter(deliveries.iter().map(|(message, delay)| (message, *delay)));
    DB::park_deliveries(&mut tx, engine.catalog(), consumer, fence.partition, &deliveries).await?;
    tx.commit().await
}
