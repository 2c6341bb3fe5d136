//! Jobs and their runs, for operators.
use super::run::RunRecord;
use sqlx::Row as _;
use std::fmt;
use tokio::sync::Notify;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error, ErrorKind, Store,
    engine::{Engine, JobRunRow, Micros, optional_text},
};
use uuid::Uuid;

/// The most open runs of a job with which another manual run is taken.
pub const OPEN_RUNS_MAX: u32 = 100;

/// Wakes the runners of this process.
#[derive(Debug, Default)]
pub(super) struct Wake(pub(super) Notify);

/// A job as its processes have registered it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRecord {
    /// The id.
    pub id: String,
    /// The schedule, as the last process that started wrote it.
    pub schedule: String,
    /// The IANA name of its time zone.
    pub time_zone: String,
    /// Scheduled runs up to this time have begun, or were left out.
    pub decided_until: Timestamp,
}

/// Reads the jobs of a service and their runs, and asks for runs. Cheap to clone; needs no running
/// [`JobRunner`](super::JobRunner).
pub struct Jobs<DB: Dialect> {
    engine: Engine<DB>,
}

impl<DB: Dialect> Jobs<DB> {
    /// Returns a handle to the jobs of a store.
    pub fn new(store: &Store<DB>) -> Self {
        Self { engine: store.engine().clone() }
    }

    /// Asks for a run of a job now, beside its schedule. A process that runs the job takes it, after the
    /// runs of the job that are open. Returns the run id: a new UUIDv7, so each call is a run of its own.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: no process has registered the job. [`ErrorKind::Conflict`]: it has
    /// [`OPEN_RUNS_MAX`] open runs. The database refused or is away.
    pub async fn run_now(&self, job: &str) -> Result<Uuid, Error> {
        let (run_id, limit) = (Uuid::now_v7(), i64::from(OPEN_RUNS_MAX));
        let inserted = self.engine.execute(&self.engine.sql().jobs.request, |query| {
            query.bind(run_id).bind(job.to_owned()).bind(job.to_owned()).bind(limit).bind(limit)
        });
        if inserted.await? == 1 {
            self.engine.state::<Wake>().0.notify_waiters();
            return Ok(run_id);
        }
        let find = &self.engine.sql().jobs.find_job;
        let found = self.engine.fetch_optional(find, |query| query.bind(job.to_owned())).await?;
        Err(match found {
            None => Error::new(ErrorKind::NotFound, format!("no process has registered the job {job:?}")),
            Some(_) => Error::new(
                ErrorKind::Conflict,
                format!("the job {job:?} has {OPEN_RUNS_MAX} open runs: see whether a process runs it"),
            ),
        })
    }

    /// Returns the runs of a job, the latest scheduled one first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn runs(&self, job: &str, limit: u32) -> Result<Vec<RunRecord>, Error> {
        let runs = &self.engine.sql().jobs.runs;
        let bind = self.engine.fetch_all(runs, |query| query.bind(job.to_owned()).bind(i64::from(limit)));
        bind.await?.iter().map(|row| Ok(JobRunRow::read::<DB>(row)?.into())).collect()
    }

    /// Returns a run.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn run(&self, run_id: Uuid) -> Result<Option<RunRecord>, Error> {
        let find = &self.engine.sql().jobs.find;
        let row = self.engine.fetch_optional(find, |query| query.bind(run_id)).await?;
        row.map(|row| Ok(JobRunRow::read::<DB>(&row)?.into())).transpose()
    }

    /// Returns the jobs that processes have registered, by id.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn list(&self, limit: u32) -> Result<Vec<JobRecord>, Error> {
        let list = &self.engine.sql().jobs.list;
        let rows = self.engine.fetch_all(list, |query| query.bind(i64::from(limit))).await?;
        let text = |row: &DB::Row, name| Ok::<_, Error>(optional_text::<DB>(row, name)?.unwrap_or_default());
        let read = |row: &DB::Row| {
            Ok(JobRecord {
                id: text(row, "id")?,
                schedule: text(row, "schedule")?,
                time_zone: text(row, "time_zone")?,
                decided_until: row.try_get::<Micros, _>("decided_until")?.0,
            })
        };
        rows.iter().map(read).collect()
    }
}

impl<DB: Dialect> Clone for Jobs<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for Jobs<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("service", &self.engine.service()).finish_non_exhaustive()
    }
}
