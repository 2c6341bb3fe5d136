//! The program is killed, frozen, started twice, and asked to stop.
use super::*;
use crate::support::{
    processes::{Program, Programs},
    rig::{RIG_LEASE, RIG_PUBLISH_TIMEOUT, Rig},
};
use futures::future::join_all;
use sqlx::MySql;
use std::{collections::HashSet, process::Stdio};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

const ALL: &[&str] = &["orders.placed", "orders.paid"];

/// Starts with 100 messages that are published and recorded, and 40 more that are not.
async fn recorded<DB: TestDb>() -> Rig<DB> {
    let rig = Rig::on(&Target::shared().url, ALL).await;
    publish(&rig.database, 0..100).await;
    let mut relay = rig.start();
    rig.target.whole(100).await;
    stop(&mut relay).await;
    publish(&rig.database, 100..140).await;
    rig
}

async fn stop(relay: &mut Child) {
    signal(relay, "TERM").await;
    let ended = timeout(PATIENCE, relay.wait()).await.expect("it stops when asked").unwrap();
    assert_eq!(ended.code(), Some(0));
}

async fn signal(child: &Child, signal: &str) {
    let id = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status().await.unwrap();
    assert!(sent.success());
}

/// Kills a relay at the crash point and starts another. Answers with how many messages the stream got before
/// the death, and how many copies beyond one of each in the end.
async fn killed<DB: TestDb>(at: &str) -> (u64, usize) {
    let rig = recorded::<DB>().await;
    rig.dies(at).await;
    let before = rig.target.count().await - 100;
    rig.target.forgets().await;
    let mut relay = rig.start();
    let copies = rig.target.whole(140).await;
    stop(&mut relay).await;
    nothing_is_parked(&rig.database).await;
    let mut seen = HashSet::new();
    let again: Vec<_> = copies.iter().filter(|(id, ..)| !seen.insert(id)).collect();
    assert!(again.iter().all(|(.., sequence)| *sequence > 100), "what was recorded is not sent again");
    (before, again.len())
}

async fn row_04_killed_between_reading_and_publishing<DB: TestDb>() {
    assert_eq!(killed::<DB>("relay.after_read").await, (0, 0));
}

async fn row_05_killed_between_the_acknowledgement_and_the_cursor<DB: TestDb>() {
    let (before, again) = killed::<DB>("relay.after_ack").await;
    assert!(before >= 1 && again as u64 == before, "{again} of {before} came again");
}

async fn row_06_killed_with_some_of_many_acknowledged<DB: TestDb>() {
    let points = ["relay.after_send", "relay.after_ack:3", "relay.after_ack:7", "relay.after_ack:20"];
    for (point, (before, again)) in
        points.iter().zip(join_all(points.map(|at| Box::pin(killed::<DB>(at)))).await)
    {
        assert!(again as u64 <= before, "{point}: {again} of {before} came again");
    }
}

/// Waits until the process has stopped itself.
async fn is_frozen(child: &Child) {
    let stat = format!("/proc/{}/stat", child.id().expect("it runs"));
    eventually(async || std::fs::read_to_string(&stat).unwrap().contains(") T ").then_some(())).await;
}

async fn epoch<DB: TestDb>(store: &Store<DB>) -> i64 {
    let sql = format!("SELECT coalesce(max(epoch), 0) FROM {}", DB::table_of("cursors"));
    number(store.pool(), &sql).await
}

/// Returns the window that the cursor is in, and its place there.
async fn settled<DB: TestDb>(store: &Store<DB>) -> (i64, i64) {
    let of = |column| format!("SELECT coalesce(max({column}), 0) FROM {}", DB::table_of("cursors"));
    let window = number(store.pool(), &of("p")).await;
    (window, number(store.pool(), &of("position")).await)
}

