//! Destinations that are slow, far away, or behind a narrow line, and a type that they do not take: all else
//! arrives, about once, and the breaker stays closed.
use super::*;
use crate::eventbridge;
use crate::support::{
    broker_users::{host_of, inbox_of, nats_url_for, prefix_of},
    long,
    postgres::counts_late,
    processes::{Program, Programs},
    publisher::{secret, send_to},
    relay::{PATIENCE, Running, Target, publish, publish_as},
    wait::{self, Pause, eventually, in_time},
};
use std::{process::Stdio, time::Instant};
use tokio::io::AsyncReadExt as _;
use twinbox::{
    aws::{EventBridge, EventBridgeOptions},
    relay::CircuitBreakerState,
};
use twinbox_core::Destination as _;
use twinbox_testkit::{
    aws::FakeEventBridge,
    proxy::Proxy,
    servers::{MotoServer, NatsOptions as ServerOptions},
};

/// Waits until so many are published and says how long it took. The breaker never opens meanwhile.
async fn unbroken(running: &Running, published: u64) -> Duration {
    let start = Instant::now();
    let all = async {
        while running.counters.published() < published {
            assert_ne!(running.breaker.state(), CircuitBreakerState::Open);
            wait::pause(Pause::Look, Duration::from_millis(5)).await;
        }
    };
    timeout(3 * PATIENCE, all).await.expect("it follows");
    start.elapsed()
}

fn bus(url: String) -> EventBridge {
    let options = EventBridgeOptions::new("orders").region("eu-west-1").endpoint_url(url);
    EventBridge::with_options(options.credentials("AKIDTEST", "secret", None)).unwrap()
}

/// A hundred entries a second, one request after another; then ten times as many.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_bus_is_kept_busy_and_not_overrun() {
    // Messages are sent twice in the first seconds, and once more when the bus is faster.
    let (slow, fast) = long::or((3000, 10_000), (600, 3000));
    let (store, fake) = (database::postgres().await, FakeEventBridge::start("orders").await.unwrap());
    fake.pace(Some(100.0));
    // One of a key is under way at a time, which would be another limit.
    publish_keyless(&store, slow).await;
    let running = Running::run(Relay::new((*store).clone(), bus(fake.endpoint_url())));
    let took = unbroken(&running, slow as u64).await;
    println!("{slow} events in {took:?}, raw {} s; sent {}", slow / 100, fake.taken().len());
    assert!(fake.taken().len() < slow + 60, "{} of {slow} events", fake.taken().len());
    fake.pace(Some(1000.0));
    publish_keyless(&store, fast).await;
    let all = slow + fast;
    let took = unbroken(&running, all as u64).await;
    println!("{fast} events ten times as fast in {took:?}, raw {} s", fast / 1000);
    assert!(fake.taken().len() < all + 260, "{} of {all} events", fake.taken().len());
    running.stop().await;
}

/// The emulator at its own pace, whatever that is.
#[tokio::test(flavor = "multi_thread")]
async fn an_emulator_is_not_overrun() {
    const EVENTS: usize = 3000;
    let (store, moto) = (database::postgres().await, tokio::task::spawn_blocking(MotoServer::start));
    let moto = moto.await.unwrap().unwrap();
    let options = EventBridgeOptions::new("default").region("eu-west-1").endpoint_url(moto.url());
    let moto = EventBridge::with_options(options.credentials("AKIDTEST", "secret", None)).unwrap();
    let (mut publisher, start) = (moto.connect(&secret()).await.unwrap(), Instant::now());
    for first in (0..EVENTS).step_by(10) {
        let events: Vec<_> = (first..first + 10).map(eventbridge::message).collect();
        let answers = send_to(&mut *publisher, &events.iter().collect::<Vec<_>>()).await;
        assert!(answers.iter().all(Result::is_ok));
    }
    let raw = start.elapsed();
    publish_keyless(&store, EVENTS).await;
    let running = Running::run(Relay::new((*store).clone(), moto));
    let took = unbroken(&running, EVENTS as u64).await;
    println!("{EVENTS} events to moto in {took:?}, raw, one request after another, {raw:?}");
    let counters = running.stop().await;
    assert_eq!((counters.published(), counters.parked(), counters.dead_letters()), (EVENTS as u64, 0, 0));
}

