//! oxide-outbox (`outbox-core`, `outbox-postgres`). A manager publishes one message at a time, so several of
//! them share the table, as several processes would.
use crate::broker::Broker;
use outbox_core::prelude::*;
use outbox_postgres::PostgresOutbox;
use serde_json::Value;
use sqlx::postgres::PgPoolOptions;
use std::sync::Arc;
use tokio::{sync::watch, task::JoinSet};

/// 4 and 32 were slower, 16 not faster.
const MANAGERS: usize = 8;
/// 200 and 5,000 were slower.
const BATCH: u32 = 1000;

/// The tables as in the README of the crate, without its trigger, which only wakes managers.
pub(crate) const FILL: &str = "
    CREATE TYPE status AS ENUM ('Pending', 'Processing', 'Sent');
    CREATE TABLE outbox_events (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        idempotency_token text DEFAULT NULL,
        event_type text NOT NULL,
        payload jsonb NOT NULL,
        status status NOT NULL DEFAULT 'Pending',
        created_at timestamptz NOT NULL DEFAULT now(),
        locked_until timestamptz NOT NULL DEFAULT '-infinity'
    );
    CREATE INDEX idx_outbox_processing_queue ON outbox_events (locked_until ASC, status)
        WHERE status IN ('Pending', 'Processing');
    CREATE UNIQUE INDEX idx_outbox_idempotency ON outbox_events (idempotency_token);
    INSERT INTO outbox_events (event_type, payload)
    SELECT 'orders.placed', PAYLOAD FROM generate_series(1, COUNT) n;
    ANALYZE outbox_events";

struct ToBroker(Broker);

#[async_trait::async_trait]
impl Transport<Value> for ToBroker {
    async fn publish(&self, event: Event<Value>) -> Result<(), OutboxError> {
        let failed = |error: anyhow::Error| OutboxError::InfrastructureError(error.to_string());
        let payload = serde_json::to_vec(&event.payload).map_err(|error| failed(error.into()))?;
        self.0.publish(event.id.as_uuid().to_string(), payload).await.map_err(failed)
    }
}

pub(crate) async fn run(database: &str) -> anyhow::Result<()> {
    let (_stop, stopped) = watch::channel(false);
    let mut config = OutboxConfig::<Value>::default();
    config.batch_size = BATCH;
    config.poll_interval_secs = 1;
    let (config, broker) = (Arc::new(config), Broker::connect().await?);
    let pool = PgPoolOptions::new().max_connections(2 * MANAGERS as u32).connect(database).await?;
    let mut managers = JoinSet::new();
    for _ in 0..MANAGERS {
        let manager = OutboxManagerBuilder::new()
            .storage(Arc::new(PostgresOutbox::new(pool.clone(), config.clone())))
            .publisher(Arc::new(ToBroker(broker.clone())))
            .config(config.clone())
            .shutdown_rx(stopped.clone())
            .build()?;
        managers.spawn(manager.run());
    }
    while let Some(ended) = managers.join_next().await {
        ended??;
    }
    Ok(())
}
