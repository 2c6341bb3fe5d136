//! Scheduled jobs: each run once, whatever happens to processes and clocks.
mod clocks;
mod faults;
mod targets;

use crate::support::{
    cases::cases,
    jobs::{RunningJobs, Seen, at, ended, registered},
    stores::{TestDb, World},
    wait::{self, Pause, eventually},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use twinbox::{
    CancellationToken, ErrorKind, RetryPolicy,
    effects::jobs::{Job, JobRunner, Jobs, Misfire, RunState, run_id},
};

/// Five days at 02:30, with the gap of the 29th, when it is 03:00 at once.
pub(super) const MARCH: &str = "0 30 2 27-31 3 * 2026";

/// A job of these days, and its row, as if no process had run since the 26th.
async fn march<DB: TestDb>(world: &World<DB>, misfire: Misfire) -> Job {
    in_march(world, "march", misfire).await
}

/// The same with another id.
async fn in_march<DB: TestDb>(world: &World<DB>, id: &str, misfire: Misfire) -> Job {
    registered(world, [id, MARCH, "Europe/Berlin"], at("2026-03-26T12:00:00Z")).await;
    Job::new(id, MARCH).unwrap().time_zone("Europe/Berlin").unwrap().misfire(misfire)
}

/// R14, t29
async fn the_policy_decides_about_missed_runs<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for (id, misfire, days) in [
        ("skips", Misfire::Skip, &[][..]),
        ("once", Misfire::RunOnce, &["2026-03-31T00:30:00Z"]),
        ("twice", Misfire::CatchUp(2), &["2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]),
    ] {
        let seen = Seen::default();
        let job = in_march(&world, id, misfire).await;
        let running = RunningJobs::of(&world, seen.by(job)).await;
        let decided = async || {
            let jobs = Jobs::new(&world).list(10).await.unwrap();
            let job = jobs.iter().find(|job| job.id == id).unwrap();
            (job.decided_until == at("2026-03-31T00:30:00Z")).then_some(())
        };
        eventually(decided).await;
        let runs = ended(&world, id, days.len()).await;
        running.stop().await;
        let found: Vec<_> = runs.iter().map(|run| run.scheduled_for.to_string()).collect();
        assert_eq!(found, days, "{misfire:?}");
        assert_eq!(seen.all().len(), days.len());
    }
}

/// R14: a manual run is a run of its own.
async fn a_manual_run_runs_beside_the_schedule<DB: TestDb>() {
    let (world, seen) = (World::<DB>::new().await, Seen::default());
    let jobs = Jobs::new(&world);
    assert_eq!(jobs.run_now("yearly").await.unwrap_err().kind(), ErrorKind::NotFound);
    let yearly = Job::new("yearly", "0 0 1 1 *").unwrap();
    let running = RunningJobs::of(&world, seen.by(yearly)).await;
    eventually(async || jobs.list(1).await.unwrap().pop()).await;
    let ids = [jobs.run_now("yearly").await.unwrap(), jobs.run_now("yearly").await.unwrap()];
    let runs = ended(&world, "yearly", 2).await;
    running.stop().await;
    assert_eq!(runs.iter().map(|run| run.run_id).collect::<Vec<_>>(), ids);
    for (run, seen) in runs.iter().zip(seen.all()) {
        assert_eq!((run.state, run.attempts, run.is_manual, run.owner), (RunState::Done, 1, true, None));
        assert_eq!((seen.run_id, seen.attempt, seen.is_manual), (run.run_id, 1, true));
        assert!(run.started_at >= Some(run.created_at) && run.finished_at >= run.started_at, "{run:?}");
        assert_eq!(jobs.run(run.run_id).await.unwrap().as_ref(), Some(run));
    }
    for _ in 0..100 {
        jobs.run_now("yearly").await.unwrap();
    }
    assert_eq!(jobs.run_now("yearly").await.unwrap_err().kind(), ErrorKind::Conflict);
}

async fn runs_of_a_job_do_not_overlap<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let job = || {
        let (now, most) = (now.clone(), most.clone());
        Job::new("slow", "0 0 1 1 *").unwrap().handler(move |_| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                // Long enough for the other runner to look several times.
                wait::pause(Pause::Work, Duration::from_millis(50)).await;
                now.fetch_sub(1, SeqCst);
                Ok(())
            }
        })
    };
    let both = [RunningJobs::of(&world, job()).await, RunningJobs::of(&world, job()).await];
    eventually(async || Jobs::new(&world).list(1).await.unwrap().pop()).await;
    for _ in 0..5 {
        Jobs::new(&world).run_now("slow").await.unwrap();
    }
    let runs = ended(&world, "slow", 5).await;
    for running in both {
        running.stop().await;
    }
    assert!(runs.iter().all(|run| run.attempts == 1), "{runs:?}");
    assert_eq!(most.load(SeqCst), 1);
}

