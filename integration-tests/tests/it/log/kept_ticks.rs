//! Ticks that are in use are kept, and one that is gone stops no destination.
use crate::support::{
    cases::cases_on,
    database::SERVICE,
    log::{Names, draft, open, open_with, publish, publish_all, run, run_until, settle_until, take},
    statement_faults::{Fault, Faulty, Silence},
    stores::World,
    wait::{eventually, in_time},
};
use std::time::Duration;
use tokio::runtime::Handle;
use twinbox::{
    Store, Timestamp,
    log::ReaderOptions,
    ops::{
        Ops,
        replays::{NewReplay, Selection},
    },
};

/// Is renewed every quarter of an hour.
const LONG_LEASE: Duration = Duration::from_secs(3600);

/// Makes ticks: another destination settles a message.
async fn make_ticks<DB: Names>(world: &World<DB>, message: &str) {
    publish(world, None, &[message]).await;
    settle_until(&mut open(world, &format!("until {message}")).await, message).await;
}

async fn delete_tick<DB: Names>(world: &World<DB>, id: i64) {
    run(world, &format!("DELETE FROM {} WHERE id = {id}", DB::table_of("ticks"))).await.unwrap();
    let free = format!("UPDATE {} SET lease_until = {}", DB::CURSORS, DB::LONG_AGO);
    run(world, &free).await.unwrap();
}

/// A process that stood still for longer than others keep a tick, and then wrote it into its cursor, has left
/// such a row.
async fn a_destination_whose_ticks_are_gone_skips_no_message<DB: Names>() {
    let world = World::<DB>::new().await;
    publish_all(&world, ["a", "b"].map(|text| draft(None, text)).into()).await;
    let mut reader = open(&world, "d").await;
    let first = take(&mut reader, 2).await.swap_remove(0);
    reader.settle(first.ticket);
    let row = run_until(&world, &mut reader, "d", |row| row.position > 0).await;
    drop(reader);
    make_ticks(&world, "c").await;
    delete_tick(&world, row.w).await;
    let mut reader = open(&world, "d").await;
    assert_eq!(settle_until(&mut reader, "c").await, ["a", "b", "c"], "the window begins again");

    let row = run_until(&world, &mut reader, "d", |row| row.p > 0 && row.p == row.w).await;
    drop(reader);
    make_ticks(&world, "d").await;
    delete_tick(&world, row.p).await;
    let mut reader = open(&world, "d").await;
    settle_until(&mut reader, "d").await;
    let row = run_until(&world, &mut reader, "d", |later| later.p > row.p && later.p == later.w).await;
    let kept = format!("SELECT count(*) FROM {} WHERE id = {}", DB::table_of("ticks"), row.p);
    assert_eq!(world.number(kept).await, 1);
}

/// Waits until the row of the only cursor names the newest tick as one that its reader uses.
async fn names_newest_tick<DB: Names>(world: &World<DB>) {
    let named = format!(
        "SELECT count(*) FROM {} c JOIN {ticks} t ON t.id = c.ahead_w
        WHERE t.id > 0 AND t.id = (SELECT max(id) FROM {ticks})",
        DB::CURSORS,
        ticks = DB::table_of("ticks"),
    );
    eventually(async || (world.number(named.clone()).await > 0).then_some(())).await;
}

async fn a_tick_is_named_while_the_bounds_of_its_window_are_searched<DB: Names + Faulty>() {
    let world = World::<DB>::new().await;
    publish(&world, None, &["a"]).await;
    let faults = DB::faults(&Handle::current(), &world, Silence::AsItIs);
    let store = Store::new(faults.pool(5), SERVICE).unwrap();
    let mut reader = open_with(&store, "d", ReaderOptions::new().lease(LONG_LEASE)).await;
    let happens = faults.arm("log.window_bounds", Fault::Silent);
    tokio::select! {
        found = reader.next(1) => panic!("the search does not end: {found:?}"),
        () = async { in_time(happens).await.unwrap(); names_newest_tick(&world).await } => {}
    }
}

async fn a_tick_is_named_within_a_second_however_long_the_lease_is<DB: Names>() {
    let world = World::<DB>::new().await;
    publish(&world, None, &["a"]).await;
    let mut reader = open_with(&world, "d", ReaderOptions::new().lease(LONG_LEASE)).await;
    let _in_flight = take(&mut reader, 1).await;
    tokio::select! {
        found = reader.next(0) => panic!("without room there is nothing to return: {found:?}"),
        () = names_newest_tick(&world) => {}
    }
}

