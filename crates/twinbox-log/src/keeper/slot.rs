//! One run of the keeper: which process does it.
use super::purges::KeeperReport;
use sqlx::Row as _;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error,
    engine::{
        Engine, JobRunResult, JobRunRow, JobRunState, OwnedJobRun, elect_job_run, job_run_id, query,
        take_job_run,
    },
};
use uuid::Uuid;

/// The name of the keeper among the jobs whose runs the database keeps.
pub const KEEPER: &str = "twinbox.keeper";

/// After how long another process takes over the run of one that died.
const LEASE: Duration = Duration::from_secs(60);
/// A lease is renewed so many times as often as it ends.
const RENEWALS: u32 = 3;
/// The most earlier runs that are looked at.
const OPEN_MAX: i64 = 100;
/// The error of a run that no process could end in its time.
const REPLACED: &str = "no process ended it before the next run";

/// The time for which a run is scheduled: the same in all processes, by the clock of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(Timestamp);

impl Slot {
    pub(super) fn of(now: Timestamp, every: Duration) -> Self {
        let every = i64::try_from(every.as_micros()).unwrap_or(i64::MAX).max(1);
        Self(Timestamp::from_micros(now.as_micros().div_euclid(every).saturating_mul(every)))
    }

    /// Begins the run. None: another process does it, or has done it.
    pub(super) async fn begin<DB: Dialect>(
        self,
        engine: &Engine<DB>,
        owner: Uuid,
    ) -> Result<Option<OwnedJobRun>, Error> {
        let catalog = engine.catalog();
        let mut tx = engine.begin_short().await?;
        let mut run = elect_job_run::<DB>(&mut tx, catalog, KEEPER, self.0, owner, LEASE).await?;
        let open = query::<DB>(&catalog.sql.jobs.open).bind(KEEPER.to_owned()).bind(OPEN_MAX);
        for row in open.fetch_all(&mut *tx).await? {
            let (found, due_in) = (JobRunRow::read::<DB>(&row)?, row.try_get::<i64, _>("due_in")?);
            if due_in > 0 {
                continue;
            }
            if found.scheduled_for == self.0 {
                let read = (found.run_id, found.attempts);
                let failures = u32::from(found.state == JobRunState::Running);
                run = take_job_run::<DB>(&mut tx, catalog, read, failures, owner, LEASE).await?;
            } else if found.scheduled_for < self.0 {
                let end = query::<DB>(&catalog.sql.jobs.give_up).bind(REPLACED.to_owned());
                let end = end.bind(found.run_id).bind(i64::from(found.attempts));
                end.execute(&mut *tx).await?;
            }
        }
        tx.commit().await?;
        Ok(run)
    }

    /// Returns whether a process has ended the run.
    pub(super) async fn has_ended<DB: Dialect>(self, engine: &Engine<DB>) -> Result<bool, Error> {
        let run_id = job_run_id(KEEPER, self.0);
        let row = engine.fetch_optional(&engine.sql().jobs.find, |query| query.bind(run_id)).await?;
        let row = row.as_ref().map(JobRunRow::read::<DB>).transpose()?;
        Ok(row.is_some_and(|row| row.finished_at.is_some()))
    }
}

/// Renews the lease of a run. Returns when it is lost, or could not be renewed in time.
pub(super) async fn keep_lease<DB: Dialect>(engine: &Engine<DB>, run: OwnedJobRun) {
    let mut until = Instant::now() + LEASE;
    loop {
        sleep(LEASE / RENEWALS).await;
        let asked_at = Instant::now();
        match timeout_at(until, run.renew(engine, LEASE)).await {
            Ok(Ok(true)) => until = asked_at + LEASE,
            Ok(Ok(false)) => return,
            _ if Instant::now() >= until => return,
            _ => {}
        }
    }
}

/// Writes the result of a run. What is not whole waits for another process, or for the next look.
pub(super) async fn finish<DB: Dialect>(
    engine: &Engine<DB>,
    run: OwnedJobRun,
    report: &KeeperReport,
) -> Result<(), Error> {
    let error = match report {
        KeeperReport { failed, error: Some(error), .. } => Some(format!("{}: {error}", failed.join(", "))),
        KeeperReport { forbidden, .. } if !forbidden.is_empty() => {
            Some(format!("the role may not delete rows of {}", forbidden.join(", ")))
        }
        _ => None,
    };
    let state = if error.is_some() { JobRunState::Pending } else { JobRunState::Done };
    let delay = error.is_some().then_some(Duration::ZERO);
    let result = JobRunResult { state, is_failure: report.error.is_some(), delay, http_code: None, error };
    run.finish(engine, &result).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_a_day_of_the_database() {
        let at = |text| Timestamp::parse(text).unwrap();
        let slot = |text| Slot::of(at(text), Duration::from_secs(24 * 3600)).0;
        assert_eq!(slot("2026-03-29T00:00:00Z"), at("2026-03-29T00:00:00Z"));
        assert_eq!(slot("2026-03-29T23:59:59.999999Z"), at("2026-03-29T00:00:00Z"));
        assert_eq!(slot("1969-12-31T12:00:00Z"), at("1969-12-31T00:00:00Z"));
    }
}