/// Every seventh message has no home at first, so that rows are put aside too.
async fn frozen<DB: TestDb>(point: &str) {
    let rig = Rig::<DB>::on(&Target::shared().url, &ALL[..1]).await;
    let kind = |n| if n % 7 == 3 { "orders.paid" } else { "orders.placed" };
    publish_as(&rig.database, 0..50, kind).await;
    // The shortest that is accepted: it has to end while the process is frozen.
    let mut short = rig.command();
    short.env(RIG_LEASE, "3s").env(RIG_PUBLISH_TIMEOUT, "2s").env("TWINBOX_FREEZE_AT", point);
    let mut frozen = short.spawn().unwrap();
    is_frozen(&frozen).await;
    let owned = epoch(&rig.database).await;
    publish_as(&rig.database, 50..120, kind).await;
    let mut successor = rig.start();
    rig.target.update(rig.target.forgetful(ALL)).await;
    eventually(async || (rig.target.count().await >= 100).then_some(())).await;
    let (taken, before) = (epoch(&rig.database).await, settled(&rig.database).await);
    assert_eq!(taken, owned + 1, "the successor took over from one frozen at {point}");
    signal(&frozen, "CONT").await;
    publish_as(&rig.database, 120..200, kind).await;
    rig.target.whole(200).await;
    assert_eq!(epoch(&rig.database).await, taken, "the lease stays where it is");
    assert!(settled(&rig.database).await >= before, "nothing that is settled is taken back");
    assert!(frozen.try_wait().unwrap().is_none(), "one frozen at {point} goes on as a standby");
    frozen.kill().await.unwrap();
    successor.kill().await.unwrap();
}

