//! Runs jobs when they are due.
mod attempt;
mod rows;

use super::{decision::may_be_due, handle::Wake, job::Job, metrics};
use attempt::Attempt;
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use twinbox_core::{Timestamp, backoff::Backoff, limits::bounded, retry, task_name::TaskName};
use twinbox_sql::{
    Dialect, Error, ErrorKind, Store,
    engine::{Engine, micros},
    outage::outlast,
};
use uuid::Uuid;

/// The most jobs of a runner.
pub const JOBS_MAX: usize = 1000;

/// How long a stopped runner takes to give back the attempts that it could not wait for.
const GIVE_BACK_MAX: Duration = Duration::from_secs(10);
/// The shortest lease.
const LEASE_MIN: Duration = Duration::from_secs(1);
/// The shortest pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// The shortest time between two purges.
const PURGE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The longest time between two purges.
const PURGE_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Purges in the time for which runs are kept.
const PURGES_PER_RETENTION: u32 = 8;
/// The longest time until the first purge, so that a process which does not run for long purges as well.
const FIRST_PURGE_MAX: Duration = Duration::from_secs(60);
/// Runs that one statement deletes.
const PURGE_BATCH: u32 = 1000;

/// Runs the jobs of a service when they are due.
///
/// Any number of processes may run the same jobs on one database. Each scheduled run begins in one of them.
/// A runner runs one attempt of a job at a time, so a job that hangs stops no other one.
pub struct JobRunner<DB: Dialect> {
    store: Store<DB>,
    jobs: Vec<Job>,
    poll: Duration,
    lease: Duration,
    concurrency: usize,
    keep: Duration,
    drain: Duration,
}

impl<DB: Dialect> JobRunner<DB> {
    /// Creates a runner without jobs.
    pub fn new(store: &Store<DB>) -> Self {
        Self {
            store: store.clone(),
            jobs: Vec::new(),
            poll: Duration::from_secs(1),
            lease: Duration::from_secs(30),
            concurrency: JOBS_MAX,
            keep: Duration::from_secs(30 * 24 * 3600),
            drain: Duration::from_secs(30),
        }
    }

    /// Adds a job.
    #[must_use]
    pub fn job(mut self, job: Job) -> Self {
        self.jobs.push(job);
        self
    }

    /// Sets how often to look for what other processes leave behind or ask for: 1 s by default. A scheduled
    /// time of this process is not late by that.
    #[must_use]
    pub fn poll(self, poll: Duration) -> Self {
        Self { poll: bounded(poll.max(LOOK_PAUSE)), ..self }
    }

    /// Sets after how long another process takes over the run of one that died: 30 s by default, at least
    /// 1 s. A process renews its lease after each third of this time.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: bounded(lease.max(LEASE_MIN)), ..self }
    }

    /// Sets how many attempts of different jobs run at a time in this process. With fewer than there are
    /// jobs, jobs that hang can stop others. Default: as many as there are jobs.
    #[must_use]
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency: concurrency.max(1), ..self }
    }

    /// Sets how long runs that ended are kept: 30 days by default.
    #[must_use]
    pub fn keep(self, keep: Duration) -> Self {
        Self { keep: bounded(keep), ..self }
    }

    /// Sets how long a stopped runner waits for the attempts under way: 30 s by default.
    #[must_use]
    pub fn drain(self, drain: Duration) -> Self {
        Self { drain: bounded(drain), ..self }
    }

    /// Runs jobs until `stop` is cancelled. Then it begins no further attempt, waits for those under way, and
    /// gives back those that take too long, for other processes.
    ///
    /// A job that is new to the database, or has another schedule, is due from now on. While the database is
    /// away, also when it starts, it waits and begins no run. Dropped half-way, or killed, it leaves runs
    /// that another process takes over.
    ///
    /// # Errors
    /// The tables do not fit this program; two jobs have one id; or a job has no target, or a retry policy
    /// without an end.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        self.check()?;
        metrics::describe();
        let engine = self.store.engine().clone();
        let jobs: Vec<_> = self.jobs.into_iter().map(Arc::new).collect();
        let begin = async || {
            self.store.check().await?;
            for job in &jobs {
                rows::register(&engine, job).await?;
            }
            Ok(())
        };
        if outlast(&self.store, &stop, begin).await?.is_none() {
            return Ok(());
        }
        let purging = purge_in_intervals(&engine, self.keep);
        let running = Running {
            ids: jobs.iter().map(|job| job.id.clone()).collect(),
            is_running: vec![false; jobs.len()],
            engine: engine.clone(),
            jobs,
            owner: Uuid::now_v7(),
            poll: self.poll,
            lease: self.lease,
            concurrency: self.concurrency,
            drain: self.drain,
            attempts: JoinSet::new(),
            abandon: CancellationToken::new(),
            look_at: Instant::now(),
            backoff: Backoff::new(),
            first: 0,
        };
        tokio::select! {
            () = running.run(stop) => Ok(()),
            () = purging => unreachable!("the purge has no end"),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::new(ErrorKind::Configuration, what));
        if self.jobs.len() > JOBS_MAX {
            return refuse(format!("a runner has at most {JOBS_MAX} jobs"));
        }
        let mut ids = BTreeSet::new();
        for job in &self.jobs {
            if !ids.insert(&job.id) {
                return refuse(format!("the job {:?} is there twice", job.id));
            }
            if job.target.is_none() {
                return refuse(format!("the job {:?} does nothing: add `.handler(…)` or `.http(…)`", job.id));
            }
            if job.retries.is_endless() {
                return refuse(format!(
                    "the job {:?} is tried without an end, so its next run would never begin: set \
                     `max_attempts` of its retry policy",
                    job.id
                ));
            }
        }
        Ok(())
    }
}

