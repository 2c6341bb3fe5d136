//! One attempt of a run.
use super::{
    super::{
        job::Job,
        metrics,
        run::JobRun,
        target::{AttemptResult, Outcome},
    },
    rows::{self, Begun},
};
use futures::FutureExt as _;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use twinbox_core::{backoff::Backoff, crash, retry};
use twinbox_sql::{
    Dialect, Error,
    engine::{Engine, JobRunResult, JobRunState, OwnedJobRun},
};
use uuid::Uuid;

/// The number of renewals in the time of one lease.
const RENEWALS: u32 = 3;

/// An attempt that is to be made.
pub(super) struct Attempt<DB: Dialect> {
    pub(super) engine: Engine<DB>,
    pub(super) job: Arc<Job>,
    pub(super) owner: Uuid,
    pub(super) lease: Duration,
    pub(super) abandon: CancellationToken,
}

/// How the wait for a target ended.
enum Ended {
    Result(AttemptResult),
    /// Another process may run it now.
    LeaseLost,
    Abandoned,
}

impl<DB: Dialect> Attempt<DB> {
    /// Begins the next run of the job, if one is due, makes an attempt, and writes its result.
    ///
    /// # Errors
    /// The database refused or is away. What is begun is taken over when its lease ends.
    pub(super) async fn make(self) -> Result<(), Error> {
        let Self { engine, job, owner, lease, abandon } = &self;
        let leased_at = Instant::now();
        let Some(begun) = rows::begin(engine, job, *owner, *lease).await? else { return Ok(()) };
        crash::point("jobs.begun");
        let Begun { owned, scheduled_for, is_manual, failures } = begun;
        let run = JobRun {
            job: job.id.clone(),
            run_id: owned.run_id,
            scheduled_for,
            attempt: owned.attempt,
            is_manual,
        };
        let mut lease = Lease { engine, owned, lease: *lease, until: leased_at + *lease };
        let started = Instant::now();
        let ended = tokio::select! {
            result = call(job, run) => Ended::Result(result),
            () = lease.keep() => Ended::LeaseLost,
            () = abandon.cancelled() => Ended::Abandoned,
        };
        crash::point("jobs.ended");
        let result = match ended {
            Ended::Result(result) => {
                let took = started.elapsed();
                let result = self.result(owned, failures, result);
                metrics::attempted(&job.id, result.state, took);
                result
            }
            Ended::LeaseLost => {
                tracing::warn!(job = job.id, run = %owned.run_id, "a run was dropped: its lease was lost");
                return Ok(());
            }
            Ended::Abandoned => {
                let delay = Some(Duration::ZERO);
                let error = Some("the process was stopped".to_owned());
                let state = JobRunState::Pending;
                JobRunResult { state, is_failure: false, delay, http_code: None, error }
            }
        };
        lease.finish(&result).await
    }

    /// Returns the row of an attempt's result.
    fn result(&self, owned: OwnedJobRun, failures: u32, result: AttemptResult) -> JobRunResult {
        let AttemptResult { outcome, http_code, error } = result;
        let job = &self.job;
        let text = error.as_deref().unwrap_or_default();
        let next = match outcome {
            Outcome::Done => {
                let state = JobRunState::Done;
                return JobRunResult { state, is_failure: false, delay: None, http_code, error };
            }
            Outcome::Failed => None,
            Outcome::Retry(not_before) => {
                let next = job.retries.next(failures.saturating_add(1), retry::random());
                next.map(|delay| delay.max(not_before))
            }
        };
        let state = match next {
            Some(delay) => {
                tracing::warn!(job = job.id, run = %owned.run_id, error = text, ?delay, "an attempt failed");
                JobRunState::Pending
            }
            None => {
                tracing::error!(job = job.id, run = %owned.run_id, error = text, "a run has failed");
                JobRunState::Failed
            }
        };
        JobRunResult { state, is_failure: true, delay: next, http_code, error }
    }
}

/// Calls the target in time. A panic is a failed attempt like another.
async fn call(job: &Job, run: JobRun) -> AttemptResult {
    let Some(target) = &job.target else { return AttemptResult::failed("the job has no target") };
    let called = AssertUnwindSafe(async { target(run).await }).catch_unwind();
    match timeout(job.timeout, called).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => AttemptResult::retry(None, "the handler panicked"),
        Err(_) => AttemptResult::retry(None, format!("no result within {:?}", job.timeout)),
    }
}

/// The lease on a run.
struct Lease<'a, DB: Dialect> {
    engine: &'a Engine<DB>,
    owned: OwnedJobRun,
    lease: Duration,
    /// Until when the database surely lets no other process take the run.
    until: Instant,
}

impl<DB: Dialect> Lease<'_, DB> {
    /// Renews the lease. Returns when it is lost, or could not be renewed in time.
    async fn keep(&mut self) {
        loop {
            sleep(self.lease / RENEWALS).await;
            let asked_at = Instant::now();
            let renewed =
                tokio::time::timeout_at(self.until, self.owned.renew(self.engine, self.lease)).await;
            match renewed {
                Ok(Ok(true)) => self.until = asked_at + self.lease,
                Ok(Ok(false)) => return,
                _ if Instant::now() >= self.until => return,
                _ => {}
            }
        }
    }

    /// Writes the result. Tries until the lease has ended.
    async fn finish(self, result: &JobRunResult) -> Result<(), Error> {
        let mut backoff = Backoff::new();
        loop {
            match self.owned.finish(self.engine, result).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    tracing::warn!(run = %self.owned.run_id, "a result came too late: another owner has it");
                    return Ok(());
                }
                Err(error) => {
                    let pause = backoff.pause();
                    if Instant::now() + pause >= self.until {
                        return Err(error);
                    }
                    sleep(pause).await;
                }
            }
        }
    }
}
