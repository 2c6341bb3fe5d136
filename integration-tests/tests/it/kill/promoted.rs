//! A primary that is killed, and the replica that takes over. A commit waits for a replica: none is lost.
use super::{
    crashing::{Faults, Server, survives},
    *,
};
use crate::support::{
    postgres::{lacks, postgres_address, standby_of, through},
    wait::eventually,
};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, PgConnection, Row as _};
use std::collections::VecDeque;
use tokio::runtime::Handle;
use twinbox_testkit::{
    proxy::Proxy,
    servers::{MySqlOptions, MySqlServer, NatsServer, PostgresServer, find},
};

/// Runs in a thread that may block.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(future))
}

async fn broker() -> NatsServer {
    tokio::task::spawn_blocking(|| NatsServer::start().unwrap()).await.unwrap()
}

/// A primary and its standby, behind one address.
struct Pair {
    primary: PostgresServer,
    standby: PostgresServer,
    proxy: Proxy,
    url: String,
}

impl Pair {
    async fn start() -> Self {
        let primary = tokio::task::spawn_blocking(|| PostgresServer::start().unwrap()).await.unwrap();
        let proxy = Proxy::start(postgres_address(&primary.url())).await.unwrap();
        let (standby, url) = (followed(&primary).await, through(&primary.url(), &proxy));
        Self { primary, standby, proxy, url }
    }
}

/// Makes a standby, for which the commits of the primary wait from then on.
async fn followed(primary: &PostgresServer) -> PostgresServer {
    let mut standby = tokio::task::block_in_place(|| standby_of(primary));
    standby.start_again().unwrap();
    let mut conn = PgConnection::connect(&primary.url()).await.unwrap();
    for set in ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"] {
        sqlx::raw_sql(set).execute(&mut conn).await.unwrap();
    }
    let is_followed = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    eventually(async || {
        let followed = sqlx::query_scalar::<_, i64>(is_followed).fetch_one(&mut conn).await;
        (followed.unwrap() == 1).then_some(())
    })
    .await;
    standby
}

impl Server for Pair {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn log(&self) -> String {
        self.primary.log()
    }

    fn crash(&mut self) {
        self.primary.stop_immediate().unwrap();
    }

    fn recover(&mut self) {
        wait_for(async {
            let mut conn = PgConnection::connect(&self.standby.url()).await.unwrap();
            assert!(sqlx::query_scalar::<_, bool>("SELECT pg_promote()").fetch_one(&mut conn).await.unwrap());
            let next = followed(&self.standby).await;
            self.primary = std::mem::replace(&mut self.standby, next);
            self.proxy.lead_to(postgres_address(&self.primary.url()));
        });
    }
}

/// Servers of which each follows the one before it, behind one address. The first is the primary.
struct Chain {
    servers: VecDeque<MySqlServer>,
    proxy: Proxy,
    url: String,
    words: Words,
}

/// The statements of replication: one product knows the new words alone, the other one the old.
#[derive(Clone, Copy)]
struct Words {
    options: &'static [(&'static str, &'static str)],
    /// Forgets what the server has written to its log by itself.
    forget: &'static str,
    /// Has `{port}` and `{password}`.
    follow: &'static str,
    /// Commits wait until a replica has them.
    wait_for_replica: &'static str,
    /// Answers `ON` while they do.
    waits: &'static str,
    stop_receiving: &'static str,
    status: &'static str,
    /// A column of the status: the transactions that were received.
    received: &'static str,
    /// Has `{received}`.
    wait_for_received: &'static str,
    promote: &'static str,
}

const MARIADB: Words = Words {
    options: &[("log-slave-updates", "ON")],
    forget: "RESET MASTER; SET GLOBAL gtid_slave_pos = ''",
    follow: "SET GLOBAL rpl_semi_sync_slave_enabled = ON;
        CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'twinbox',
            MASTER_PASSWORD = '{password}', MASTER_USE_GTID = slave_pos, MASTER_SSL = 0,
            MASTER_CONNECT_RETRY = 1;
        START SLAVE",
    wait_for_replica: "SET GLOBAL rpl_semi_sync_master_timeout = 600000;
        SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC;
        SET GLOBAL rpl_semi_sync_master_enabled = ON",
    waits: "SELECT variable_value FROM information_schema.global_status
        WHERE variable_name = 'rpl_semi_sync_master_status'
            AND EXISTS (SELECT 1 FROM information_schema.global_status
                WHERE variable_name = 'rpl_semi_sync_master_clients' AND variable_value = '1')",
    stop_receiving: "STOP SLAVE IO_THREAD",
    status: "SHOW SLAVE STATUS",
    received: "Gtid_IO_Pos",
    wait_for_received: "SELECT CAST(MASTER_GTID_WAIT('{received}', 300) AS SIGNED)",
    promote: "STOP SLAVE; RESET SLAVE ALL",
};

