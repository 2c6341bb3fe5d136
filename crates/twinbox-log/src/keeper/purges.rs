//! What one run of the keeper deletes.
use std::{collections::BTreeMap, time::Duration};
use twinbox_sql::{
    Dialect, Error,
    engine::{Engine, micros},
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
    /// The first other error. The rows of its table are deleted later.
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
    let mut deleted = 0;
    loop {
        let purge = engine.execute(&engine.sql().effects.purge, |query| {
            query.bind(micros(ended)).bind(micros(failed)).bind(i64::from(BATCH))
        });
        let some = purge.await?;
        deleted += some;
        if some < u64::from(BATCH) {
            return Ok(deleted);
        }
    }
}

/// Deletes runs of jobs that have ended.
pub(super) async fn job_runs<DB: Dialect>(engine: &Engine<DB>, ended: Duration) -> Result<u64, Error> {
    let mut deleted = 0;
    loop {
        let purge = engine
            .execute(&engine.sql().jobs.purge, |query| query.bind(micros(ended)).bind(i64::from(BATCH)));
        let some = purge.await?;
        deleted += some;
        if some < u64::from(BATCH) {
            return Ok(deleted);
        }
    }
}
