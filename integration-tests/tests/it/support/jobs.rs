//! Runners of jobs beside a test, and times that are moved.
use super::{
    database::SERVICE,
    stores::{TestDb, World},
    wait::{eventually, in_time},
};
use sqlx::AssertSqlSafe;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;
use twinbox::{
    CancellationToken, Dialect, Store, Timestamp,
    effects::jobs::{Job, JobRun, JobRunner, Jobs, RunRecord, RunState},
};

pub(crate) fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

/// The attempts that handlers have seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<JobRun>>>);

impl Seen {
    pub(crate) fn add(&self, run: JobRun) {
        self.0.lock().unwrap().push(run);
    }

    pub(crate) fn all(&self) -> Vec<JobRun> {
        self.0.lock().unwrap().clone()
    }

    /// Makes the job note its attempts, and succeed.
    pub(crate) fn by(&self, job: Job) -> Job {
        let seen = self.clone();
        job.handler(move |run| {
            let seen = seen.clone();
            async move {
                seen.add(run);
                Ok(())
            }
        })
    }
}

/// A runner beside a test.
pub(crate) struct RunningJobs {
    stop: CancellationToken,
    running: JoinHandle<Result<(), twinbox::Error>>,
}

impl RunningJobs {
    pub(crate) fn start<DB: Dialect>(runner: JobRunner<DB>) -> Self {
        let stop = CancellationToken::new();
        let running = tokio::spawn(runner.poll(Duration::from_millis(10)).run(stop.clone()));
        Self { stop, running }
    }

    /// Runs one job in a process of its own, as far as the database can tell.
    pub(crate) async fn of<DB: TestDb>(world: &World<DB>, job: Job) -> Self {
        let store = Store::new(world.twin(3).await, SERVICE).unwrap();
        Self::start(JobRunner::new(&store).job(job))
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        in_time(self.running).await.unwrap().unwrap();
    }

    /// Ends the process without a word.
    pub(crate) async fn kill(self) {
        self.running.abort();
        assert!(in_time(self.running).await.unwrap_err().is_cancelled());
    }
}

/// Runs SQL, in its turn to write.
pub(crate) async fn execute<DB: TestDb>(world: &World<DB>, sql: String) {
    let mut tx = world.owner().begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// Says that the scheduled runs of a job were decided up to a time, as if nothing had run since.
pub(crate) async fn decided_until<DB: TestDb>(world: &World<DB>, job: &str, until: Timestamp) {
    let (table, until) = (DB::table_of("jobs"), DB::time(until));
    execute(world, format!("UPDATE {table} SET decided_until = {until} WHERE id = '{job}'")).await;
}

/// Registers a job whose schedule begins at a time in the past.
pub(crate) async fn registered<DB: TestDb>(world: &World<DB>, job: [&str; 3], until: Timestamp) {
    let ([id, schedule, zone], table) = (job, DB::table_of("jobs"));
    let until = DB::time(until);
    let insert = format!(
        "INSERT INTO {table} (id, schedule, time_zone, decided_until)
        VALUES ('{id}', '{schedule}', '{zone}', {until})"
    );
    execute(world, insert).await;
}

/// Ends the leases of all runs, as if their time had passed.
pub(crate) async fn end_leases<DB: TestDb>(world: &World<DB>) {
    let (table, past) = (DB::table_of("job_runs"), DB::time(at("2026-01-01T00:00:00Z")));
    let end = format!("UPDATE {table} SET next_attempt_at = {past} WHERE next_attempt_at IS NOT NULL");
    execute(world, end).await;
}

/// Waits until the job has `count` runs and all of them have ended. Returns them, the earliest first.
pub(crate) async fn ended<DB: Dialect>(store: &Store<DB>, job: &str, count: usize) -> Vec<RunRecord> {
    eventually(async || {
        let mut runs = Jobs::new(store).runs(job, 100).await.unwrap();
        runs.reverse();
        let all = runs.iter().all(|run| matches!(run.state, RunState::Done | RunState::Failed));
        (all && runs.len() >= count).then_some(runs)
    })
    .await
}
