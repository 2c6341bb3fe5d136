//! The deletions of one run of the keeper.
use std::{collections::BTreeMap, time::Duration};
use twinbox_sql::{
    Dialect, Error,
    engine::{Engine, Query, Statement, micros},
};

/// Rows that one statement deletes.
const BATCH: u32 = 1000;

/// The result of [`Keeper::purge`](super::Keeper::purge).
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct KeeperReport {
    /// How many rows were deleted, by table.
    pub rows: BTreeMap<&'static str, u64>,
    /// The tables of which the role may not delete rows.
    pub forbidden: Vec<&'static str>,
    /// The tables of which rows could not be deleted for another reason. They are deleted later.
    pub failed: Vec<&'static str>,
    /// The error of the first of these tables.
    pub error: Option<Error>,
}

impl KeeperReport {
    pub(super) fn add(&mut self, table: &'static str, purged: Result<u64, Error>) {
        match purged {
            Ok(rows) => {
                self.rows.insert(table, rows);
            }
            Err(error) if error.is_forbidden() => self.forbidden.push(table),
            Err(error) => {
                self.failed.push(table);
                self.error.get_or_insert(error);
            }
        }
    }
}

/// Deletes side effects that have ended.
pub(super) async fn effects<DB: Dialect>(
    engine: &Engine<DB>,
    ended: Duration,
    failed: Duration,
) -> Result<u64, Error> {
    in_batches(engine, &engine.sql().effects.purge, &[ended, failed]).await
}

/// Deletes runs of jobs that have ended.
pub(super) async fn job_runs<DB: Dialect>(engine: &Engine<DB>, ended: Duration) -> Result<u64, Error> {
    in_batches(engine, &engine.sql().jobs.purge, &[ended]).await
}

/// Deletes keys of clients whose operations have ended.
pub(super) async fn client_keys<DB: Dialect>(engine: &Engine<DB>, ended: Duration) -> Result<u64, Error> {
    in_batches(engine, &engine.sql().client_keys.purge, &[ended]).await
}

/// Runs a statement until it deletes less than a batch. Its binds are the ages, then the size of a batch.
async fn in_batches<DB: Dialect>(
    engine: &Engine<DB>,
    purge: &Statement,
    ages: &[Duration],
) -> Result<u64, Error> {
    let mut deleted = 0;
    loop {
        let bind = |query| ages.iter().fold(query, |query: Query<'_, DB>, age| query.bind(micros(*age)));
        let some = engine.execute(purge, |query| bind(query).bind(i64::from(BATCH))).await?;
        deleted += some;
        if some < u64::from(BATCH) {
            return Ok(deleted);
        }
    }
}
