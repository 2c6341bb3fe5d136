//! Decides about a job now: a pure function of the rows and the time of the database.
use super::job::{CATCH_UP_MAX, Job, MISFIRE_GRACE, Misfire};
use std::time::Duration;
use twinbox_core::{RetryPolicy, Timestamp};
use uuid::Uuid;

/// The most missed runs that are counted.
const MISSED_MAX: u64 = 1000;
/// The resolution of schedules.
const SECOND: i64 = 1_000_000;

/// A run that has not ended.
#[derive(Debug, Clone)]
pub(super) struct OpenRun {
    pub(super) run_id: Uuid,
    pub(super) scheduled_for: Timestamp,
    pub(super) is_manual: bool,
    /// Whether a process has begun it: without a result when its lease has ended.
    pub(super) is_running: bool,
    pub(super) attempts: u32,
    pub(super) failures: u32,
    /// Whether a process may take it.
    pub(super) is_due: bool,
}

/// A job as its locked rows say.
#[derive(Debug, Clone)]
pub(super) struct JobState {
    pub(super) now: Timestamp,
    pub(super) decided_until: Timestamp,
    /// Scheduled runs first, each kind by its time.
    pub(super) open: Vec<OpenRun>,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Nothing is due, or a run is under way.
    Wait,
    /// Take an open run, and count this many failures of processes that died.
    Take { run: OpenRun, failures: u32 },
    /// End a run whose processes died too often.
    GiveUp(OpenRun),
    /// Begin the run that is scheduled for a time.
    Elect(Timestamp),
}

/// The next step of a job, and up to when the schedule is decided by that.
#[derive(Debug, Clone)]
pub(super) struct Decision {
    pub(super) step: Step,
    pub(super) decided_until: Option<Timestamp>,
    /// Scheduled runs that are left out, counted up to a bound.
    pub(super) missed: u64,
}

impl Decision {
    fn of(step: Step) -> Self {
        Self { step, decided_until: None, missed: 0 }
    }
}

/// Whether a process has something to do about a job, by what it reads without a lock.
pub(super) fn may_be_due(job: &Job, now: Timestamp, decided_until: Timestamp) -> bool {
    job.schedule.next(decided_until).is_some_and(|next| next <= now)
}

pub(super) fn decide(job: &Job, state: &JobState) -> Decision {
    if state.open.iter().any(|run| run.is_running && !run.is_due) {
        return Decision::of(Step::Wait);
    }
    if let Some(run) = state.open.iter().find(|run| run.is_due) {
        return Decision::of(take(run, &job.retries));
    }
    if state.open.iter().any(|run| !run.is_manual) {
        // It waits for its next attempt.
        return Decision::of(Step::Wait);
    }
    elect(job, state)
}

fn take(run: &OpenRun, retries: &RetryPolicy) -> Step {
    let failures = u32::from(run.is_running);
    if failures > 0 && retries.next(run.failures.saturating_add(failures), 0.0).is_none() {
        return Step::GiveUp(run.clone());
    }
    Step::Take { run: run.clone(), failures }
}

/// Chooses the next scheduled run, and leaves out those that were missed, as the policy says.
fn elect(job: &Job, state: &JobState) -> Decision {
    let JobState { now, decided_until, .. } = *state;
    // Runs up to this time are missed.
    let missed_until = before(now, MISFIRE_GRACE).max(decided_until);
    let on_time = job.schedule.next(missed_until).filter(|next| *next <= now);
    let last_missed = last(job, decided_until, missed_until);
    let chosen = match job.misfire {
        Misfire::Skip => on_time,
        Misfire::RunOnce => on_time.or(last_missed),
        Misfire::CatchUp(count) => {
            let mut first = None;
            let mut until = missed_until;
            for _ in 0..count.min(CATCH_UP_MAX) {
                let Some(earlier) = last(job, decided_until, until) else { break };
                (first, until) = (Some(earlier), before(earlier, Duration::from_micros(1)));
            }
            first.or(on_time)
        }
    };
    let end = chosen.or(last_missed);
    let missed = end.map_or(0, |end| count(job, decided_until, end) - u64::from(chosen.is_some()));
    Decision { step: chosen.map_or(Step::Wait, Step::Elect), decided_until: end, missed }
}

/// Returns the last scheduled time after `after`, up to and with `until`.
///
/// The next time after a moment is within the bound for all moments before the last time, and for none from
/// it on: so a bisection finds it, however many times lie between.
fn last(job: &Job, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
    let next = |moment: i64| {
        let next = job.schedule.next(Timestamp::from_micros(moment));
        next.filter(|next| *next <= until)
    };
    let (mut low, mut high) = (after.as_micros(), until.as_micros());
    let mut found = next(low)?;
    while high.saturating_sub(low) > SECOND {
        let middle = low + high.saturating_sub(low) / 2;
        match next(middle) {
            Some(later) => (low, found) = (middle, later),
            None => high = middle,
        }
    }
    Some(found)
}

