//! A job: when it runs, what it does, and what happens when a run fails or is missed.
use super::{
    http_target::{HttpTarget, http_target},
    run::JobRun,
    schedule::Schedule,
    target::{Target, handler_target},
    zone::Zone,
};
use crate::vendor::{Response, SendError};
use bytes::Bytes;
use http::Request;
use std::{fmt, time::Duration};
use tower::Service;
use twinbox_core::{RetryPolicy, Timestamp, limits};
use twinbox_sql::{Error, ErrorKind, HandlerResult};

/// The most missed runs that [`Misfire::CatchUp`] makes up for.
pub const CATCH_UP_MAX: u32 = 100;
/// How late a run may begin without being missed.
pub const MISFIRE_GRACE: Duration = Duration::from_secs(60);

/// The policy for runs that were missed: no process was there, or an earlier run of the job took so long,
/// for more than [`MISFIRE_GRACE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Misfire {
    /// They are left out.
    Skip,
    /// The last of them runs, unless the next run is due by then.
    #[default]
    RunOnce,
    /// The last ones run, so many at most and [`CATCH_UP_MAX`], one after another in the order of their
    /// times.
    CatchUp(u32),
}

/// A job that runs by a schedule: a handler in the process, or a request to a service.
///
/// ```
/// use twinbox_effects::jobs::{Job, JobRun, Misfire};
///
/// # fn main() -> Result<(), twinbox_sql::Error> {
/// let job = Job::new("release-commission-locks", "cron(0 * * * ? *)")?
///     .time_zone("Europe/Berlin")?
///     .misfire(Misfire::Skip)
///     .handler(async |run: JobRun| {
///         println!("run {} for {}", run.run_id, run.scheduled_for);
///         Ok(())
///     });
/// # Ok(())
/// # }
/// ```
pub struct Job {
    pub(super) id: String,
    pub(super) schedule: Schedule,
    pub(super) misfire: Misfire,
    pub(super) retries: RetryPolicy,
    pub(super) timeout: Duration,
    pub(super) target: Option<Target>,
}

impl Job {
    /// Creates a job, in UTC and without a target.
    ///
    /// The schedule has five fields, `minute hour day-of-month month day-of-week`, as in cron; or six, with
    /// the second before them; or seven, with the year behind them. Or it is one of Amazon EventBridge:
    /// `cron(minutes hours day-of-month month day-of-week year)` or `rate(5 minutes)`. A rate is due at each
    /// multiple of its duration since 1970, so that all processes agree.
    ///
    /// The id names the job in the database, and its run ids are derived from it: keep it.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the id or the schedule cannot be used, and what to change.
    pub fn new(id: impl Into<String>, schedule: &str) -> Result<Self, Error> {
        let id = id.into();
        if id.is_empty() || id.len() > limits::NAME_BYTES_MAX || id.chars().any(char::is_control) {
            let what = format!("the id of the job {id:?} must have 1 to 120 bytes and no control character");
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        let parsed = Schedule::parse(schedule).map_err(|error| {
            let what = format!("the schedule {schedule:?} of the job {id:?} cannot be used: {error}");
            Error::new(ErrorKind::Configuration, what)
        })?;
        Ok(Self {
            id,
            schedule: parsed,
            misfire: Misfire::default(),
            retries: RetryPolicy::vendor(),
            timeout: Duration::from_secs(300),
            target: None,
        })
    }

    /// Sets the time zone of the schedule by its IANA name, such as `Europe/Berlin`. The rules of the zone
    /// come with this program, so that all processes of one build agree.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: there is no such zone.
    pub fn time_zone(mut self, name: &str) -> Result<Self, Error> {
        let Some(zone) = Zone::named(name) else {
            let what = format!(
                "the time zone {name:?} of the job {:?} does not exist: write an IANA name such as \
                 Europe/Berlin",
                self.id
            );
            return Err(Error::new(ErrorKind::Configuration, what));
        };
        self.schedule.zone = zone;
        Ok(self)
    }

    /// Sets what happens to missed runs: [`Misfire::RunOnce`] by default.
    #[must_use]
    pub fn misfire(self, misfire: Misfire) -> Self {
        Self { misfire, ..self }
    }

    /// Sets the delays between the attempts of a run, and when it is given up:
    /// [`RetryPolicy::vendor`] by default. It must end.
    #[must_use]
    pub fn retries(self, retries: RetryPolicy) -> Self {
        Self { retries, ..self }
    }

    /// Sets how long an attempt may take: 5 minutes by default. A longer one is dropped, and counts as
    /// failed.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: limits::bounded(timeout), ..self }
    }

    /// Runs a function in this process.
    ///
    /// An error means another attempt with the same run id, and
    /// [`HandlerError::reject`](twinbox_sql::HandlerError::reject) gives the run up. A run may begin again
    /// after its process died: take [`JobRun::run_id`] as the key of what must happen once.
    #[must_use]
    pub fn handler<F, R>(self, handler: F) -> Self
    where
        F: Fn(JobRun) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        Self { target: Some(handler_target(handler)), ..self }
    }

    /// Sends a request to a service.
    #[must_use]
    pub fn http<S>(self, target: HttpTarget<S>) -> Self
    where
        S: Service<Request<Bytes>, Response = Response, Error = SendError> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        Self { target: Some(http_target(target)), ..self }
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the first time after `after` for which the job is scheduled. None: there is none.
    ///
    /// Where the clock of the time zone is put forward, a fixed time in the gap is due at its end. Where it
    /// is put back, a fixed time is due once. A schedule with `*` or `/` in its hours or minutes is an
    /// interval: it goes on by elapsed time, without the hours that are missing, and with those that come
    /// twice.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after)
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id)
            .field("schedule", &self.schedule.text)
            .field("time_zone", &self.schedule.zone.name)
            .finish_non_exhaustive()
    }
}
