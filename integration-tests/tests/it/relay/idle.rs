//! A relay that looks seldom lets its database rest, and misses nothing.
use super::*;
use crate::support::{
    database::TestDatabase,
    processes::{Program, Programs},
    round_trips::RoundTrips,
    wait::eventually,
};

/// Renewals of the lease after which a relay is idle: it looks often for a second after the last message.
const QUIET: u64 = 3;
const COUNTED: u64 = 5;

/// The end of the lease, in seconds by the clock of the database.
async fn lease_end(store: &TestDatabase<Postgres>) -> f64 {
    let end = "SELECT extract(epoch FROM lease_until)::float8 FROM twinbox.cursors WHERE owner IS NOT NULL";
    eventually(async || sqlx::query_scalar(end).fetch_optional(store.pool()).await.unwrap()).await
}

/// Waits until the relay has had time for so many renewals of its lease. A lease of 4 s is renewed once a
/// second. Returns how many there were at most.
async fn renewals(store: &TestDatabase<Postgres>, count: u64) -> u64 {
    let begin = lease_end(store).await;
    let passed = eventually(async || {
        let passed = lease_end(store).await - begin;
        (passed >= count as f64).then_some(passed)
    });
    passed.await.ceil() as u64
}

/// Counts the round trips of the whole program while no message comes, and the renewals of its lease.
async fn idle_round_trips(idle_poll: &str) -> (u64, u64) {
    let store = database::postgres().await;
    let trips = RoundTrips::of(store.url()).await;
    let programs = Programs::at(trips.url.clone());
    let mut command = programs.command(Program::Relay);
    command.env("TWINBOX_RELAY__DATABASE__IDLE_POLL", idle_poll);
    command.env("TWINBOX_RELAY__KEEPER__ENABLED", "false");
    command.env("TWINBOX_RELAY__VENDORS__MAIL__PROFILE", "resend");
    command.env("TWINBOX_RELAY__VENDORS__MAIL__URL", "https://mail.example.org");
    let _relay = command.spawn().unwrap();
    renewals(&store, QUIET).await;
    let before = trips.count();
    let renewals = renewals(&store, COUNTED).await;
    (trips.count() - before, renewals)
}

/// A renewal is four round trips: a look whether the connection is good, and a transaction. With the default
/// the relay looks forty times as often.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_relay_that_looks_seldom_asks_only_for_its_lease() {
    let ((often, _), (seldom, renewals)) = tokio::join!(idle_round_trips("25ms"), idle_round_trips("1h"));
    println!("{seldom} round trips in {renewals} renewals of the lease, {often} without `idle_poll`");
    assert!(seldom <= 4 * (renewals + 1), "{seldom} round trips in {renewals} renewals");
    assert!(often > 2 * seldom, "{often} round trips by default, {seldom} with `idle_poll`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_process_is_found_at_the_next_look() {
    let (store, target) = (database::postgres().await, Target::shared());
    let relay_store = Store::new(store.pool().clone(), database::SERVICE).unwrap();
    let options = RelayOptions::new().idle_poll(Duration::from_secs(1));
    let running = Running::run(Relay::with_options(relay_store, target.destination(), options));
    renewals(&store, QUIET).await;
    publish(&store, 0..5).await;
    running.published(5).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_the_same_process_waits_for_no_look() {
    let (store, target) = (database::postgres().await, Target::shared());
    let options = RelayOptions::new().idle_poll(Duration::from_secs(3600));
    let running = Running::run(Relay::with_options((*store).clone(), target.destination(), options));
    renewals(&store, QUIET).await;
    publish(&store, 0..5).await;
    running.published(5).await;
    running.stop().await;
}
