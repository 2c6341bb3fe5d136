//! Parked rows of replays that have ended.
use crate::support::{
    cases::cases,
    stores::{TestDb, World, sql_of},
};
use std::time::Duration;
use twinbox::{Timestamp, log::Log};

/// Nobody else's rows go, and none of a replay that runs or ended lately.
async fn what_a_replay_has_parked_goes_after_its_end<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let token = match DB::MODULE {
        "postgres" => "gen_random_uuid()",
        "mysql" => "UNHEX(REPLACE(UUID(), '-', ''))",
        _ => "randomblob(16)",
    };
    let now = DB::time(world.now().await.unwrap());
    let long_ago = DB::time(Timestamp::from_micros(1_000_000_000_000_000));
    let (replays, parked) = (DB::table_of("replays"), DB::table_of("parked_messages"));
    let mut conn = world.pool().acquire().await.unwrap();
    for (state, ended_at) in [("done", long_ago.as_str()), ("cancelled", &now), ("running", "NULL")] {
        let replay = format!(
            "INSERT INTO {replays} (token, destination, selection, p, w, position, first_position,
                last_position, selected, state, made_by, ended_at)
            VALUES ({token}, 'd', '{{}}', 0, 0, 0, 1, 1, 1, '{state}', 'ada', {ended_at})"
        );
        sqlx::raw_sql(sql_of::<DB>(&replay)).execute(&mut *conn).await.unwrap();
    }
    for destination in ["replay:1", "replay:01", "replay:2", "replay:3", "replay", "d"] {
        for (position, state) in [(1, "dead"), (2, "waiting")] {
            let row = format!(
                "INSERT INTO {parked} (destination, position, type, state, blocks_key, attempts,
                    next_attempt_at, first_error, last_error, fingerprint)
                VALUES ('{destination}', {position}, 't', '{state}', false, 1, {now}, 'no', 'no', 'no')"
            );
            sqlx::raw_sql(sql_of::<DB>(&row)).execute(&mut *conn).await.unwrap();
        }
    }
    drop(conn);
    Log::new(&world).purge(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(world.rows("parked_messages").await, 10);
    let of_the_first = format!("SELECT count(*) FROM {parked} WHERE destination = 'replay:1'");
    assert_eq!(world.number(of_the_first).await, 0);
}

cases! {
    all: [what_a_replay_has_parked_goes_after_its_end]
}
