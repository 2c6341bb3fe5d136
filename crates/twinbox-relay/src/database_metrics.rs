//! The metrics that are read from the databases: backlogs, leases, pools.
use crate::{
    metrics::{
        BACKLOG_MESSAGES, DATABASE_UP, LEASED, Metric, OLDEST_MESSAGE_AGE, PARKED_MESSAGES, PAUSED,
        POOL_CONNECTIONS, POOL_WAIT, UNFINISHED_IDEMPOTENCY_KEYS,
    },
    readiness::DATABASE_TIMEOUT,
    schemas::{Schema, Schemas},
};
use futures::future::join_all;
use metrics::{Label, gauge};
use std::time::Instant;
use tokio::time::timeout;
use twinbox_ops::Ops;
use twinbox_sql::Dialect;

/// Reads each database that responds in time, and gives its metrics to the installed recorder.
pub(crate) async fn read<DB: Dialect>(schemas: &Schemas<DB>) {
    let (databases, are_several) = (schemas.by_database(), schemas.are_several());
    let reads = databases.iter().map(async |schemas| {
        let labels = if databases.len() > 1 { vec![label(schemas[0])] } else { Vec::new() };
        let read = timeout(DATABASE_TIMEOUT, read_database(schemas, &labels, are_several)).await;
        let up = matches!(read, Ok(Ok(())));
        gauge!(DATABASE_UP.name, labels).set(if up { 1.0 } else { 0.0 });
    });
    join_all(reads).await;
}

fn label<DB: Dialect>(schema: &Schema<DB>) -> Label {
    Label::new("schema", schema.name.clone())
}

/// Reads the schemas of one database.
async fn read_database<DB: Dialect>(
    schemas: &[&Schema<DB>],
    labels: &[Label],
    are_several: bool,
) -> Result<(), twinbox_sql::Error> {
    let pool = schemas[0].store.pool();
    let started_at = Instant::now();
    drop(pool.acquire().await?);
    gauge!(POOL_WAIT.name, labels.to_vec()).set(started_at.elapsed());
    let idle = pool.num_idle();
    for (state, count) in [("idle", idle as f64), ("used", f64::from(pool.size()) - idle as f64)] {
        gauge!(POOL_CONNECTIONS.name, [labels, &[Label::new("state", state)]].concat()).set(count);
    }
    let mut result = Ok(());
    for schema in schemas {
        result = result.and(read_schema(schema, are_several).await);
    }
    result
}

/// `with_label`: several schemas may have readers of one name, so each metric names its schema.
async fn read_schema<DB: Dialect>(schema: &Schema<DB>, with_label: bool) -> Result<(), twinbox_sql::Error> {
    for reader in Ops::new(&schema.store).readers().await? {
        let mut labels = vec![Label::new("destination", reader.name)];
        labels.extend(with_label.then(|| label(schema)));
        let gauge = |metric: Metric| gauge!(metric.name, labels.clone());
        gauge(BACKLOG_MESSAGES).set(reader.backlog as f64);
        gauge(OLDEST_MESSAGE_AGE).set(reader.oldest);
        gauge(LEASED).set(if reader.lease.is_some() { 1.0 } else { 0.0 });
        gauge(PAUSED).set(if reader.pause_reason.is_some() { 1.0 } else { 0.0 });
        for (state, count) in
            [("waiting", reader.waiting), ("dead", reader.dead_letters), ("blocking", reader.blocking)]
        {
            let state = Label::new("state", state);
            gauge!(PARKED_MESSAGES.name, [&*labels, &[state]].concat()).set(count as f64);
        }
    }
    let labels = with_label.then(|| label(schema));
    let unfinished = schema.store.idempotency_keys().count_unfinished().await?;
    gauge!(UNFINISHED_IDEMPOTENCY_KEYS.name, Vec::from_iter(labels)).set(unfinished as f64);
    Ok(())
}