/// Counts the scheduled times after `after`, up to and with `until`.
fn count(job: &Job, after: Timestamp, until: Timestamp) -> u64 {
    let (mut at, mut count) = (after, 0);
    while let Some(next) = job.schedule.next(at).filter(|next| *next <= until)
        && count < MISSED_MAX
    {
        (at, count) = (next, count + 1);
    }
    count
}

fn before(at: Timestamp, span: Duration) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(&format!("2026-01-01T{text}Z")).unwrap()
    }

    fn job(schedule: &str, misfire: Misfire) -> Job {
        Job::new("a", schedule).unwrap().misfire(misfire)
    }

    fn open(is_running: bool, is_due: bool, failures: u32) -> OpenRun {
        let (run_id, scheduled_for) = (Uuid::nil(), at("00:00:00"));
        OpenRun { run_id, scheduled_for, is_manual: false, is_running, attempts: 1, failures, is_due }
    }

    /// The times that run one after another, and how many are left out.
    fn runs(job: &Job, decided_until: &str, now: &str) -> (Vec<String>, u64) {
        let mut state = JobState { now: at(now), decided_until: at(decided_until), open: Vec::new() };
        let (mut elected, mut missed) = (Vec::new(), 0);
        loop {
            let decision = decide(job, &state);
            missed += decision.missed;
            state.decided_until = decision.decided_until.unwrap_or(state.decided_until);
            match decision.step {
                Step::Elect(at) => elected.push(at.to_string()[11..19].to_owned()),
                _ => return (elected, missed),
            }
        }
    }

    #[test]
    fn the_policy_says_which_missed_runs_run() {
        for (misfire, now, elected, missed) in [
            (Misfire::Skip, "00:31:01", vec![], 3),
            (Misfire::RunOnce, "00:30:00", vec!["00:30:00"], 2),
            (Misfire::Skip, "00:35:00", vec![], 3),
            (Misfire::RunOnce, "00:35:00", vec!["00:30:00"], 2),
            (Misfire::RunOnce, "00:30:30", vec!["00:30:00"], 2),
            (Misfire::Skip, "00:30:30", vec!["00:30:00"], 2),
            (Misfire::CatchUp(2), "00:35:00", vec!["00:20:00", "00:30:00"], 1),
            (Misfire::CatchUp(2), "00:30:30", vec!["00:10:00", "00:20:00", "00:30:00"], 0),
            (Misfire::CatchUp(9), "00:35:00", vec!["00:10:00", "00:20:00", "00:30:00"], 0),
            (Misfire::CatchUp(0), "00:35:00", vec![], 3),
        ] {
            let found = runs(&job("*/10 * * * *", misfire), "00:00:00", now);
            assert_eq!(
                found,
                (elected.iter().map(ToString::to_string).collect(), missed),
                "{misfire:?} {now}"
            );
        }
        let nothing = runs(&job("*/10 * * * *", Misfire::RunOnce), "00:30:00", "00:39:59");
        assert_eq!(nothing, (vec![], 0));
    }

    /// A process that was away for years decides at once.
    #[test]
    fn many_missed_runs_cost_little() {
        let every_second = job("* * * * * *", Misfire::CatchUp(3));
        let state = JobState {
            now: Timestamp::parse("2030-01-01T00:00:00Z").unwrap(),
            decided_until: at("00:00:00"),
            open: Vec::new(),
        };
        let decision = decide(&every_second, &state);
        assert_eq!(decision.missed, MISSED_MAX - 1);
        assert_eq!(decision.decided_until.unwrap().to_string(), "2029-12-31T23:58:58Z");
    }

    #[test]
    fn an_open_run_comes_first_and_runs_do_not_overlap() {
        let job = job("* * * * *", Misfire::RunOnce);
        let step = |runs: Vec<OpenRun>| {
            let state = JobState { now: at("01:00:00"), decided_until: at("00:00:00"), open: runs };
            decide(&job, &state).step
        };
        assert!(matches!(step(vec![open(true, false, 0)]), Step::Wait), "it is under way");
        assert!(matches!(step(vec![open(false, false, 0)]), Step::Wait), "it waits for its next attempt");
        assert!(matches!(step(vec![open(false, true, 1)]), Step::Take { failures: 0, .. }));
        assert!(
            matches!(step(vec![open(true, true, 0)]), Step::Take { failures: 1, .. }),
            "its process died"
        );
        assert!(matches!(step(vec![open(true, true, 4)]), Step::GiveUp(_)), "in each of five attempts");
        let manual = OpenRun { is_manual: true, ..open(false, false, 1) };
        assert!(matches!(step(vec![manual.clone()]), Step::Elect(_)), "a manual run keeps no other waiting");
        let under_way = OpenRun { is_running: true, ..manual };
        assert!(matches!(step(vec![under_way]), Step::Wait));
    }
}