impl<DB: Dialect> fmt::Debug for JobRunner<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRunner").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

/// A runner that runs.
struct Running<DB: Dialect> {
    engine: Engine<DB>,
    jobs: Vec<Arc<Job>>,
    ids: Vec<String>,
    /// Whether a task of this process deals with a job.
    is_running: Vec<bool>,
    owner: Uuid,
    poll: Duration,
    lease: Duration,
    concurrency: usize,
    drain: Duration,
    attempts: JoinSet<(usize, Result<(), Error>)>,
    /// Cancelled when the attempts under way are given back.
    abandon: CancellationToken,
    look_at: Instant,
    backoff: Backoff,
    /// The job that is looked at first, so that each one gets a turn.
    first: usize,
}

impl<DB: Dialect> Running<DB> {
    async fn run(mut self, stop: CancellationToken) {
        let wake = self.engine.state::<Wake>();
        while !stop.is_cancelled() {
            tokio::select! {
                Some(ended) = self.attempts.join_next() => self.ended(ended.ok()),
                () = sleep_until(self.look_at) => self.look().await,
                () = wake.0.notified() => self.look_at = Instant::now(),
                () = stop.cancelled() => {}
            }
        }
        let drained_by = Instant::now() + self.drain;
        loop {
            tokio::select! {
                ended = self.attempts.join_next() => if ended.is_none() { return },
                () = sleep_until(drained_by), if !self.abandon.is_cancelled() => self.abandon.cancel(),
                () = sleep_until(drained_by + GIVE_BACK_MAX) => return,
            }
        }
    }

    /// Asks the database which jobs have something to do, and starts them.
    async fn look(&mut self) {
        self.look_at = Instant::now() + self.poll;
        let looks = match rows::look(&self.engine, &self.ids).await {
            Ok(looks) => looks,
            Err(error) => return self.failed(&error),
        };
        self.backoff.reset();
        self.first = (self.first + 1) % self.jobs.len().max(1);
        for n in 0..self.jobs.len() {
            let at = (self.first + n) % self.jobs.len();
            let job = &self.jobs[at];
            let Some(look) = looks.iter().find(|look| look.id == job.id) else { continue };
            if may_be_due(job, look.now, look.decided_until) || look.is_open_run_due {
                self.start(at);
            } else if let Some(next) = job.schedule.next(look.decided_until) {
                self.look_at = self.look_at.min(Instant::now() + until(look.now, next).max(LOOK_PAUSE));
            }
        }
    }

    fn start(&mut self, at: usize) {
        if self.is_running[at] || self.attempts.len() >= self.concurrency {
            return;
        }
        self.is_running[at] = true;
        let attempt = Attempt {
            engine: self.engine.clone(),
            job: self.jobs[at].clone(),
            owner: self.owner,
            lease: self.lease,
            abandon: self.abandon.clone(),
        };
        self.attempts.spawn(TaskName::JobAttempt.of(async move { (at, attempt.make().await) }));
    }

    fn ended(&mut self, ended: Option<(usize, Result<(), Error>)>) {
        // An attempt catches the panics of its target, and nothing aborts it.
        let Some((at, result)) = ended else { return };
        self.is_running[at] = false;
        match result {
            Ok(()) => self.look_at = Instant::now() + LOOK_PAUSE,
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &Error) {
        let pause = self.backoff.pause();
        let cause = error as &dyn std::error::Error;
        tracing::warn!(error = cause, ?pause, "the database of the jobs failed");
        self.look_at = Instant::now() + pause;
    }
}

fn until(now: Timestamp, next: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(next.as_micros().saturating_sub(now.as_micros())).unwrap_or_default())
}

/// Deletes old runs in intervals. Never returns.
async fn purge_in_intervals<DB: Dialect>(engine: &Engine<DB>, keep: Duration) {
    let interval = (keep / PURGES_PER_RETENTION).clamp(PURGE_INTERVAL_MIN, PURGE_INTERVAL_MAX);
    let mut pause = interval.min(FIRST_PURGE_MAX);
    loop {
        // Spread over time, because processes often start together.
        tokio::time::sleep(pause.mul_f64(0.5 + retry::random() / 2.0)).await;
        pause = interval;
        if let Err(error) = purge(engine, keep).await {
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(error = cause, "old runs of jobs could not be deleted");
        }
    }
}

async fn purge<DB: Dialect>(engine: &Engine<DB>, keep: Duration) -> Result<(), Error> {
    loop {
        let purge = &engine.sql().jobs.purge;
        let deleted = engine.execute(purge, |query| query.bind(micros(keep)).bind(i64::from(PURGE_BATCH)));
        if deleted.await? < u64::from(PURGE_BATCH) {
            return Ok(());
        }
    }
}
