//! graphile_worker: a queue of jobs. A job publishes one message.
use crate::broker::Broker;
use graphile_worker::{
    IntoTaskHandlerResult, LocalQueueConfig, TaskHandler, Worker, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// 16 were slower, 256 not faster.
const JOBS_AT_A_TIME: usize = 64;

pub(crate) const FILL: &str = "
    SELECT graphile_worker.add_job('publish', '{}');
    DELETE FROM graphile_worker._private_jobs;
    INSERT INTO graphile_worker._private_jobs (task_id, payload)
    SELECT (SELECT id FROM graphile_worker._private_tasks WHERE identifier = 'publish'), (PAYLOAD)::json
    FROM generate_series(1, COUNT) n;
    ANALYZE graphile_worker._private_jobs";

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Publish(Value);

impl TaskHandler for Publish {
    const IDENTIFIER: &'static str = "publish";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let broker = context.get_ext::<Broker>().ok_or("no broker")?;
        let payload = serde_json::to_vec(&self.0).map_err(|error| error.to_string())?;
        broker.publish(context.job().id().to_string(), payload).await.map_err(|error| error.to_string())
    }
}

async fn worker(database: &str) -> anyhow::Result<Worker> {
    let queue = LocalQueueConfig::builder().size(1000).queue_count(2).build();
    let options = WorkerOptions::default()
        .database_url(database)
        .max_pg_conn(20)
        .schema("graphile_worker")
        .concurrency(JOBS_AT_A_TIME)
        .poll_interval(Duration::from_millis(10))
        .local_queue(queue)
        .complete_job_batch_delay(Duration::from_millis(5))
        .add_extension(Broker::connect().await?)
        .define_job::<Publish>();
    Ok(options.init().await?)
}

/// Makes the tables.
pub(crate) async fn prepare(database: &str) -> anyhow::Result<()> {
    worker(database).await?;
    Ok(())
}

pub(crate) async fn run(database: &str) -> anyhow::Result<()> {
    worker(database).await?.run().await?;
    Ok(())
}
