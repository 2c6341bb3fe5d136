//! Postgres goes away, is replaced, answers late or not at all, and holds old snapshots.
use super::*;
use crate::support::{long, postgres::last_said};
use async_nats::jetstream::stream;
use sqlx::postgres::PgPoolOptions;
use std::process::Command;
use twinbox::{ops::Ops, relay::CircuitBreakerState};

#[tokio::test(flavor = "multi_thread")]
async fn row_08_the_lease_cannot_be_renewed_while_publishing_works() {
    let (store, target) = (postgres().await, Target::shared());
    let (proxy, by_proxy) = proxied(store.url()).await;
    let options = RelayOptions::new().lease(LEASE).rate(500);
    let destination = Nats::with_options(target.options().publish_timeout(PUBLISH_TIMEOUT)).unwrap();
    publish(&store, 0..2000).await;
    let cut_off = Running::run(Relay::with_options(by_proxy, destination, options));
    cut_off.published(100).await;
    proxy.freeze();
    let (frozen, at_freezing) = (Instant::now(), cut_off.counters.published());
    let successor = Running::run(target.quick(&store));
    eventually(async || (successor.counters.published() > 0).then_some(())).await;
    assert!(frozen.elapsed() >= LEASE - PUBLISH_TIMEOUT, "{:?}", frozen.elapsed());
    let before = cut_off.counters.published();
    // 500 a second for as long as an answer can come within the lease, and a fifth of a second more.
    assert!(before < at_freezing + 850, "it stops before its lease ends: {at_freezing}, {before}");
    target.whole(2000).await;
    assert_eq!(cut_off.counters.published(), before, "and sends nothing while another owns the destination");
    assert_eq!(target.count().await, 2000);
    proxy.thaw();
    publish(&store, 2000..2100).await;
    target.whole(2100).await;
    successor.stop().await;
    cut_off.stop().await;
    nothing_is_parked(&store).await;
}

