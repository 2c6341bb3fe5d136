//! A run of a job, as its target and as an operator see it.
use twinbox_core::Timestamp;
use twinbox_sql::engine::{JobRunRow, JobRunState, job_run_id};
use uuid::Uuid;

/// Derives the id of the run of a job that is scheduled for a time. All processes derive the same one.
pub fn run_id(job: &str, scheduled_for: Timestamp) -> Uuid {
    job_run_id(job, scheduled_for)
}

/// One attempt of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRun {
    /// The id of the job.
    pub job: String,
    /// The id of the run: the same in each attempt, in whichever process. A manual run has a new UUIDv7.
    pub run_id: Uuid,
    /// For when the run was scheduled. A manual run: when it was asked for.
    pub scheduled_for: Timestamp,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Whether a person asked for the run.
    pub is_manual: bool,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunState {
    /// The run waits for a process, or for its next attempt.
    Pending,
    /// A process runs it. If that process has died, another one takes the run when its lease ends.
    Running,
    /// The run has succeeded.
    Done,
    /// The run was given up.
    Failed,
}

/// A run as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunRecord {
    /// The id of the run.
    pub run_id: Uuid,
    /// The id of the job.
    pub job: String,
    /// For when the run was scheduled. A manual run: when it was asked for.
    pub scheduled_for: Timestamp,
    /// Whether a person asked for the run.
    pub is_manual: bool,
    /// The present state.
    pub state: RunState,
    /// How often the run was begun.
    pub attempts: u32,
    /// How many attempts failed.
    pub failures: u32,
    /// The process that runs it now.
    pub owner: Option<Uuid>,
    /// The status of the last response, for a target that is called by HTTP.
    pub http_code: Option<u16>,
    /// The text of the last error.
    pub last_error: Option<String>,
    /// When the row was written.
    pub created_at: Timestamp,
    /// When the last attempt began.
    pub started_at: Option<Timestamp>,
    /// When the run ended.
    pub finished_at: Option<Timestamp>,
}

impl From<JobRunRow> for RunRecord {
    fn from(row: JobRunRow) -> Self {
        let state = match row.state {
            JobRunState::Pending => RunState::Pending,
            JobRunState::Running => RunState::Running,
            JobRunState::Done => RunState::Done,
            JobRunState::Failed => RunState::Failed,
        };
        Self {
            run_id: row.run_id,
            job: row.job,
            scheduled_for: row.scheduled_for,
            is_manual: row.is_manual,
            state,
            attempts: row.attempts,
            failures: row.failures,
            owner: row.owner,
            http_code: row.http_code,
            last_error: row.last_error,
            created_at: row.created_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The public vector. A change would run each job again. R14
    #[test]
    fn a_run_id_is_the_same_everywhere() {
        let at = Timestamp::parse("2026-03-29T01:00:00Z").unwrap();
        let id = run_id("release-commission-locks", at);
        assert_eq!(id.to_string(), "4bce0bbb-4d59-8dcb-a4a8-e88a9e4232c5");
        assert_ne!(id, run_id("release-commission-lock", at));
        assert_eq!(
            id,
            run_id("release-commission-locks", Timestamp::parse("2026-03-29T03:00:00+02:00").unwrap())
        );
    }
}
