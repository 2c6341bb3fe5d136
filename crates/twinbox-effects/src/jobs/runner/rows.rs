//! Rows of jobs and runs, as a runner reads and writes them.
use super::super::{
    decision::{self, JobState, OpenRun, Step},
    job::Job,
    metrics,
};
use serde_json::json;
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::{Timestamp, crash};
use twinbox_sql::{
    Dialect, Error,
    engine::{
        Catalog, Engine, JobRunRow, JobRunState, Micros, OwnedJobRun, TextColumns, elect_job_run, query,
        take_job_run,
    },
};
use uuid::Uuid;

/// The most open runs of a job that a decision reads.
const OPEN_MAX: i64 = 200;
/// The error of a run whose processes ended without a result.
const DIED: &str = "the process of each attempt ended without a result";

/// The state of a job in the database.
pub(super) struct Look {
    pub(super) id: String,
    pub(super) now: Timestamp,
    pub(super) decided_until: Timestamp,
    pub(super) is_open_run_due: bool,
}

/// Writes a job, if it is new or has changed.
pub(super) async fn register<DB: Dialect>(engine: &Engine<DB>, job: &Job) -> Result<(), Error> {
    let register = engine.execute(&engine.sql().jobs.register, |query| {
        query.bind(job.id.clone()).bind(job.schedule.text.clone()).bind(job.schedule.zone.name.clone())
    });
    register.await.map(|_| ())
}

/// Asks about jobs, in one statement.
pub(super) async fn look<DB: Dialect>(engine: &Engine<DB>, ids: &[String]) -> Result<Vec<Look>, Error> {
    let ids = json!(ids).to_string();
    let rows = engine.fetch_all(&engine.sql().jobs.look, |query| query.bind(ids)).await?;
    let read = |row: &DB::Row| {
        Ok(Look {
            id: row.text("id")?,
            now: row.try_get::<Micros, _>("now")?.0,
            decided_until: row.try_get::<Micros, _>("decided_until")?.0,
            is_open_run_due: row.try_get::<Option<i64>, _>("due_in")?.is_some_and(|due_in| due_in <= 0),
        })
    };
    rows.iter().map(read).collect()
}

/// A run that this process has begun.
pub(super) struct Begun {
    pub(super) owned: OwnedJobRun,
    pub(super) scheduled_for: Timestamp,
    pub(super) is_manual: bool,
    pub(super) failures: u32,
}

/// Begins the next run of a job, if one is due: decides in a transaction that holds the row of the job.
pub(super) async fn begin<DB: Dialect>(
    engine: &Engine<DB>,
    job: &Job,
    owner: Uuid,
    lease: Duration,
) -> Result<Option<Begun>, Error> {
    let catalog = engine.catalog();
    let mut tx = engine.begin_short().await?;
    let Some(state) = lock::<DB>(&mut tx, catalog, job).await? else {
        tx.rollback().await?;
        return Ok(None);
    };
    let decision = decision::decide(job, &state);
    let begun = match decision.step {
        Step::Wait => None,
        Step::Elect(scheduled_for) => {
            let owned = elect_job_run::<DB>(&mut tx, catalog, &job.id, scheduled_for, owner, lease).await?;
            owned.map(|owned| Begun { owned, scheduled_for, is_manual: false, failures: 0 })
        }
        Step::Take { run, failures } => {
            let read = (run.run_id, run.attempts);
            let owned = take_job_run::<DB>(&mut tx, catalog, read, failures, owner, lease).await?;
            let OpenRun { scheduled_for, is_manual, .. } = run;
            let failures = run.failures.saturating_add(failures);
            owned.map(|owned| Begun { owned, scheduled_for, is_manual, failures })
        }
        Step::GiveUp(run) => {
            let give_up = query::<DB>(&catalog.sql.jobs.give_up).bind(DIED.to_owned());
            let give_up = give_up.bind(run.run_id).bind(i64::from(run.attempts));
            if DB::rows_affected(&give_up.execute(&mut *tx).await?) == 1 {
                tracing::error!(job = job.id, run = %run.run_id, "a run was given up: {DIED}");
            }
            None
        }
    };
    if let Some(until) = decision.decided_until {
        let decide = query::<DB>(&catalog.sql.jobs.decide).bind(Micros(until)).bind(job.id.clone());
        decide.bind(Micros(until)).execute(&mut *tx).await?;
    }
    crash::point("jobs.before_commit");
    tx.commit().await?;
    if decision.missed > 0 {
        metrics::missed(&job.id, decision.missed);
        tracing::warn!(job = job.id, missed = decision.missed, "scheduled runs were missed and left out");
    }
    Ok(begun)
}

async fn lock<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    job: &Job,
) -> Result<Option<JobState>, Error> {
    let lock = query::<DB>(&catalog.sql.jobs.lock).bind(job.id.clone());
    let Some(row) = lock.fetch_optional(&mut *conn).await? else { return Ok(None) };
    let open = query::<DB>(&catalog.sql.jobs.open).bind(job.id.clone()).bind(OPEN_MAX);
    let read = |row: &DB::Row| {
        let run = JobRunRow::read::<DB>(row)?;
        Ok::<_, Error>(OpenRun {
            run_id: run.run_id,
            scheduled_for: run.scheduled_for,
            is_manual: run.is_manual,
            is_running: run.state == JobRunState::Running,
            attempts: run.attempts,
            failures: run.failures,
            is_due: row.try_get::<i64, _>("due_in")? <= 0,
        })
    };
    Ok(Some(JobState {
        now: row.try_get::<Micros, _>("now")?.0,
        decided_until: row.try_get::<Micros, _>("decided_until")?.0,
        open: open.fetch_all(conn).await?.iter().map(read).collect::<Result<_, _>>()?,
    }))
}