async fn another_schedule_counts_from_now_on<DB: TestDb>() {
    let (world, seen) = (World::<DB>::new().await, Seen::default());
    registered(&world, ["a", "0 0 * * *", "UTC"], at("2026-01-01T00:00:00Z")).await;
    let job = || Job::new("a", "0 1 * * *").unwrap().misfire(Misfire::CatchUp(9));
    let running = RunningJobs::of(&world, seen.by(job())).await;
    let [job] = &eventually(async || {
        Some(Jobs::new(&world).list(9).await.unwrap()).filter(|jobs| jobs[0].schedule == "0 1 * * *")
    })
    .await[..] else {
        panic!("one job")
    };
    assert!(job.decided_until > at("2026-11-01T00:00:00Z"), "{job:?}");
    running.stop().await;
    assert!(seen.all().is_empty());
}

async fn old_runs_are_deleted_while_a_runner_runs<DB: TestDb>() {
    let (world, seen) = (World::<DB>::new().await, Seen::default());
    let job = march(&world, Misfire::CatchUp(9)).await;
    let runner = JobRunner::new(&*world).keep(Duration::from_secs(1));
    let running = RunningJobs::start(runner.job(seen.by(job)));
    eventually(async || (seen.all().len() == 5).then_some(())).await;
    eventually(async || (world.rows("job_runs").await == 0).then_some(())).await;
    // A scheduled time that was decided is not decided again.
    let old = run_id("march", at("2026-03-30T00:30:00Z"));
    assert_eq!(Jobs::new(&world).run(old).await.unwrap(), None);
    running.stop().await;
    assert_eq!(seen.all().len(), 5);
}

async fn jobs_that_could_never_run_are_refused<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let fine = || Seen::default().by(Job::new("a", "* * * * *").unwrap());
    for (runner, says) in [
        (JobRunner::new(&*world).job(fine()).job(fine()), "there twice"),
        (JobRunner::new(&*world).job(Job::new("b", "* * * * *").unwrap()), "does nothing"),
        (JobRunner::new(&*world).job(fine().retries(RetryPolicy::default())), "max_attempts"),
    ] {
        let error = runner.run(CancellationToken::new()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Configuration && error.to_string().contains(says), "{error}");
    }
    for (id, schedule) in [("", "* * * * *"), ("a\n", "* * * * *"), ("a", "0 * * * ? *")] {
        assert_eq!(Job::new(id, schedule).unwrap_err().kind(), ErrorKind::Configuration);
    }
    let error = fine().time_zone("Europe/Atlantis").unwrap_err();
    assert!(error.to_string().contains("Europe/Berlin"), "{error}");
}

cases! {
    all: [
        a_manual_run_runs_beside_the_schedule,
        another_schedule_counts_from_now_on,
        jobs_that_could_never_run_are_refused,
        old_runs_are_deleted_while_a_runner_runs,
        runs_of_a_job_do_not_overlap,
        the_policy_decides_about_missed_runs,
    ]
}
