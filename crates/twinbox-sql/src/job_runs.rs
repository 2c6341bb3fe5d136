//! Runs of jobs: which process runs one, and what became of it. Scheduled jobs and the keeper share it.
use crate::{
    Dialect, Error,
    catalog::Catalog,
    change::inserted,
    engine::Engine,
    micros::{Micros, micros},
    row::{optional_text, small_count},
    statement::query,
    text::bounded,
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::{Timestamp, id::derive};
use uuid::Uuid;

/// Derives the id of the run that is scheduled for a time: the same in all processes.
pub fn job_run_id(job: &str, scheduled_for: Timestamp) -> Uuid {
    derive("run/1", &[job.as_bytes(), scheduled_for.to_string().as_bytes()])
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRunState {
    /// It waits for a process, or for its next attempt.
    Pending,
    /// A process runs it, or ended without a result.
    Running,
    /// It has succeeded.
    Done,
    /// It was given up.
    Failed,
}

impl JobRunState {
    /// Returns the word for this state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    fn read(text: &str) -> Self {
        let all = [Self::Pending, Self::Running, Self::Done];
        all.into_iter().find(|state| state.as_str() == text).unwrap_or(Self::Failed)
    }
}

/// A run as it is stored.
#[derive(Debug, Clone)]
pub struct JobRunRow {
    /// The id of the run.
    pub run_id: Uuid,
    /// The job.
    pub job: String,
    /// When it was due.
    pub scheduled_for: Timestamp,
    /// Whether a person asked for it.
    pub is_manual: bool,
    /// The state.
    pub state: JobRunState,
    /// How often it was begun.
    pub attempts: u32,
    /// How many attempts failed.
    pub failures: u32,
    /// The process that runs it.
    pub owner: Option<Uuid>,
    /// The status of the last response.
    pub http_code: Option<u16>,
    /// The text of the last error.
    pub last_error: Option<String>,
    /// When the row was written.
    pub created_at: Timestamp,
    /// When it was last begun.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl JobRunRow {
    /// Reads the columns of `{job_run}`.
    ///
    /// # Errors
    /// A column is missing or has another type.
    pub fn read<DB: Dialect>(row: &DB::Row) -> Result<Self, Error> {
        let text = |name| Ok::<_, Error>(optional_text::<DB>(row, name)?.unwrap_or_default());
        let time = |name| Ok::<_, Error>(row.try_get::<Option<Micros>, _>(name)?.map(|at| at.0));
        let count = |name| Ok::<_, Error>(small_count(row.try_get(name)?));
        Ok(Self {
            run_id: row.try_get("run_id")?,
            job: text("job_id")?,
            scheduled_for: row.try_get::<Micros, _>("scheduled_for")?.0,
            is_manual: row.try_get("is_manual")?,
            state: JobRunState::read(&text("state")?),
            attempts: count("attempts")?,
            failures: count("failures")?,
            owner: row.try_get("owner")?,
            http_code: row.try_get::<Option<i64>, _>("http_code")?.and_then(|code| u16::try_from(code).ok()),
            last_error: optional_text::<DB>(row, "last_error")?,
            created_at: row.try_get::<Micros, _>("created_at")?.0,
            started_at: time("started_at")?,
            finished_at: time("finished_at")?,
        })
    }
}

/// The result of one attempt.
#[derive(Debug, Clone)]
pub struct JobRunResult {
    /// The new state. A pending run is tried again after `delay`.
    pub state: JobRunState,
    /// Whether the attempt counts as a failure.
    pub is_failure: bool,
    /// The time until the next attempt. None: the run has ended.
    pub delay: Option<Duration>,
    /// The status of the response.
    pub http_code: Option<u16>,
    /// The text of the error, without credentials.
    pub error: Option<String>,
}

/// A run that this process has begun. Owner and attempt are its fence: what another process has taken over
/// since, this one does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedJobRun {
    /// The id of the run.
    pub run_id: Uuid,
    /// The process.
    pub owner: Uuid,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// Inserts a run that begins at once, in the caller's transaction. None: the run is there already, so another
/// process was elected, or the run has ended.
///
/// # Errors
/// The database refused or is away.
pub async fn elect_job_run<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    job: &str,
    scheduled_for: Timestamp,
    owner: Uuid,
    lease: Duration,
) -> Result<Option<OwnedJobRun>, Error> {
    let run_id = job_run_id(job, scheduled_for);
    let elect = query::<DB>(&catalog.sql.jobs.elect)
        .bind(run_id)
        .bind(job.to_owned())
        .bind(Micros(scheduled_for))
        .bind(owner)
        .bind(micros(lease));
    Ok(inserted::<DB>(conn, elect).await?.then_some(OwnedJobRun { run_id, owner, attempt: 1 }))
}

/// Takes an open run whose time has come, in the caller's transaction. `attempts` are those that the caller
/// has read. None: another process was quicker.
///
/// # Errors
/// The database refused or is away.
pub async fn take_job_run<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    (run_id, attempts): (Uuid, u32),
    failures: u32,
    owner: Uuid,
    lease: Duration,
) -> Result<Option<OwnedJobRun>, Error> {
    let take = query::<DB>(&catalog.sql.jobs.take)
        .bind(owner)
        .bind(i64::from(failures))
        .bind(micros(lease))
        .bind(run_id)
        .bind(i64::from(attempts));
    let is_taken = DB::rows_affected(&take.execute(conn).await?) == 1;
    Ok(is_taken.then_some(OwnedJobRun { run_id, owner, attempt: attempts.saturating_add(1) }))
}

impl OwnedJobRun {
    /// Renews the lease. False: another process has taken the run over.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn renew<DB: Dialect>(&self, engine: &Engine<DB>, lease: Duration) -> Result<bool, Error> {
        let Self { run_id, owner, attempt } = *self;
        let renew = &engine.sql().jobs.renew;
        let bind = engine.execute(renew, |query| {
            query.bind(micros(lease)).bind(run_id).bind(owner).bind(i64::from(attempt))
        });
        Ok(bind.await? == 1)
    }

    /// Writes the result, and flushes it. False: another process has taken the run over.
    ///
    /// # Errors
    /// The database refused or is away. The result may be written.
    pub async fn finish<DB: Dialect>(
        &self,
        engine: &Engine<DB>,
        result: &JobRunResult,
    ) -> Result<bool, Error> {
        let Self { run_id, owner, attempt } = *self;
        let mut tx = engine.begin_short().await?;
        let state = result.state.as_str().to_owned();
        let finish = query::<DB>(&engine.sql().jobs.finish)
            .bind(state.clone())
            .bind(i64::from(result.is_failure))
            .bind(result.delay.map(micros))
            .bind(state)
            .bind(result.http_code.map(i64::from))
            .bind(result.error.as_deref().map(bounded))
            .bind(run_id)
            .bind(owner)
            .bind(i64::from(attempt));
        let is_written = DB::rows_affected(&finish.execute(&mut *tx).await?) == 1;
        tx.commit().await?;
        Ok(is_written)
    }
}