/// Nothing else than a new connection notices when the database answers again.
#[tokio::test(flavor = "multi_thread")]
async fn row_54_a_database_that_is_silent_from_the_start() {
    let (store, target) = (postgres().await, Target::shared());
    let (proxy, by_proxy) = proxied(store.url()).await;
    publish(&store, 0..10).await;
    proxy.freeze();
    let asked = Running::run(target.quick(&by_proxy));
    let patient = Running::run(target.quick(&by_proxy));
    eventually(async || (patient.breaker.state() == CircuitBreakerState::Open).then_some(())).await;
    let stopping = Instant::now();
    asked.stop().await;
    // A look for replays may have begun, which takes 5 s.
    assert!(stopping.elapsed() < 2 * BUSY, "{:?}", stopping.elapsed());
    proxy.thaw();
    patient.published(10).await;
    target.whole(10).await;
    patient.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_34_database_crashes_restarts_and_loses_a_session() {
    let (mut server, store) = own().await;
    let target = Target::shared();
    let relayed = store_at(&server.url()).await;
    let running = Running::run(target.quick(&relayed));
    let traffic = Traffic::start(&store);
    running.published(100).await;
    for _ in 0..2 {
        let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        let terminated = sqlx::query_scalar::<_, i64>(terminate).fetch_one(store.pool()).await;
        assert!(terminated.is_ok_and(|sessions| sessions > 0));
        running.published(running.counters.published() + 50).await;
    }
    server.stop_immediate().unwrap();
    let down = running.counters.published();
    server.start_again().unwrap();
    running.published(down + 100).await;
    // One session dies of SIGKILL, and the server starts all over.
    let pid = last_said(store.pool(), "%cursors%").await;
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    let down = running.counters.published();
    running.published(down + 100).await;
    traffic.stop().await;
    let count = committed(&store).await;
    target.whole(count).await;
    let counters = running.stop().await;
    assert_eq!(target.count().await, count as u64);
    assert_eq!((counters.refused(), counters.dead_letters()), (0, 0));
    nothing_is_parked(&store).await;
    assert!(relayed.pool().size() <= 8);
    relayed.pool().close().await;
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    eventually(async || {
        (number(store.pool(), sessions).await <= i64::from(store.pool().size())).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_35_failover_to_a_standby_that_lacks_the_tail() {
    if lacks("pg_basebackup") {
        return;
    }
    let (mut primary, store) = own().await;
    let target = Target::shared();
    let (proxy, relayed) = proxied(&primary.url()).await;
    let running = Running::run(target.quick(&relayed));
    publish(&store, 0..100).await;
    running.published(100).await;
    let mut standby = tokio::task::block_in_place(|| standby_of(&primary));
    publish(&store, 100..120).await;
    let lost = target.whole(120).await.split_off(100);

    primary.stop_immediate().unwrap();
    standby.start_again().unwrap();
    proxy.lead_to(postgres_address(&standby.url()));
    let after = store_at(&standby.url()).await;
    // It can be read, and not be written to.
    last_said(after.pool(), "%pg_is_in_recovery() AS is_standby%").await;
    assert!(!running.task.is_finished());
    let promoted = sqlx::query_scalar::<_, bool>("SELECT pg_promote()").fetch_one(after.pool()).await;
    assert!(promoted.unwrap());
    publish(&after, 200..300).await;
    let mut arrived = target.messages(220).await;
    // The database gives the places in its log that the lost tail had to others.
    arrived.retain(|copy| !lost.contains(copy));
    assert_whole_and_ordered(&arrived, 200);
    let counters = running.stop().await;
    assert_eq!((counters.refused(), counters.dead_letters()), (0, 0));
    nothing_is_parked(&after).await;
}

/// Poison for a stream that takes 2 KB.
async fn publish_poison(store: &Store<Postgres>, id: &str) {
    let mut tx = store.begin().await.unwrap();
    let draft = Draft::raw("orders.placed", 1, vec![b' '; 4000]).id(id).key("k-1");
    store.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn row_36_the_answer_to_a_commit_is_lost() {
    let (store, target) = (postgres().await, Target::shared());
    target.create(stream::Config { max_message_size: 2048, ..target.config(&["orders.placed"]) }).await;
    let (proxy, relayed) = proxied(store.url()).await;
    let destination = Nats::with_options(target.existing().publish_timeout(PUBLISH_TIMEOUT)).unwrap();
    let running = Running::run(Relay::with_options(relayed, destination, RelayOptions::new().lease(LEASE)));
    for n in 0..4 {
        publish(&store, n * 20..(n + 1) * 20).await;
        running.published(u64::from(n + 1) * 20).await;
        proxy.lose_answer_to("COMMIT");
        publish_poison(&store, &format!("poison-{n}")).await;
        let dead = "SELECT count(*) FROM twinbox.parked_messages WHERE state = 'dead'";
        eventually(async || (number(store.pool(), dead).await == i64::from(n) + 1).then_some(())).await;
        eventually(async || proxy.has_lost().then_some(())).await;
    }
    publish(&store, 80..100).await;
    target.whole(100).await;
    running.stop().await;
    let parked = Ops::new(&store).parked_messages("nats", 10).await.unwrap();
    assert!(
        parked.iter().all(|parked| (parked.attempts, parked.state.as_str()) == (1, "dead")),
        "{parked:?}"
    );
    assert_eq!((parked.len(), target.count().await), (4, 100));
}

/// The fastest of some messages, so that a slow machine is not the database; each published when the one
/// before has arrived.
async fn latency(store: &Store<Postgres>, running: &Running, first: u32) -> Duration {
    let mut fastest = Duration::MAX;
    for n in first..first + 10 {
        let (before, at) = (running.counters.published(), Instant::now());
        publish(store, n..n + 1).await;
        running.published(before + 1).await;
        fastest = fastest.min(at.elapsed());
    }
    fastest
}

#[tokio::test(flavor = "multi_thread")]
async fn row_39_a_long_snapshot_while_many_rows_flow() {
    let rows = long::or(1_000_000_i64, 200_000);
    let taken = rows / 40;
    let (store, target) = (postgres().await, Target::shared());
    let mut snapshot = store.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    let seen = "SELECT count(*) FROM twinbox.outbox";
    assert_eq!(sqlx::query_scalar::<_, i64>(seen).fetch_one(&mut *snapshot).await.unwrap(), 0);
    let mut writer = store.begin().await.unwrap();
    store
        .outbox()
        .publish_draft(&mut writer, Draft::raw("orders.placed", 1, "{}").key("late"))
        .await
        .unwrap();
    // What it does not take flows through it all the same.
    let destination = Nats::with_options(target.options().publish_timeout(PUBLISH_TIMEOUT)).unwrap();
    let options = RelayOptions::new().lease(LEASE).types(["orders.placed".parse().unwrap()]);
    let running = Running::run(Relay::with_options(store.clone(), destination, options));
    let before = latency(&store, &running, 0).await;
    let insert = "INSERT INTO twinbox.outbox (type, key, payload)
        SELECT CASE n % 40 WHEN 0 THEN 'orders.placed' ELSE 'orders.viewed' END, 'k-' || n % 500, '{}'
        FROM generate_series(1, $1) n";
    sqlx::query(insert).bind(rows).execute(store.pool()).await.unwrap();
    eventually(async || (running.counters.published() >= 10 + taken as u64).then_some(())).await;
    let after = latency(&store, &running, 10).await;
    assert!(after < before * 4 + Duration::from_millis(200), "{before:?} before, {after:?} after");
    assert_eq!(sqlx::query_scalar::<_, i64>(seen).fetch_one(&mut *snapshot).await.unwrap(), 0);
    writer.commit().await.unwrap();
    target.whole(taken as usize + 21).await;
    running.stop().await;
    assert_eq!(target.count().await, taken as u64 + 21);
    nothing_is_parked(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_40_a_late_commit_with_a_smaller_position() {
    let (store, target) = (postgres().await, Target::shared());
    let running = Running::run(target.quick(&store));
    let mut late = store.begin().await.unwrap();
    let draft = Draft::raw("orders.placed", 1, "{}").id("late").key("late");
    store.outbox().publish_draft(&mut late, draft).await.unwrap();
    for n in 0..5 {
        publish(&store, n * 10..(n + 1) * 10).await;
        running.published(u64::from(n + 1) * 10).await;
    }
    // The window that would have held it is behind the cursor, and the relay is another one.
    running.stop().await;
    let running = Running::run(target.quick(&store));
    publish(&store, 50..60).await;
    running.published(10).await;
    late.commit().await.unwrap();
    running.published(11).await;
    let copies = target.whole(61).await;
    assert_eq!(copies.last().map(|(_, key, sequence)| (key.as_deref(), *sequence)), Some((Some("late"), 1)));
    assert_eq!(running.stop().await.duplicates(), 0);
}

/// As [`proxied`], with a pool that gives a silent connection up after a second. The relay asks each of those
/// that it has, one after the other.
async fn proxied_to_impatient(url: &str, connections: u32) -> (Proxy, Store<Postgres>) {
    let proxy = Proxy::start(postgres_address(url)).await.unwrap();
    let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(1));
    let pool = pool.connect_lazy(&through(url, &proxy)).unwrap();
    (proxy, Store::new(pool, SERVICE).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_54_half_open_connection_to_the_database() {
    let (store, target) = (postgres().await, Target::shared());
    let (proxy, relayed) = proxied_to_impatient(store.url(), 8).await;
    let running = Running::run(target.quick(&relayed));
    publish(&store, 0..50).await;
    running.published(50).await;
    proxy.freeze_open();
    let frozen = Instant::now();
    publish(&store, 50..100).await;
    target.whole(100).await;
    assert!(frozen.elapsed() < LEASE * 4 + BUSY, "{:?}", frozen.elapsed());
    running.stop().await;
    nothing_is_parked(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_54_half_open_as_often_as_the_pool_has_connections() {
    const CONNECTIONS: u32 = 3;
    let (store, target) = (postgres().await, Target::shared());
    let (proxy, relayed) = proxied_to_impatient(store.url(), CONNECTIONS).await;
    let running = Running::run(target.quick(&relayed));
    for n in 0..=CONNECTIONS {
        publish(&store, n * 20..(n + 1) * 20).await;
        target.whole((n as usize + 1) * 20).await;
        // A statement that waits is under way for sure, and what waits for it is dropped.
        let mut locked = store.pool().begin().await.unwrap();
        sqlx::query("LOCK TABLE twinbox.cursors").execute(&mut *locked).await.unwrap();
        waits_for_a_lock(store.pool()).await;
        proxy.freeze_open();
        locked.rollback().await.unwrap();
    }
    let last = (CONNECTIONS + 1) * 20;
    publish(&store, last..last + 20).await;
    target.whole(last as usize + 20).await;
    running.stop().await;
    nothing_is_parked(&store).await;
}

/// Everything else works, the renewal of the lease too.
#[tokio::test(flavor = "multi_thread")]
async fn row_54_one_page_is_never_answered() {
    let (store, target) = (postgres().await, Target::shared());
    let running = Running::run(target.quick(&store_at(store.url()).await));
    publish(&store, 0..50).await;
    running.published(50).await;
    let mut locked = store.begin().await.unwrap();
    sqlx::query("LOCK TABLE twinbox.outbox").execute(&mut *locked).await.unwrap();
    let pid = waits_for_a_lock(store.pool()).await;
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    locked.rollback().await.unwrap();
    publish(&store, 50..100).await;
    target.whole(100).await;
    signal("-CONT");
    let counters = running.stop().await;
    assert_eq!(counters.duplicates(), 0);
    nothing_is_parked(&store).await;
}
