//! The machine runs out of space or memory, has a wrong clock, or nobody reads the log.
use super::*;
use crate::support::rig::{RIG_LEASE, RIG_PUBLISH_TIMEOUT, Rig};
use async_nats::jetstream::stream::{self, DiscardPolicy};
use sqlx::{PgPool, postgres::PgConnectOptions};
use std::{
    os::unix::{
        fs::{MetadataExt as _, chown},
        process::ExitStatusExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use twinbox::relay::CircuitBreakerState;
use twinbox_testkit::{
    servers::{NatsOptions as ServerOptions, PostgresServer, find},
    skipped,
};

/// A file system of a size of its own, gone when this is dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    /// None: this machine does not let us mount one.
    fn of(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], folder.path());
        mounted.then_some(Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn grow(&self, size: &str) {
        assert!(mount(&["-o", &format!("remount,size={size}")], self.path()));
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(arguments).arg(at).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

async fn publish_large(store: &Store<Postgres>, numbers: std::ops::Range<u32>) {
    let mut tx = store.begin().await.unwrap();
    let draft = |n| Draft::raw("orders.placed", 1, vec![b'x'; 20_000]).key(format!("k-{}", n % 7));
    store.outbox().publish_all(&mut tx, numbers.map(draft).collect()).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn row_42_the_disk_of_the_broker_is_full() {
    let Some(disk) = Disk::of("4m") else { return skipped("row 42: no tmpfs can be mounted (not root?)") };
    let options = ServerOptions::default().jetstream_line(format!("store_dir: {:?}", disk.path()));
    let options = options.jetstream_line("max_file_store: 1G");
    let mut server = NatsServer::start_with(options).unwrap();
    let (store, target) = (postgres().await, Target::at(server.url()));
    let running = Running::run(target.quick(&store));
    publish_large(&store, 0..400).await;
    eventually(async || (running.counters.published() > 20).then_some(())).await;
    let log = server.dir().join("log");
    eventually(async || std::fs::read_to_string(&log).unwrap().contains("no space left").then_some(())).await;
    let acknowledged = running.counters.published();
    assert!(acknowledged < 400);
    nothing_is_parked(&store).await;
    disk.grow("64m");
    server.restart().unwrap();
    target.whole(400).await;
    let counters = running.stop().await;
    assert_eq!(counters.dead_letters(), 0);
    nothing_is_parked(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_42_the_disk_of_the_database_is_full() {
    let Some(disk) = Disk::of("24m") else { return skipped("row 42: no tmpfs can be mounted (not root?)") };
    let server = tokio::task::spawn_blocking(PostgresServer::start).await.unwrap().unwrap();
    let owner = std::fs::metadata(server.data_dir()).unwrap();
    chown(disk.path(), Some(owner.uid()), Some(owner.gid())).unwrap();
    let admin = PgPool::connect(&server.url()).await.unwrap();
    let tablespace = format!("CREATE TABLESPACE small LOCATION '{}'", disk.path().display());
    sqlx::raw_sql(AssertSqlSafe(tablespace)).execute(&admin).await.unwrap();
    sqlx::raw_sql("CREATE DATABASE small TABLESPACE small").execute(&admin).await.unwrap();
    let options: PgConnectOptions = server.url().parse().unwrap();
    let pool = PgPool::connect_with(options.database("small")).await.unwrap();
    let store = Store::new(pool.clone(), SERVICE).unwrap();
    store.migrate().await.unwrap();
    // So that ticks need another page soon.
    sqlx::raw_sql("ALTER TABLE twinbox.ticks SET (fillfactor = 10)").execute(&pool).await.unwrap();
    let target = Target::shared();
    let running = Running::run(target.quick(&store));
    publish(&store, 0..50).await;
    running.published(50).await;
    let fill =
        "CREATE TABLE IF NOT EXISTS ballast (page text); ALTER TABLE ballast ALTER page SET STORAGE PLAIN";
    sqlx::raw_sql(fill).execute(&pool).await.unwrap();
    let published = async |n: u32| {
        let mut tx = store.begin().await.unwrap();
        let drafts =
            (n..n + 10).map(|n| Draft::raw("orders.placed", 1, vec![b'x'; 1500]).key(format!("k-{}", n % 7)));
        let written = store.outbox().publish_all(&mut tx, drafts.collect()).await.is_ok();
        written && tx.commit().await.is_ok()
    };
    let small = async |n: u32| {
        let mut tx = store.begin().await.unwrap();
        let draft = Draft::raw("orders.placed", 1, "{}").key(format!("k-{}", n % 7));
        store.outbox().publish_draft(&mut tx, draft).await.is_ok() && tx.commit().await.is_ok()
    };
    let insert = "INSERT INTO ballast SELECT repeat('x', 7000) FROM generate_series(1, $1)";
    for rows in [256, 32, 4, 1] {
        while sqlx::query(insert).bind(rows).execute(&pool).await.is_ok() {}
    }
    // Whatever still fits is promised; what does not is refused to the producer.
    let mut n = 50;
    while published(n).await {
        n += 10;
    }
    // Small messages still fit into free space of pages. The relay has to wait for the ticks that they need.
    eventually(async || {
        small(n).await;
        assert!(!running.task.is_finished(), "the relay waits for a tick that can be written");
        (running.breaker.state() == CircuitBreakerState::Open).then_some(())
    })
    .await;
    sqlx::raw_sql("DROP TABLE ballast").execute(&pool).await.unwrap();
    assert!(published(n).await);
    let count = committed(&store).await;
    target.whole(count).await;
    let counters = running.stop().await;
    assert_eq!((counters.refused(), counters.dead_letters()), (0, 0));
    nothing_is_parked(&store).await;
}

/// Returns how many kilobytes of the memory of a process are the file of its program.
async fn program_kb(process: &tokio::process::Child) -> u64 {
    let maps = format!("/proc/{}/maps", process.id().expect("it runs"));
    eventually(async || {
        let maps = std::fs::read_to_string(&maps).unwrap();
        // At first it is still a copy of this process.
        let of_file = maps.lines().filter(|line| line.ends_with("/it-helper"));
        let bytes = of_file.map(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            u64::from_str_radix(to, 16).unwrap() - u64::from_str_radix(from, 16).unwrap()
        });
        Some(bytes.sum::<u64>() / 1024).filter(|kb| *kb > 0)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_43_killed_for_want_of_memory() {
    // Enough for small messages, and less than the large ones take.
    const MEMORY_KB: u64 = 20_000;
    // Without TLS, whose certificates of the system take memory of their own.
    let server = NatsServer::start().unwrap();
    let rig = Rig::at(&server.url(), &["orders.placed"]).await;
    let mut healthy = rig.start();
    let limit_kb = program_kb(&healthy).await + MEMORY_KB;
    rig.kill(&mut healthy).await;
    publish(&rig.database, 0..10).await;
    let relay = rig.command();
    let mut limited = tokio::process::Command::new("sh");
    limited.args(["-c", "ulimit -v \"$1\" && exec \"$0\" run"]).arg(relay.as_std().get_program());
    limited.arg(limit_kb.to_string());
    for (name, value) in relay.as_std().get_envs() {
        limited.env(name, value.unwrap());
    }
    let mut relay = limited.kill_on_drop(true).stderr(Stdio::null()).spawn().unwrap();
    rig.target.whole(10).await;
    let mut tx = rig.database.begin().await.unwrap();
    let draft = |n| Draft::raw("orders.placed", 1, vec![b'x'; 900_000]).key(format!("k-{}", n % 7));
    rig.database.outbox().publish_all(&mut tx, (0..60).map(draft).collect()).await.unwrap();
    tx.commit().await.unwrap();
    let ended = timeout(PATIENCE, relay.wait()).await.expect("there is not enough memory").unwrap();
    assert!(ended.signal().is_some(), "{ended}");
    free_leases(&rig.database).await;
    let mut relay = rig.start();
    rig.target.whole(70).await;
    relay.kill().await.unwrap();
    nothing_is_parked(&rig.database).await;
}

/// Its clock jumps while it runs, and differs from the database's from the start.
async fn clock(library: &Path, from: &str, to: &str) {
    let rig = Rig::new(&["orders.placed", "orders.paid"]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offset");
    std::fs::write(&file, from).unwrap();
    let mut command = rig.command();
    // With a shorter one a busy machine has hardly written the lease when no time is left to send.
    let mut relay = command
        .env(RIG_LEASE, "8s")
        .env(RIG_PUBLISH_TIMEOUT, "4s")
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", &file)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .spawn()
        .unwrap();
    publish(&rig.database, 0..100).await;
    rig.target.whole(100).await;
    std::fs::write(&file, to).unwrap();
    for n in 1..4 {
        publish(&rig.database, n * 100..(n + 1) * 100).await;
        rig.target.whole((n as usize + 1) * 100).await;
    }
    // The lease is renewed, by the clock of the database. Of a relay that lost it on a slow machine the row
    // has no owner until it takes it again.
    let lease = "SELECT (extract(epoch FROM lease_until) * 1000)::bigint,
        ceil(extract(epoch FROM lease_until - now()))::bigint
        FROM twinbox.cursors WHERE owner IS NOT NULL";
    let owned =
        async || sqlx::query_as::<_, (i64, i64)>(lease).fetch_optional(rig.database.pool()).await.unwrap();
    let (before, _) = eventually(async || owned().await).await;
    let (_, ahead) = eventually(async || owned().await.filter(|(until, _)| *until > before)).await;
    assert!((-60..=8).contains(&ahead), "{ahead} s");
    rig.kill(&mut relay).await;
    let mut successor = rig.start();
    publish(&rig.database, 400..420).await;
    rig.target.whole(420).await;
    successor.kill().await.unwrap();
    nothing_is_parked(&rig.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_44_the_clock_jumps_by_an_hour() {
    let Some(library) = std::env::var_os("TWINBOX_FAKETIME").map(PathBuf::from) else {
        return skipped("row 44: libfaketime is not there; TWINBOX_FAKETIME names it");
    };
    tokio::join!(
        clock(&library, "+0", "+3600"),
        clock(&library, "+3600", "-3600"),
        clock(&library, "-3600", "+0")
    );
}

/// Nobody reads what it logs, which is a lot.
#[tokio::test(flavor = "multi_thread")]
async fn row_55_nobody_reads_the_log() {
    let rig = Rig::new(&["orders.placed"]).await;
    let mut relay = rig.command().env("RUST_LOG", "trace").stderr(Stdio::piped()).spawn().unwrap();
    for n in 0..10 {
        publish(&rig.database, n * 100..(n + 1) * 100).await;
        rig.target.whole((n as usize + 1) * 100).await;
    }
    let pipe = relay.stderr.take().unwrap();
    assert!(relay.try_wait().unwrap().is_none());
    relay.kill().await.unwrap();
    drop(pipe);
    assert_eq!(rig.target.count().await, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19_a_server_before_2_10() {
    let binary = match find::nats_server_old() {
        Ok(binary) => binary,
        Err(error) => return skipped(&format!("row 19: {error}")),
    };
    let server = NatsServer::start_with(ServerOptions::default().binary(binary)).unwrap();
    let (store, target) = (postgres().await, Target::at(server.url()));
    publish(&store, 0..100).await;
    let running = Running::run(target.quick(&store));
    running.published(100).await;
    running.stop().await;
    target.whole(100).await;
    // What the server cannot do is noticed by what it answers: a stream of another shape is refused.
    let other = Target::at(server.url());
    let config = other.config(&["orders.placed"]);
    other.create(stream::Config { discard: DiscardPolicy::Old, ..config }).await;
    let refused = other.quick(&store).run(CancellationToken::new());
    let error = timeout(PATIENCE, refused).await.unwrap().unwrap_err();
    assert!(!error.is_transient(), "{error}");
}
