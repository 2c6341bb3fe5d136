//! Scheduled jobs and their runs.
use crate::Ops;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error,
    engine::{JobRunRow, TextColumns},
};

/// The most jobs that are listed.
const JOBS_MAX: i64 = 200;

/// A scheduled job, with its newest run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobInfo {
    /// The id of the job.
    pub job: String,
    /// The schedule, as its process wrote it.
    pub schedule: String,
    /// The time zone of the schedule.
    pub time_zone: String,
    /// For when the newest run was scheduled, and its state: `pending`, `running`, `done` or `failed`.
    pub newest_run: Option<(Timestamp, String)>,
    /// The error of the newest run.
    pub last_error: Option<String>,
}

impl<DB: Dialect> Ops<DB> {
    /// Returns the jobs that have been registered here, by id, at most 200.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn jobs(&self) -> Result<Vec<JobInfo>, Error> {
        let sql = &self.engine.sql().jobs;
        let mut jobs = Vec::new();
        for row in self.engine.fetch_all(&sql.list, |query| query.bind(JOBS_MAX)).await? {
            let job = row.text("id")?;
            let name = job.clone();
            let run = self.engine.fetch_optional(&sql.runs, |query| query.bind(name).bind(1i64)).await?;
            let run = run.as_ref().map(JobRunRow::read::<DB>).transpose()?;
            jobs.push(JobInfo {
                schedule: row.text_or_null("schedule")?.unwrap_or_default(),
                time_zone: row.text_or_null("time_zone")?.unwrap_or_default(),
                newest_run: run.as_ref().map(|run| (run.scheduled_for, run.state.as_str().to_owned())),
                last_error: run.and_then(|run| run.last_error),
                job,
            });
        }
        Ok(jobs)
    }
}