const MYSQL: Words = Words {
    options: &[("gtid-mode", "ON"), ("enforce-gtid-consistency", "ON")],
    forget: "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so';
        INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so';
        RESET BINARY LOGS AND GTIDS",
    follow: "SET GLOBAL rpl_semi_sync_replica_enabled = ON;
        CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port},
            SOURCE_USER = 'twinbox', SOURCE_PASSWORD = '{password}', SOURCE_AUTO_POSITION = 1,
            SOURCE_CONNECT_RETRY = 1, GET_SOURCE_PUBLIC_KEY = 1;
        START REPLICA",
    wait_for_replica: "SET GLOBAL rpl_semi_sync_source_timeout = 600000;
        SET GLOBAL rpl_semi_sync_source_enabled = ON",
    waits: "SELECT variable_value FROM performance_schema.global_status
        WHERE variable_name = 'Rpl_semi_sync_source_status'
            AND EXISTS (SELECT 1 FROM performance_schema.global_status
                WHERE variable_name = 'Rpl_semi_sync_source_clients' AND variable_value = '1')",
    stop_receiving: "STOP REPLICA IO_THREAD",
    status: "SHOW REPLICA STATUS",
    received: "Retrieved_Gtid_Set",
    wait_for_received: "SELECT WAIT_FOR_EXECUTED_GTID_SET('{received}', 300)",
    promote: "STOP REPLICA; RESET REPLICA ALL",
};

impl Chain {
    async fn start(length: usize) -> Self {
        let words = if find::mysql_bin().unwrap().join("mariadbd").exists() { MARIADB } else { MYSQL };
        let servers = (1..=length).map(|id| {
            let own = [("log-bin", "binlog"), ("sync-binlog", "1"), ("server-id", &*id.to_string())]
                .into_iter()
                .chain(words.options.iter().copied())
                .fold(MySqlOptions::default(), |options, (name, value)| options.set(name, value));
            MySqlServer::start_with(own).unwrap()
        });
        let servers: VecDeque<_> = tokio::task::block_in_place(|| servers.collect());
        let url = servers[0].url();
        let password = password_of(&url).to_owned();
        for server in &servers {
            let account = format!("ALTER USER 'twinbox'@'%' IDENTIFIED BY '{password}'; {}", words.forget);
            said(server, &account).await;
        }
        let chain = Self { proxy: Proxy::start(address(&servers[0])).await.unwrap(), url, servers, words };
        for (source, replica) in chain.servers.iter().zip(chain.servers.iter().skip(1)) {
            let port = source.port().to_string();
            let follow = words.follow.replace("{port}", &port).replace("{password}", &password);
            chain.tell(replica, &follow).await;
            chain.tell(source, words.wait_for_replica).await;
            let mut conn = chain.session(source).await;
            eventually(async || {
                let waits = sqlx::query_scalar::<_, String>(words.waits).fetch_optional(&mut conn).await;
                (waits.unwrap()? == "ON").then_some(())
            })
            .await;
        }
        chain
    }

    /// Connects with the password that all servers have in common.
    async fn session(&self, server: &MySqlServer) -> MySqlConnection {
        let url = self.url.replace(&postgres_address(&self.url).to_string(), &address(server).to_string());
        MySqlConnection::connect(&url).await.unwrap()
    }

    async fn tell(&self, server: &MySqlServer, script: &str) {
        let mut conn = self.session(server).await;
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut conn).await.unwrap();
    }
}

/// Runs a script with the account that the server began with.
async fn said(server: &MySqlServer, script: &str) {
    let mut conn = MySqlConnection::connect(&server.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut conn).await.unwrap();
}

fn address(server: &MySqlServer) -> std::net::SocketAddr {
    ([127, 0, 0, 1], server.port()).into()
}

fn password_of(url: &str) -> &str {
    url.split([':', '@']).nth(2).expect("a URL with a password")
}

impl Server for Chain {
    fn url(&self) -> String {
        self.url.replace(&postgres_address(&self.url).to_string(), &self.proxy.address().to_string())
    }

    fn log(&self) -> String {
        self.servers[0].log()
    }

    fn crash(&mut self) {
        self.servers[0].kill().unwrap();
    }

    fn recover(&mut self) {
        self.servers.pop_front();
        let (next, words) = (&self.servers[0], self.words);
        wait_for(async {
            let mut conn = self.session(next).await;
            sqlx::raw_sql(words.stop_receiving).execute(&mut conn).await.unwrap();
            let status = sqlx::raw_sql(words.status).fetch_one(&mut conn).await.unwrap();
            let received: String = status.get(words.received);
            let wait = words.wait_for_received.replace("{received}", &received.replace('\n', ""));
            let waited: i64 = sqlx::query_scalar(AssertSqlSafe(wait)).fetch_one(&mut conn).await.unwrap();
            assert_eq!(waited, 0, "{received}: {}", next.log());
            sqlx::raw_sql(words.promote).execute(&mut conn).await.unwrap();
            self.proxy.lead_to(address(next));
        });
    }
}

/// Faults 4, 5, 6, 20, 25
#[tokio::test(flavor = "multi_thread")]
async fn no_order_is_lost_when_a_standby_of_postgres_takes_over() {
    if lacks("pg_basebackup") {
        return;
    }
    let faults = long::or(
        Faults { crashes: 10, others: 2, forgets: false },
        Faults { crashes: 3, others: 1, forgets: false },
    );
    survives::<Postgres>(Pair::start().await, broker().await, faults, 4, 1).await;
}

/// Faults 4, 5, 6, 20, 25
#[tokio::test(flavor = "multi_thread")]
async fn no_order_is_lost_when_a_replica_of_mysql_takes_over() {
    let crashes = long::or(5, 2);
    let chain = Chain::start(crashes + 1).await;
    survives::<MySql>(chain, broker().await, Faults { crashes, others: 1, forgets: false }, 4, 1).await;
}