async fn row_07_frozen_for_longer_than_the_lease<DB: TestDb>() {
    let points = ["log.before_park", "log.after_park", "relay.after_read", "relay.after_ack:3"];
    join_all(points.map(frozen::<DB>)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_09_two_relays_of_one_configuration() {
    let rig = Rig::new(ALL).await;
    let mut twins = [rig.start(), rig.start()];
    for n in 0..10 {
        publish(&rig.database, n * 20..(n + 1) * 20).await;
        rig.target.whole((n as usize + 1) * 20).await;
    }
    assert_eq!(epoch(&rig.database).await, 1, "one of them works");
    assert_eq!(rig.target.count().await, 200);
    rig.kill(&mut twins[0]).await;
    publish(&rig.database, 200..220).await;
    rig.target.whole(220).await;
    assert!(epoch(&rig.database).await <= 2);
    stop(&mut twins[1]).await;
}

/// Sends the first signal to a relay whose broker is silent, with messages in flight. `publish_timeout`: how
/// long it waits for them.
async fn stopping(
    rig: &Rig,
    server: &NatsServer,
    numbers: std::ops::Range<u32>,
    publish_timeout: &str,
) -> Child {
    publish(&rig.database, numbers).await;
    let mut command = rig.command();
    command.env(RIG_LEASE, "90s").env(RIG_PUBLISH_TIMEOUT, publish_timeout);
    command.env("RUST_LOG", "info").env("TWINBOX_FREEZE_AT", "relay.after_read").stderr(Stdio::piped());
    let mut relay = command.spawn().unwrap();
    let mut said = BufReader::new(relay.stderr.take().unwrap()).lines();
    is_frozen(&relay).await;
    server.pause().unwrap();
    // What was read is sent before anybody looks whether to stop.
    signal(&relay, "TERM").await;
    signal(&relay, "CONT").await;
    while !said.next_line().await.unwrap().expect("it goes on").contains("stopping") {}
    // Somebody has to read on.
    tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
    relay
}

#[tokio::test(flavor = "multi_thread")]
async fn row_52_asked_to_stop_with_work_in_flight() {
    let server = NatsServer::start().unwrap();
    let rig = Rig::at(&server.url(), ALL).await;
    publish(&rig.database, 0..3000).await;
    let mut first = rig.start();
    eventually(async || (rig.target.count().await > 100).then_some(())).await;
    stop(&mut first).await;
    let owned = "SELECT count(*) FROM twinbox.cursors WHERE owner IS NOT NULL";
    assert_eq!(number(rig.database.pool(), owned).await, 0, "the lease is given back");
    let mut second = rig.start();
    rig.target.whole(3000).await;
    stop(&mut second).await;
    assert_eq!(rig.target.count().await, 3000, "what was in flight was waited for and recorded");

    // What is answered late is recorded too.
    let mut relay = stopping(&rig, &server, 3000..3010, "60s").await;
    server.resume().unwrap();
    assert_eq!(relay.wait().await.unwrap().code(), Some(0));
    publish(&rig.database, 3010..3020).await;
    let mut third = rig.start();
    rig.target.whole(3020).await;
    stop(&mut third).await;
    assert_eq!(rig.target.count().await, 3020);

    // A broker that stays silent is waited for as long as a publish may take.
    let mut relay = stopping(&rig, &server, 3020..3030, "2s").await;
    let asked = Instant::now();
    assert_eq!(relay.wait().await.unwrap().code(), Some(0));
    assert!(asked.elapsed() < BUSY, "a supervisor kills after 10 s: {:?}", asked.elapsed());
    assert_eq!(number(rig.database.pool(), owned).await, 0, "the lease is given back");
    server.resume().unwrap();
    let mut last = rig.start();
    rig.target.whole(3030).await;
    stop(&mut last).await;
    nothing_is_parked(&rig.database).await;
}

/// The second signal does not wait.
async fn asked_twice(name: &str, code: i32) {
    let server = NatsServer::start().unwrap();
    let rig = Rig::at(&server.url(), ALL).await;
    let mut relay = stopping(&rig, &server, 0..10, "60s").await;
    signal(&relay, name).await;
    let asked = Instant::now();
    assert_eq!(relay.wait().await.unwrap().code(), Some(code));
    assert!(asked.elapsed() < 2 * BUSY, "{:?}", asked.elapsed());
    free_leases(&rig.database).await;
    server.resume().unwrap();
    let mut last = rig.start();
    rig.target.whole(10).await;
    stop(&mut last).await;
    nothing_is_parked(&rig.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_52_asked_to_stop_twice() {
    tokio::join!(asked_twice("INT", 130), asked_twice("TERM", 143));
}

/// Of two statements of a move the second one must not find another message than the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_becomes_due_during_a_move_is_not_lost_on_mysql() {
    let rig = Rig::<MySql>::on(&Target::shared().url, ALL).await;
    let publish_due = async |n: u32, since: i64| {
        let draft = Draft::raw("orders.placed", 1, n_payload(n)).id(format!("o-{n}")).key("k");
        let draft = draft.not_before(Timestamp::from_micros(since));
        let mut tx = rig.database.begin().await.unwrap();
        rig.database.outbox().publish_draft(&mut tx, draft).await.unwrap();
        tx.commit().await.unwrap();
    };
    publish_due(0, 1_000_000).await;
    let mut relay = rig.freeze("log.before_forget_moved");
    is_frozen(&relay).await;
    publish_due(1, 0).await;
    signal(&relay, "CONT").await;
    rig.target.whole(2).await;
    stop(&mut relay).await;
}

// A frozen process would hold the lock of a SQLite file, for which all others wait.

fn migrating(programs: &Programs) -> tokio::process::Command {
    let mut command = programs.command(Program::Relay);
    command.arg("--migrate");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn row_41_five_relays_migrate_at_once_and_some_are_killed() {
    let store = empty_postgres().await;
    let programs = Programs::at(store.url().to_owned());
    let target = Target { name: programs.stream.clone(), ..Target::shared() };
    let start_five = || Vec::from_iter((0..5).map(|_| migrating(&programs).spawn().unwrap()));
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'twinbox'";
    let mut made = Vec::new();
    for millis in [30, 60, 90] {
        let mut relays = start_five();
        // A moment of no meaning.
        wait::pause(Pause::Pace, Duration::from_millis(millis)).await;
        for relay in &mut relays {
            relay.kill().await.unwrap();
        }
        made.push(number(store.pool(), tables).await);
    }
    let mut relays = start_five();
    eventually(async || store.check().await.ok()).await;
    let all = number(store.pool(), tables).await;
    assert!(made.iter().all(|made| [0, all].contains(made)), "{made:?} of {all}: it is done or not");
    publish(&store, 0..20).await;
    eventually(async || target.jetstream().await.get_stream(&target.name).await.ok()).await;
    target.whole(20).await;
    for relay in &mut relays {
        assert!(relay.try_wait().unwrap().is_none(), "all of them live");
        relay.kill().await.unwrap();
    }
    let each_once = "SELECT (count(*) = max(version))::int::bigint FROM twinbox.migrations";
    assert_eq!(number(store.pool(), each_once).await, 1);
    let newer = "INSERT INTO twinbox.migrations (version, name, compatible_from) VALUES (900, 'future', 900)";
    sqlx::query(newer).execute(store.pool()).await.unwrap();
    let refused = migrating(&programs).output().await.unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("needs a program of version 900 or newer"), "{said}");
}

crate::support::cases::cases_on! {
    [postgres: Postgres, mysql: MySql],
    [
        row_04_killed_between_reading_and_publishing,
        row_05_killed_between_the_acknowledgement_and_the_cursor,
        row_06_killed_with_some_of_many_acknowledged,
        row_07_frozen_for_longer_than_the_lease,
    ]
}
