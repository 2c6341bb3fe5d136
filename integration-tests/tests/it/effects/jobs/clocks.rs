//! The clock that decides, and changes of the clock.
use super::{MARCH, march};
use crate::support::{
    cases::cases,
    databases::Postgres,
    jobs::{RunningJobs, Seen, at, ended, registered},
    postgres::store_with,
    stores::{TestDb, World},
};
use std::{fs, path::Path};
use twinbox::{
    Timestamp,
    effects::jobs::{Job, JobRunner, Misfire, RunState, run_id},
};

/// The hour from 02:00 comes twice on the 25th.
const OCTOBER: &str = "cron(30 2 23-27 10 ? 2026)";

/// R14, t29: two nodes, and a change of the clock each way.
async fn each_date_has_one_run_across_processes_and_changes_of_the_clock<DB: TestDb>() {
    let (world, seen) = (World::<DB>::new().await, Seen::default());
    let in_march = march(&world, Misfire::CatchUp(9)).await;
    registered(&world, ["october", OCTOBER, "Europe/Berlin"], at("2026-10-22T12:00:00Z")).await;
    let in_october = Job::new("october", OCTOBER).unwrap().time_zone("Europe/Berlin").unwrap();
    let in_october = in_october.misfire(Misfire::CatchUp(9));
    let again = Job::new("march", MARCH).unwrap().time_zone("Europe/Berlin").unwrap();
    let once_more = Job::new("october", OCTOBER).unwrap().time_zone("Europe/Berlin").unwrap();
    let both = [
        RunningJobs::of(&world, seen.by(in_march)).await,
        RunningJobs::of(&world, seen.by(again.misfire(Misfire::CatchUp(9)))).await,
        RunningJobs::of(&world, seen.by(in_october)).await,
        RunningJobs::of(&world, seen.by(once_more.misfire(Misfire::CatchUp(9)))).await,
    ];
    let (march, october) = (ended(&world, "march", 5).await, ended(&world, "october", 5).await);
    for running in both {
        running.stop().await;
    }
    let times = |runs: &[twinbox::effects::jobs::RunRecord]| {
        for run in runs {
            assert_eq!((run.state, run.attempts, run.owner), (RunState::Done, 1, None), "{run:?}");
            assert_eq!(run.run_id, run_id(&run.job, run.scheduled_for));
        }
        runs.iter().map(|run| run.scheduled_for.to_string()[5..16].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(times(&march), ["03-27T01:30", "03-28T01:30", "03-29T01:00", "03-30T00:30", "03-31T00:30"]);
    assert_eq!(times(&october), ["10-23T00:30", "10-24T00:30", "10-25T00:30", "10-26T01:30", "10-27T01:30"]);
    assert_eq!(seen.all().len(), 10);
}

/// t29: the clocks of the processes are an hour behind that of the database, which alone decides.
async fn the_clock_of_the_database_decides_what_is_due() {
    let (world, seen) = (World::<Postgres>::new().await, Seen::default());
    world
        .execute(
            "CREATE SCHEMA ahead; GRANT USAGE ON SCHEMA ahead TO PUBLIC;
            CREATE FUNCTION ahead.clock_timestamp() RETURNS timestamptz LANGUAGE sql
            AS 'SELECT pg_catalog.clock_timestamp() + interval ''1 hour'''",
        )
        .await;
    let now = world.now().await.unwrap().as_micros();
    let in_minutes = |minutes: i64| Timestamp::from_micros((now / 60_000_000 + minutes) * 60_000_000);
    let due = in_minutes(30);
    // Minute and hour of a time today or tomorrow, in UTC.
    let text = due.to_string();
    let schedule = format!("{} {} * * *", &text[14..16], &text[11..13]);
    registered(&world, ["a", &schedule, "UTC"], in_minutes(0)).await;
    let mut both = Vec::new();
    for _ in 0..2 {
        let store = store_with(world.url(), &[("search_path", "ahead,pg_catalog,public")]).await;
        let job = Job::new("a", &schedule).unwrap();
        both.push(RunningJobs::start(JobRunner::new(&store).job(seen.by(job))));
    }
    let runs = ended(&world, "a", 1).await;
    for running in both {
        running.stop().await;
    }
    assert_eq!((runs.len(), runs[0].scheduled_for, runs[0].attempts), (1, due, 1), "{runs:?}");
    assert_eq!(seen.all().len(), 1);
    assert!(world.now().await.unwrap() < due, "by the clock of this process it is not due yet");
}

/// t29: with clocks an hour apart all processes do the same, because none asks its own. Only a date in
/// `Retry-After` is compared with it.
#[test]
fn no_process_asks_its_own_clock() {
    let mut asks = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/twinbox-effects/src/jobs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let count =
                ["SystemTime::now", "Timestamp::now", "Zoned::now"].map(|call| text.matches(call).count());
            asks.extend((0..count.iter().sum()).map(|_| path.file_name().unwrap().to_owned()));
        }
    }
    assert_eq!(asks, ["http_target.rs"]);
}

cases! {
    all: [each_date_has_one_run_across_processes_and_changes_of_the_clock]
    postgres: [the_clock_of_the_database_decides_what_is_due]
}
