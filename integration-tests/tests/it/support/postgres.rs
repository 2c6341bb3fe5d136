//! Servers of Postgres, and connections to them through a proxy.
use super::{
    database::SERVICE,
    databases::{PgPool, PgPoolOptions, Postgres},
    wait::eventually,
};
use std::{
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use twinbox::Store;
use twinbox_testkit::{
    proxy::Proxy,
    servers::{PostgresServer, find},
    skipped,
};

/// Opens a store at a URL.
pub(crate) async fn store_at(url: &str) -> Store<Postgres> {
    // Before it hands out a connection, sqlx pings it and waits for 30 s. So a dead connection needs a
    // time-out.
    let pool = PgPoolOptions::new().max_connections(8).acquire_timeout(Duration::from_secs(5));
    let pool = pool.connect(url).await.unwrap();
    Store::new(pool, SERVICE).unwrap()
}

/// Opens a store whose sessions have other settings of the server.
pub(crate) async fn store_with(url: &str, settings: &[(&str, &str)]) -> Store<Postgres> {
    let mut url = url.to_owned();
    for (name, value) in settings {
        url += &format!("{}options[{name}]={value}", if url.contains('?') { '&' } else { '?' });
    }
    store_at(&url).await
}

/// Opens a store with a pool that counts how often a connection is taken from it.
pub(crate) async fn counted(url: &str, connections: u32, taken: &Arc<AtomicUsize>) -> Store<Postgres> {
    let taken = taken.clone();
    let pool = PgPoolOptions::new().max_connections(connections).before_acquire(move |_, _| {
        taken.fetch_add(1, SeqCst);
        Box::pin(async { Ok(true) })
    });
    Store::new(pool.connect(url).await.unwrap(), SERVICE).unwrap()
}

/// Starts a proxy in front of the database. Returns it with a store that connects through it.
pub(crate) async fn proxied(url: &str) -> (Proxy, Store<Postgres>) {
    let proxy = Proxy::start(postgres_address(url)).await.unwrap();
    let store = store_at(&through(url, &proxy)).await;
    (proxy, store)
}

/// Starts a server and migrates its database.
pub(crate) async fn own() -> (PostgresServer, Store<Postgres>) {
    let server = tokio::task::spawn_blocking(PostgresServer::start).await.unwrap().unwrap();
    let store = store_at(&server.url()).await;
    store.migrate().await.unwrap();
    (server, store)
}

/// Reports that a test cannot run because a tool is not beside the server. Some packages have the server
/// alone.
pub(crate) fn lacks(tool: &str) -> bool {
    let is_there = find::postgres_bin().unwrap().join(tool).exists();
    if !is_there {
        skipped(&format!("{tool} is not beside this Postgres"));
    }
    !is_there
}

/// Reports that a test cannot run because the server counts late what a session does.
pub(crate) async fn counts_late(pool: &PgPool) -> bool {
    let flush = "SELECT EXISTS (SELECT FROM pg_proc WHERE proname = 'pg_stat_force_next_flush')";
    let counts_at_once: bool = sqlx::query_scalar(flush).fetch_one(pool).await.unwrap();
    if !counts_at_once {
        skipped("Postgres before 15 counts late what a session does");
    }
    !counts_at_once
}

/// Makes a standby of `primary`. It is up to date and does not run.
pub(crate) fn standby_of(primary: &PostgresServer) -> PostgresServer {
    let mut standby = PostgresServer::start().unwrap();
    standby.stop_fast().unwrap();
    let data = standby.data_dir();
    std::fs::remove_dir_all(&data).unwrap();
    let owner = std::fs::metadata(standby.dir()).unwrap();
    let mut copy = Command::new(find::postgres_bin().unwrap().join("pg_basebackup"));
    let port = primary.port().to_string();
    copy.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port, "-R", "-c", "fast", "-X", "stream", "-D"]);
    copy.arg(&data).uid(std::os::unix::fs::MetadataExt::uid(&owner)).current_dir("/");
    assert!(copy.status().unwrap().success());
    standby
}

/// Returns the address of the server of a URL.
pub(crate) fn postgres_address(url: &str) -> SocketAddr {
    url.split(['@', '/']).nth(3).expect("a URL with a user").parse().expect("an address with a port")
}

/// Returns the URL with the address of the proxy.
pub(crate) fn through(url: &str, proxy: &Proxy) -> String {
    at_proxy(url, proxy.address())
}

/// Returns the URL with the address of something that reads what passes: without TLS.
pub(crate) fn at_proxy(url: &str, address: SocketAddr) -> String {
    let url = url.replace(&postgres_address(url).to_string(), &address.to_string());
    url.replace("sslmode=verify-full", "sslmode=disable")
}

/// Waits until a session of this database waits for a lock. Returns the process id of the session.
pub(crate) async fn waits_for_a_lock(pool: &PgPool) -> i64 {
    let waits = "SELECT pid::bigint FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually(async || sqlx::query_scalar(waits).fetch_optional(pool).await.unwrap()).await
}

/// Waits until the last statement of a session is like `text`. Returns the process id of the session. The
/// text is a bind: written into the statement, it would find the session that asks.
pub(crate) async fn last_said(pool: &PgPool, text: &str) -> i64 {
    let session = "SELECT pid::bigint FROM pg_stat_activity WHERE query LIKE $1 LIMIT 1";
    eventually(async || sqlx::query_scalar(session).bind(text).fetch_optional(pool).await.ok().flatten())
        .await
}
