//! The metrics that are read from the databases: backlogs, leases, pools.
use crate::{
    metrics::{
        BACKLOG_MESSAGES, DATABASE_UP, LEASED, Metric, OLDEST_MESSAGE_AGE, PARKED_MESSAGES, PAUSED,
        POOL_CONNECTIONS, POOL_WAIT, UNFINISHED_IDEMPOTENCY_KEYS, describe,
    },
    readiness::DATABASE_TIMEOUT,
    schemas::{Schema, Schemas},
};
use futures::future::join_all;
use metrics::{Label, Recorder, gauge, with_local_recorder};
use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};
use tokio::time::timeout;
use twinbox_ops::Ops;
use twinbox_sql::Dialect;

/// The answers of each database when it last responded. A destination that was retired since is not in them.
#[derive(Default)]
pub(crate) struct DatabaseMetrics(Mutex<Vec<Vec<Fact>>>);

/// A value that was read from a database.
struct Fact {
    name: &'static str,
    labels: Vec<Label>,
    value: f64,
}

impl Fact {
    fn new(metric: Metric, labels: Vec<Label>, value: f64) -> Self {
        Self { name: metric.name, labels, value }
    }
}

impl DatabaseMetrics {
    /// Reads each database that responds in time, and gives all metrics to the recorder.
    pub(crate) async fn read<DB: Dialect>(&self, schemas: &Schemas<DB>, recorder: &impl Recorder) {
        let (databases, are_several) = (schemas.by_database(), schemas.are_several());
        let reads = databases.iter().map(async |schemas| {
            let labels = if databases.len() > 1 { vec![label(schemas[0])] } else { Vec::new() };
            let mut read = Vec::new();
            let all = read_database(schemas, &labels, are_several, &mut read);
            let up = matches!(timeout(DATABASE_TIMEOUT, all).await, Ok(Ok(())));
            read.push(Fact::new(DATABASE_UP, labels, if up { 1.0 } else { 0.0 }));
            read
        });
        let reads = join_all(reads).await;
        let mut facts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        facts.resize_with(databases.len(), Vec::new);
        with_local_recorder(recorder, || {
            describe();
            for (read, facts) in reads.into_iter().zip(&mut *facts) {
                match read.len() {
                    // The database has not responded.
                    1 => facts.retain(|fact| fact.name != DATABASE_UP.name),
                    _ => facts.clear(),
                }
                facts.extend(read);
                for Fact { name, labels, value } in facts {
                    gauge!(*name, labels.clone()).set(*value);
                }
            }
        });
    }
}

fn label<DB: Dialect>(schema: &Schema<DB>) -> Label {
    Label::new("schema", schema.name.clone())
}

/// Reads the schemas of one database.
async fn read_database<DB: Dialect>(
    schemas: &[&Schema<DB>],
    labels: &[Label],
    are_several: bool,
    facts: &mut Vec<Fact>,
) -> Result<(), twinbox_sql::Error> {
    let pool = schemas[0].store.pool();
    let started_at = Instant::now();
    schemas[0].store.engine().connection().await?.done().await?;
    facts.push(Fact::new(POOL_WAIT, labels.to_vec(), started_at.elapsed().as_secs_f64()));
    let idle = pool.num_idle();
    for (state, count) in [("idle", idle as f64), ("used", f64::from(pool.size()) - idle as f64)] {
        let labels = [labels, &[Label::new("state", state)]].concat();
        facts.push(Fact::new(POOL_CONNECTIONS, labels, count));
    }
    let mut result = Ok(());
    for schema in schemas {
        result = result.and(read_schema(schema, are_several, facts).await);
    }
    result
}

/// `with_label`: several schemas may have readers of one name, so each metric names its schema.
async fn read_schema<DB: Dialect>(
    schema: &Schema<DB>,
    with_label: bool,
    facts: &mut Vec<Fact>,
) -> Result<(), twinbox_sql::Error> {
    for reader in Ops::new(&schema.store).readers().await? {
        let mut labels = vec![Label::new("destination", reader.name)];
        labels.extend(with_label.then(|| label(schema)));
        for (metric, value) in [
            (BACKLOG_MESSAGES, reader.backlog as f64),
            (OLDEST_MESSAGE_AGE, reader.oldest.as_secs_f64()),
            (LEASED, if reader.lease.is_some() { 1.0 } else { 0.0 }),
            (PAUSED, if reader.pause_reason.is_some() { 1.0 } else { 0.0 }),
        ] {
            facts.push(Fact::new(metric, labels.clone(), value));
        }
        for (state, count) in
            [("waiting", reader.waiting), ("dead", reader.dead_letters), ("blocking", reader.blocking)]
        {
            let labels = [&*labels, &[Label::new("state", state)]].concat();
            facts.push(Fact::new(PARKED_MESSAGES, labels, count as f64));
        }
    }
    let labels = Vec::from_iter(with_label.then(|| label(schema)));
    let unfinished = schema.store.idempotency_keys().count_unfinished().await?;
    facts.push(Fact::new(UNFINISHED_IDEMPOTENCY_KEYS, labels, unfinished as f64));
    Ok(())
}
