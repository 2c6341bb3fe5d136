//! The names and descriptions of the metrics of jobs.
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};
use std::time::Duration;
use twinbox_sql::engine::JobRunState;

const ATTEMPTS: &str = "twinbox_jobs_attempts_total";
const ATTEMPT_TIME: &str = "twinbox_jobs_attempt_seconds";
const MISSED: &str = "twinbox_jobs_missed_total";
/// Not `job`: Prometheus has a label of that name for the process that it reads.
const JOB: &str = "job_id";

pub(super) fn describe() {
    describe_counter!(ATTEMPTS, Unit::Count, "Attempts of a job, by outcome");
    describe_histogram!(ATTEMPT_TIME, Unit::Seconds, "How long an attempt takes");
    describe_counter!(MISSED, Unit::Count, "Scheduled runs that were left out");
}

/// Counts an attempt by the state in which it leaves its run.
pub(super) fn attempted(job: &str, state: JobRunState, took: Duration) {
    let outcome = match state {
        JobRunState::Done => "done",
        JobRunState::Pending => "retried",
        _ => "failed",
    };
    counter!(ATTEMPTS, JOB => job.to_owned(), "outcome" => outcome).increment(1);
    histogram!(ATTEMPT_TIME, JOB => job.to_owned()).record(took.as_secs_f64());
}

pub(super) fn missed(job: &str, runs: u64) {
    counter!(MISSED, JOB => job.to_owned()).increment(runs);
}
