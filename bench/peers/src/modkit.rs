//! cf-modkit-db, its preview of an outbox: append-only tables, a cursor for each partition.
use crate::broker::Broker;
use modkit_db::{
    ConnectOpts, connect_db,
    migration_runner::run_migrations_for_testing,
    outbox::{
        Batch, HandlerResult, LeasedHandler, Outbox, OutboxHandle, OutboxProfile, Partitions, WorkerTuning,
        outbox_migrations,
    },
};
use std::{future::IntoFuture as _, time::Duration};

const QUEUE: &str = "orders";
/// 8, 16 and 64 were slower.
const PARTITIONS: u16 = 4;
/// Its profile for throughput has 100; 300 to 2,000 were slower, and with 8,000 it did not begin.
const BATCH: u32 = 4000;

pub(crate) const FILL: &str = "
    WITH body AS (
        INSERT INTO modkit_outbox_body (payload, payload_type)
        SELECT convert_to((PAYLOAD)::text, 'UTF8'), 'application/json' FROM generate_series(1, COUNT) n
        RETURNING id
    ), partitions AS (
        SELECT id, row_number() OVER () - 1 AS nth, count(*) OVER () AS all_of_them
        FROM modkit_outbox_partitions
    )
    INSERT INTO modkit_outbox_incoming (partition_id, body_id)
    SELECT p.id, body.id FROM body JOIN partitions p ON body.id % p.all_of_them = p.nth;
    ANALYZE modkit_outbox_incoming, modkit_outbox_body";

struct ToBroker(Broker);

#[async_trait::async_trait]
impl LeasedHandler for ToBroker {
    async fn handle(&self, batch: &mut Batch<'_>) -> HandlerResult {
        let mut sent = Vec::new();
        while let Some(message) = batch.next_msg() {
            let id = format!("{}-{}", message.partition_id, message.seq);
            match self.0.send(id, message.payload.clone()).await {
                Ok(ack) => sent.push(ack),
                Err(error) => return HandlerResult::Retry { reason: error.to_string() },
            }
        }
        for ack in sent {
            if let Err(error) = ack.into_future().await {
                return HandlerResult::Retry { reason: error.to_string() };
            }
            batch.ack();
        }
        HandlerResult::Success
    }
}

async fn start(database: &str, partitions: Partitions) -> anyhow::Result<OutboxHandle> {
    let options = ConnectOpts { max_conns: Some(40), ..ConnectOpts::default() };
    let database = connect_db(database, options).await?;
    run_migrations_for_testing(&database, outbox_migrations()).await?;
    let processor = WorkerTuning::processor_high_throughput().batch_size(BATCH);
    let sequencer = WorkerTuning::sequencer_high_throughput().batch_size(20_000);
    let quick =
        |tuning: WorkerTuning| tuning.min_interval(Duration::ZERO).active_interval(Duration::from_millis(1));
    let outbox = Outbox::builder(database)
        .profile(OutboxProfile::high_throughput())
        .processors(usize::from(PARTITIONS))
        .processor_tuning(quick(processor))
        .sequencer_tuning(quick(sequencer))
        .queue(QUEUE, partitions)
        .leased(ToBroker(Broker::connect().await?));
    Ok(outbox.start().await?)
}

/// Makes the tables and the queue.
pub(crate) async fn prepare(database: &str) -> anyhow::Result<()> {
    start(database, Partitions::of(PARTITIONS)).await?.stop().await;
    Ok(())
}

pub(crate) async fn run(database: &str) -> anyhow::Result<()> {
    let outbox = start(database, Partitions::of(PARTITIONS)).await?;
    outbox.outbox().flush();
    std::future::pending::<()>().await;
    outbox.stop().await;
    Ok(())
}
