//! Processes that die, handlers that hang and panic.
use super::march;
use crate::support::{
    cases::cases,
    effects::QUICK,
    jobs::{RunningJobs, Seen, at, decided_until, end_leases, ended, execute},
    stores::{TestDb, World},
    wait::eventually,
};
use std::time::Duration;
use twinbox::{
    HandlerError,
    effects::jobs::{Job, JobRunner, Jobs, Misfire, RunState},
};

/// A job that notes its attempts, and never ends one.
fn hanging(seen: &Seen, job: Job) -> Job {
    let seen = seen.clone();
    job.handler(move |run| {
        seen.add(run);
        std::future::pending()
    })
}

/// R14, t29: another process takes the run over under the same id, and once it is done it stays so.
async fn a_run_whose_process_died_is_taken_over_once<DB: TestDb>() {
    let (world, first, second) = (World::<DB>::new().await, Seen::default(), Seen::default());
    let job = march(&world, Misfire::RunOnce).await;
    let dying = RunningJobs::of(&world, hanging(&first, job)).await;
    eventually(async || first.all().pop()).await;
    dying.kill().await;
    let job = || Job::new("march", super::MARCH).unwrap().time_zone("Europe/Berlin").unwrap();
    let running = RunningJobs::of(&world, second.by(job())).await;
    let [run] = &Jobs::new(&world).runs("march", 9).await.unwrap()[..] else { panic!("one run") };
    assert_eq!((run.state, run.attempts), (RunState::Running, 1), "its lease has not ended");
    end_leases(&world).await;
    let [run] = &ended(&world, "march", 1).await[..] else { panic!("one run") };
    assert_eq!((run.state, run.attempts, run.failures), (RunState::Done, 2, 1));
    let (first, again) = (first.all(), second.all());
    assert_eq!((first.len(), again.len()), (1, 1));
    assert_eq!((first[0].run_id, first[0].attempt), (run.run_id, 1));
    assert_eq!((again[0].run_id, again[0].attempt), (run.run_id, 2));
    // As a service that calls twice: the same run is asked for again, and is done.
    decided_until(&world, "march", at("2026-03-30T12:00:00Z")).await;
    eventually(async || {
        let jobs = Jobs::new(&world).list(1).await.unwrap();
        (jobs[0].decided_until == at("2026-03-31T00:30:00Z")).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!((second.all().len(), world.rows("job_runs").await), (1, 1));
}

async fn a_stopped_runner_waits_for_its_attempts<DB: TestDb>() {
    let (world, seen) = (World::<DB>::new().await, Seen::default());
    let job = march(&world, Misfire::RunOnce).await;
    let (sender, released) = tokio::sync::watch::channel(false);
    let noted = seen.clone();
    let job = job.handler(move |run| {
        let mut released = released.clone();
        noted.add(run);
        async move {
            let _ = released.wait_for(|released| *released).await;
            Ok(())
        }
    });
    let stopping = RunningJobs::of(&world, job).await;
    eventually(async || seen.all().pop()).await;
    let (stopped, _) = tokio::join!(stopping.stop(), async { sender.send_replace(true) });
    let () = stopped;
    let runs = Jobs::new(&world).runs("march", 9).await.unwrap();
    assert_eq!((runs[0].state, runs[0].attempts), (RunState::Done, 1));
}

/// An attempt that takes longer than the drain is no failure, and another process begins the run at once.
async fn a_stopped_runner_gives_back_what_takes_too_long<DB: TestDb>() {
    let (world, first, second) = (World::<DB>::new().await, Seen::default(), Seen::default());
    let job = march(&world, Misfire::RunOnce).await;
    let runner = JobRunner::new(&*world).drain(Duration::from_millis(20)).job(hanging(&first, job));
    let stopping = RunningJobs::start(runner);
    eventually(async || first.all().pop()).await;
    stopping.stop().await;
    let runs = Jobs::new(&world).runs("march", 9).await.unwrap();
    assert_eq!((runs[0].state, runs[0].attempts, runs[0].failures), (RunState::Pending, 1, 0));
    let job = Job::new("march", super::MARCH).unwrap().time_zone("Europe/Berlin").unwrap();
    let running = RunningJobs::of(&world, second.by(job)).await;
    let runs = ended(&world, "march", 1).await;
    running.stop().await;
    assert_eq!((runs[0].state, runs[0].attempts, runs[0].failures), (RunState::Done, 2, 0));
    assert_eq!(second.all()[0].run_id, first.all()[0].run_id);
}

/// A job that ends its process in each attempt is given up.
async fn a_run_that_kills_each_process_is_given_up<DB: TestDb>() {
    let (world, seen) = (World::<DB>::new().await, Seen::default());
    for attempt in 1..=5 {
        let job = if attempt == 1 {
            march(&world, Misfire::RunOnce).await
        } else {
            Job::new("march", super::MARCH).unwrap().time_zone("Europe/Berlin").unwrap()
        };
        let dying = RunningJobs::of(&world, hanging(&seen, job)).await;
        eventually(async || (seen.all().len() == attempt).then_some(())).await;
        dying.kill().await;
        end_leases(&world).await;
    }
    let job = Job::new("march", super::MARCH).unwrap().time_zone("Europe/Berlin").unwrap();
    let running = RunningJobs::of(&world, seen.by(job)).await;
    let runs = ended(&world, "march", 1).await;
    running.stop().await;
    assert_eq!((runs[0].state, runs[0].attempts, runs[0].failures), (RunState::Failed, 5, 5));
    assert!(runs[0].last_error.as_deref().unwrap().contains("ended without a result"), "{runs:?}");
    assert_eq!(seen.all().len(), 5);
}

/// A process whose lease another one has taken drops its handler, and its result changes nothing.
async fn a_process_that_lost_its_lease_stops<DB: TestDb>() {
    let (world, seen) = (World::<DB>::new().await, Seen::default());
    let job = march(&world, Misfire::RunOnce).await;
    let (dropped, mut is_dropped) = tokio::sync::watch::channel(false);
    let noted = seen.clone();
    let job = job.handler(move |run| {
        noted.add(run);
        let guard = SetOnDrop(dropped.clone());
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    let store = twinbox::Store::new(world.twin(3).await, twinbox_testkit::database::SERVICE).unwrap();
    let runner = JobRunner::new(&store).lease(Duration::from_secs(1)).job(job);
    let frozen = RunningJobs::start(runner);
    eventually(async || seen.all().pop()).await;
    execute(&world, format!("UPDATE {} SET attempts = 7", DB::table_of("job_runs"))).await;
    is_dropped.wait_for(|dropped| *dropped).await.unwrap();
    frozen.kill().await;
    assert_eq!(Jobs::new(&world).runs("march", 1).await.unwrap()[0].state, RunState::Running);
}

struct SetOnDrop(tokio::sync::watch::Sender<bool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// A job that hangs, one that panics, and one that is rejected stop no other one.
async fn one_bad_job_stops_no_other<DB: TestDb>() {
    let (world, good, hung) = (World::<DB>::new().await, Seen::default(), Seen::default());
    let new = |id: &str| Job::new(id, "0 0 1 1 *").unwrap().retries(QUICK);
    let panicking = new("panics").handler(|run| async move {
        assert!(run.attempt > 9, "it always panics");
        Ok(())
    });
    let rejecting = new("rejects").handler(async |_| Err(HandlerError::reject("no such tenant")));
    let slow = new("slow").timeout(Duration::from_millis(20)).handler(|_| std::future::pending());
    let flaky = new("flaky").handler(async |run: twinbox::effects::jobs::JobRun| match run.attempt {
        3 => Ok(()),
        _ => Err("not yet".into()),
    });
    let runner = JobRunner::new(&*world).job(panicking).job(rejecting).job(slow).job(flaky);
    let running = RunningJobs::start(runner.job(hanging(&hung, new("hangs"))).job(good.by(new("good"))));
    let jobs = Jobs::new(&world);
    eventually(async || (jobs.list(9).await.unwrap().len() == 6).then_some(())).await;
    for id in ["hangs", "panics", "rejects", "slow", "flaky", "good"] {
        jobs.run_now(id).await.unwrap();
    }
    for (id, state, attempts, error) in [
        ("good", RunState::Done, 1, None),
        ("flaky", RunState::Done, 3, None),
        ("rejects", RunState::Failed, 1, Some("no such tenant")),
        ("panics", RunState::Failed, 5, Some("the handler panicked")),
        ("slow", RunState::Failed, 5, Some("no result within 20ms")),
    ] {
        let [run] = &ended(&world, id, 1).await[..] else { panic!("one run of {id}") };
        let found = (run.state, run.attempts, run.last_error.as_deref());
        assert_eq!(found, (state, attempts, error), "{id}");
    }
    assert_eq!(hung.all().len(), 1);
    running.kill().await;
}

cases! {
    all: [
        a_process_that_lost_its_lease_stops,
        a_run_that_kills_each_process_is_given_up,
        a_run_whose_process_died_is_taken_over_once,
        a_stopped_runner_gives_back_what_takes_too_long,
        a_stopped_runner_waits_for_its_attempts,
        one_bad_job_stops_no_other,
    ]
}
