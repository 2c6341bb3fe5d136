//! The program tells systemd that it is ready, alive and stopping.
use super::{Manager, stop};
use crate::support::{
    database,
    postgres::{postgres_address, through},
    processes::{Program, Programs},
    relay::{Target, publish},
};
use tokio::process::Child;
use twinbox_testkit::proxy::Proxy;

/// Shorter than in a unit, so that there are beats while a test waits.
const WATCHDOG_USEC: &str = "100000";

fn start(manager: &Manager, programs: &Programs) -> Child {
    let mut command = programs.command(Program::Relay);
    command.env("NOTIFY_SOCKET", manager.address()).env("WATCHDOG_USEC", WATCHDOG_USEC);
    command.spawn().expect("a program just built starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_hears_that_the_relay_is_ready_alive_and_stopping() {
    let (database, manager) = (database::postgres().await, Manager::new());
    let programs = Programs::at(database.url().to_owned());
    let relay = start(&manager, &programs);
    manager.until(&["READY=1"]).await;
    publish(&database, 0..5).await;
    let target = Target { url: programs.nats_url.clone(), name: programs.stream.clone() };
    target.holds(5, async_nats::ConnectOptions::new()).await;
    let mut later = Vec::new();
    for _ in 0..3 {
        later.extend(manager.until(&["WATCHDOG=1"]).await);
    }
    assert_eq!(stop(relay).await, Some(0));
    later.extend(manager.rest());
    assert!(later.contains(&"STOPPING=1".to_owned()), "{later:?}");
    assert!(!later.contains(&"READY=1".to_owned()), "it is ready once: {later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_database_is_away_is_alive_and_not_ready() {
    let (database, manager) = (database::postgres().await, Manager::new());
    let proxy = Proxy::start(postgres_address(database.url())).await.unwrap();
    proxy.cut();
    let _relay = start(&manager, &Programs::at(through(database.url(), &proxy)));
    let mut before = Vec::new();
    for _ in 0..3 {
        before.extend(manager.until(&["STATUS=waiting for database: ", "READY=1"]).await);
    }
    assert!(before.contains(&"WATCHDOG=1".to_owned()), "{before:?}");
    assert!(!before.contains(&"READY=1".to_owned()), "{before:?}");
    proxy.restore();
    manager.until(&["READY=1"]).await;
}

/// Before it has a cursor, a new destination would refuse a log with messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_without_a_cursor_in_the_log_is_not_ready() {
    let (database, manager) = (database::postgres().await, Manager::new());
    let mut lock = database.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE twinbox.cursors IN SHARE MODE").execute(&mut *lock).await.unwrap();
    let _relay = start(&manager, &Programs::at(database.url().to_owned()));
    let waits = ["STATUS=waiting for destination kill: its cursor", "READY=1"];
    for _ in 0..2 {
        let heard = manager.until(&waits).await;
        assert!(!heard.contains(&"READY=1".to_owned()), "{heard:?}");
    }
    lock.commit().await.unwrap();
    manager.until(&["READY=1"]).await;
}