async fn behind_a_proxy(latency: Duration, bits_per_second: Option<u64>) -> (Proxy, Target) {
    let target = Target::shared();
    let address = host_of(&target.url).parse().unwrap();
    let proxy = Proxy::start(address).await.unwrap();
    proxy.lead_over(latency, bits_per_second);
    (proxy, target)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_far_away_is_kept_busy() {
    let (millis, messages) = long::or((300, 20_000), (100, 10_000));
    let (store, (proxy, target)) =
        (database::postgres().await, behind_a_proxy(Duration::from_millis(millis), None).await);
    publish_keyless(&store, messages).await;
    let far = target.through(&proxy).destination();
    let running = Running::run(Relay::new((*store).clone(), far));
    // Connecting takes several ways there and back, and so does the window until it is wide.
    let before = unbroken(&running, 4000).await;
    let took = unbroken(&running, messages as u64).await;
    let window = (messages - 4000) as u64 * 2 * millis / 2000;
    println!("4,000 messages in {before:?}, the others in {took:?}; 2,000 a round trip would be {window} ms");
    assert!(target.count().await < messages as u64 + messages as u64 / 50);
    running.stop().await;
}

async fn publish_keyless(store: &Store<Postgres>, count: usize) {
    let insert =
        "INSERT INTO twinbox.outbox (type, payload) SELECT 'orders.placed', '{}' FROM generate_series(1, $1)";
    let count = i64::try_from(count).unwrap();
    sqlx::query(insert).bind(count).execute(store.pool()).await.unwrap();
}

/// 200 KB each over 100 Mbit/s, by the program, to one destination and to three. It would tell of an outage
/// as an error.
#[tokio::test(flavor = "multi_thread")]
async fn large_messages_over_a_narrow_line_arrive() {
    const MEMORY_KB_MAX: u64 = 200 * 1024;
    // 3,000 of them take four minutes. 150 are more than the line carries before a publish is given up.
    let count = long::or(3000_u64, 150);
    for names in [&["KILL"][..], &["KILL", "SECOND", "THIRD"]] {
        let (store, (proxy, target)) =
            (database::postgres().await, behind_a_proxy(Duration::ZERO, Some(100_000_000)).await);
        let insert = "INSERT INTO twinbox.outbox (type, key, payload) \
            SELECT 'orders.placed', 'k' || n, convert_to(repeat('x', 200000), 'UTF8') FROM \
            generate_series(1, $1) n";
        sqlx::query(insert).bind(count.cast_signed()).execute(store.pool()).await.unwrap();
        let mut programs = Programs::at(store.url().to_owned());
        programs.nats_url = nats_url_for("relay", &target.through(&proxy).url);
        let mut command = programs.command(Program::Relay);
        let streams = Vec::from_iter(names.iter().map(|name| format!("{}_{name}", target.name)));
        for (name, stream) in names.iter().zip(&streams) {
            let prefix = prefix_of(stream);
            for (setting, value) in [
                ("KIND", "nats"),
                ("START", "beginning"),
                ("URL", &programs.nats_url),
                ("INBOX_PREFIX", &inbox_of(&programs.nats_url)),
                ("STREAM", stream),
                ("PREFIX", &prefix),
                ("CREATE_STREAM", "true"),
            ] {
                command.env(format!("TWINBOX_RELAY__DESTINATIONS__{name}__{setting}"), value);
            }
        }
        let start = Instant::now();
        let mut relay = command.stderr(Stdio::piped()).spawn().unwrap();
        for stream in &streams {
            let held = Target { name: stream.clone(), url: target.url.clone() };
            let whole = held.holds_within(5 * PATIENCE, count, async_nats::ConnectOptions::new());
            whole.await;
            assert_eq!(held.count().await, count, "about once");
        }
        let raw = count as f64 * names.len() as f64 * 200_300.0 / 12_500_000.0;
        let status = std::fs::read_to_string(format!("/proc/{}/status", relay.id().unwrap())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
        println!("{count} messages to {} in {:.1?}, raw {raw:.1} s; {peak}", names.len(), start.elapsed());
        assert!(peak.trim_end_matches(" kB").parse::<u64>().unwrap() < MEMORY_KB_MAX, "{peak}");
        relay.kill().await.unwrap();
        let mut said = String::new();
        relay.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "");
    }
}

/// One in twenty, and three hundred after each other. The server says so, not in place of the
/// acknowledgement.
#[tokio::test(flavor = "multi_thread")]
async fn a_type_that_may_not_be_published_stops_no_other() {
    let options = ServerOptions::default().line(
        "authorization { users: [ { user: admin, password: a }, \
         { user: relay, password: r, permissions: { publish: { deny: \"t.*.*.orders.secret\" } } } ] }",
    );
    let server = tokio::task::spawn_blocking(|| NatsServer::start_with(options)).await.unwrap().unwrap();
    let url = |user: &str| server.url().replace("nats://", &format!("nats://{user}@"));
    let (store, target) = (database::postgres().await, Target::at(url("admin:a")));
    let is_secret = |n: u32| n.is_multiple_of(20) || (4000..4300).contains(&n);
    publish_as(&store, 0..10_000, |n| if is_secret(n) { "orders.secret" } else { "orders.placed" }).await;
    let secret = (0..10_000).filter(|n| is_secret(*n)).count();
    Nats::with_options(target.options()).unwrap().provision(&Default::default()).await.unwrap();
    let relay = Nats::with_options(target.by(url("relay:r")).existing()).unwrap();
    let running = Running::run(Relay::new((*store).clone(), relay));
    let start = Instant::now();
    running.published((10_000 - secret) as u64).await;
    let took = start.elapsed();
    println!("{} messages in {took:?} beside {secret} of a type that is denied", 10_000 - secret);
    let others = "SELECT count(*) FROM twinbox.parked_messages WHERE type <> 'orders.secret'";
    eventually(async || {
        let others: i64 = sqlx::query_scalar(others).fetch_one(store.pool()).await.unwrap();
        (others == 0).then_some(())
    })
    .await;
    let dead = "SELECT count(*) FROM twinbox.parked_messages WHERE state = 'dead' AND last_error = \
                'nats.permission'";
    eventually(async || {
        let dead: i64 = sqlx::query_scalar(dead).fetch_one(store.pool()).await.unwrap();
        (dead == i64::try_from(secret).unwrap()).then_some(())
    })
    .await;
    let admin = async_nats::ConnectOptions::with_user_and_password("admin".into(), "a".into());
    let jetstream = jetstream::new(admin.connect(server.url()).await.unwrap());
    let mut stream = jetstream.get_stream(&target.name).await.unwrap();
    let stored = stream.info().await.unwrap().state.messages;
    assert_eq!(stored, (10_000 - secret) as u64, "nothing is stored twice");
    running.stop().await;
}

/// Ten idle destinations ask the database little more often than one.
#[tokio::test(flavor = "multi_thread")]
async fn ten_idle_destinations_share_a_look() {
    if counts_late(database::postgres().await.pool()).await {
        return;
    }
    let (one, ten) = tokio::join!(transactions_of_idle(1), transactions_of_idle(10));
    println!("transactions a second: {one:.1} for one destination, {ten:.1} for ten");
    assert!(one > 0.0 && ten < 3.0 * one, "{one:.1} for one destination, {ten:.1} for ten");
    assert!(ten <= 75.0, "a look each 25 ms, and a lease each second for ten: {ten:.1}");
}

/// Returns the transactions a second of a database with so many destinations that have nothing to do.
async fn transactions_of_idle(destinations: u32) -> f64 {
    let (store, target) = (database::postgres().await, Target::shared());
    let run = |n: u32| {
        let name = format!("{}_{n}", target.name);
        let options = target.options().stream(&name).prefix(prefix_of(&name)).id(&name);
        Running::run(Relay::new((*store).clone(), Nats::with_options(options).unwrap()))
    };
    publish(&store, 0..1).await;
    let running = Vec::from_iter((0..destinations).map(run));
    for relay in &running {
        relay.published(1).await;
    }
    let transactions = transactions_a_second(&store).await;
    for relay in running {
        relay.stop().await;
    }
    transactions
}

/// Counts the transactions of a database whose relays are idle: once they are, two looks find about as many.
async fn transactions_a_second(store: &Store<Postgres>) -> f64 {
    let (mut last, (_, mut before)) = (f64::INFINITY, transactions(store).await);
    in_time(async {
        loop {
            let start = Instant::now();
            wait::pause(Pause::Pace, Duration::from_secs(3)).await;
            let took = start.elapsed().as_secs_f64();
            let (reports, after) = transactions(store).await;
            let now = (after - before - reports) as f64 / took;
            if (now - last).abs() < last / 10.0 {
                return now;
            }
            (last, before) = (now, after);
        }
    })
    .await
}

/// Returns how many transactions were counted, and how many of them this look has made: a connection that is
/// idle reports what it did only when it is asked, or after ten seconds.
async fn transactions(store: &Store<Postgres>) -> (i64, i64) {
    let idle = Vec::from_iter(std::iter::from_fn(|| store.pool().try_acquire()));
    let reports = i64::try_from(idle.len()).unwrap();
    for mut conn in idle {
        sqlx::query("SELECT pg_stat_force_next_flush()").execute(&mut *conn).await.unwrap();
    }
    let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    (reports, sqlx::query_scalar(count).fetch_one(store.pool()).await.unwrap())
}
