//! Scheduled jobs: a handler in the process, or a request to a service, once for each time of a schedule.
//!
//! Any number of processes may run the same jobs on one database. The insert of a row elects the process of a
//! run. The clock of the database decides what is due, so the clocks of the processes do not matter.
//!
//! ```no_run
//! use tokio_util::sync::CancellationToken;
//! use twinbox_effects::jobs::{Job, JobRun, JobRunner};
//! use twinbox_sql::{Dialect, Error, Store};
//!
//! async fn run_jobs<DB: Dialect>(store: &Store<DB>, stop: CancellationToken) -> Result<(), Error> {
//!     let report = Job::new("daily-report", "30 2 * * *")?.time_zone("Europe/Berlin")?.handler(
//!         async |run: JobRun| {
//!             println!("the report of {}", run.scheduled_for);
//!             Ok(())
//!         },
//!     );
//!     JobRunner::new(store).job(report).run(stop).await
//! }
//! ```
//!
//! # Delivery guarantees
//! Each time of a schedule has one run, with an id that all processes derive from the job and the time. A run
//! whose process dies is taken over by another one when its lease ends, under the same id: so a run may begin
//! more than once, and its id is the idempotency key of what it does. A run that is done never begins again.
//! Runs of one job do not overlap, as long as a process that lost its lease stops.
//!
//! # Metrics
//!
//! | Metric | Counts |
//! |---|---|
//! | `twinbox_jobs_attempts_total` | Attempts of a job, by `job_id` and `outcome`: done, retried, failed. |
//! | `twinbox_jobs_attempt_seconds` | Histogram: how long an attempt takes. |
//! | `twinbox_jobs_missed_total` | Scheduled runs that were left out, as the policy says. |

mod aws;
mod decision;
mod handle;
mod http_target;
mod job;
mod metrics;
mod run;
mod runner;
mod schedule;
mod target;
mod zone;

pub use handle::{JobRecord, Jobs, OPEN_RUNS_MAX};
pub use http_target::HttpTarget;
pub use job::{CATCH_UP_MAX, Job, MISFIRE_GRACE, Misfire};
pub use run::{JobRun, RunRecord, RunState, run_id};
pub use runner::{JOBS_MAX, JobRunner};