/// The replay comes to its last tick in the end. Its destination has gone on, and no cursor names that tick.
async fn ticks_of_a_running_replay_are_kept<DB: Names>() {
    let world = World::<DB>::new().await;
    make_ticks(&world, "y").await;
    make_ticks(&world, "z").await;
    publish_all(&world, ["a", "b"].map(|text| draft(None, text)).into()).await;
    let mut reader = open(&world, "d").await;
    let mut taken = take(&mut reader, 4).await;
    let last = taken.pop().unwrap();
    taken.into_iter().for_each(|entry| reader.settle(entry.ticket));
    let row = run_until(&world, &mut reader, "d", |row| row.position > 0).await;
    let ops = Ops::new(world.owner());
    let plan = ops.plan_replay("d", &Selection::new()).await.unwrap();
    ops.make_replay(&plan, NewReplay::resend("ada")).await.unwrap();
    reader.settle(last.ticket);
    run_until(&world, &mut reader, "d", |later| later.p >= row.w).await;
    drop(reader);
    for message in ["e", "f", "g"] {
        make_ticks(&world, message).await;
    }
    let moved = format!(
        "UPDATE {} SET p = {newest}, w = {newest}, ahead_p = {newest}, ahead_w = {newest}
        WHERE destination = 'd'",
        DB::CURSORS,
        newest = format_args!("(SELECT max(id) FROM {})", DB::table_of("ticks")),
    );
    run(&world, &moved).await.unwrap();
    thin_all(&world).await;
    let kept = format!(
        "SELECT count(*) FROM {} t JOIN {} r ON t.id = r.w",
        DB::table_of("ticks"),
        DB::table_of("replays"),
    );
    assert_eq!(world.number(kept).await, 1);
}

/// Thins as if all ticks were a minute old. The destinations of [`make_ticks`] are not there any more.
async fn thin_all<DB: Names>(world: &World<DB>) {
    let ticks = DB::table_of("ticks");
    let others = format!("DELETE FROM {} WHERE destination LIKE 'until %'", DB::CURSORS);
    let old = Timestamp::from_micros(world.now().await.unwrap().as_micros() - 60_000_000);
    let age = format!("UPDATE {ticks} SET taken_at = {}", DB::time(old));
    let all = world.number(format!("SELECT max(id) FROM {ticks}")).await + 1;
    let thin = world.engine().sql().log.thin_ticks.as_str();
    for sql in [&*others, &age, thin] {
        run(world, sql).await.unwrap();
    }
    assert!(world.number(format!("SELECT count(*) FROM {ticks}")).await < all, "some are thinned");
}

/// Each of them may be the one of the cursor next, when the messages before it are settled.
async fn all_ticks_from_the_cursor_to_the_newest_in_use_are_kept<DB: Names>() {
    let world = World::<DB>::new().await;
    let mut reader = open_with(&world, "d", ReaderOptions::new().lease(LONG_LEASE)).await;
    for message in ["a", "b", "c"] {
        publish(&world, None, &[message]).await;
        take(&mut reader, 1).await;
    }
    tokio::select! {
        found = reader.next(0) => panic!("without room there is nothing to return: {found:?}"),
        () = names_newest_tick(&world) => {}
    }
    drop(reader);
    for message in ["e", "f", "g"] {
        make_ticks(&world, message).await;
    }
    thin_all(&world).await;
    let kept = format!(
        "SELECT max(c.ahead_w) - count(*) FROM {} c JOIN {} t ON t.id BETWEEN 1 AND c.ahead_w",
        DB::CURSORS,
        DB::table_of("ticks"),
    );
    assert_eq!(world.number(kept).await, 0);
}

/// A server may sleep meanwhile.
async fn an_idle_reader_writes_only_to_keep_its_lease<DB: Names>() {
    let world = World::<DB>::new().await;
    publish(&world, None, &["a"]).await;
    let lease = Duration::from_secs(12);
    let options = ReaderOptions::new().lease(lease).idle_poll(LONG_LEASE);
    let mut reader = open_with(&world, "d", options).await;
    settle_until(&mut reader, "a").await;
    let end =
        DB::CLOCK.replace("clock_timestamp()", "lease_until").replace("UTC_TIMESTAMP(6)", "lease_until");
    let end = format!("SELECT {end} FROM {}", DB::CURSORS);
    // At first it writes what was settled, and the ticks that it has made.
    let mut ends = vec![0];
    let renewing = async {
        while ends.len() < 7 {
            let last = ends[ends.len() - 1];
            ends.push(
                eventually(async || Some(world.number(end.clone()).await).filter(|end| *end > last)).await,
            );
        }
    };
    tokio::select! {
        found = reader.next(0) => panic!("without room there is nothing to return: {found:?}"),
        () = renewing => {}
    }
    let last_two = ends[6] - ends[4];
    assert!(last_two > 4_000_000, "{last_two} µs, where a quarter of the lease is 3 s");
}

cases_on! { [postgres: Postgres, mysql: MySql], [
    a_destination_whose_ticks_are_gone_skips_no_message,
    a_tick_is_named_while_the_bounds_of_its_window_are_searched,
    all_ticks_from_the_cursor_to_the_newest_in_use_are_kept,
    an_idle_reader_writes_only_to_keep_its_lease,
    a_tick_is_named_within_a_second_however_long_the_lease_is,
    ticks_of_a_running_replay_are_kept,
] }
