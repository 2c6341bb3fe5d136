//! A MariaDB that is killed.
use super::{
    crashing::{Faults, Shop, survives},
    *,
};
use crate::support::{
    roles::{MYSQL_PASSWORD, Roles},
    stores::TestDb as _,
};
use sqlx::{AssertSqlSafe, MySql};
use std::process::Stdio;
use twinbox_testkit::servers::{MySqlOptions, MySqlServer, NatsServer};

impl Shop for MySql {
    const TABLES: &[&str] = &["
        CREATE TABLE customers (customer BIGINT PRIMARY KEY, orders BIGINT NOT NULL);
        INSERT INTO customers
            WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 39)
            SELECT n, 0 FROM numbers;
        CREATE TABLE orders (order_id BIGINT PRIMARY KEY, customer BIGINT NOT NULL);
        CREATE TABLE invoices (order_id BIGINT NOT NULL, attempt BIGINT NOT NULL);
        CREATE TABLE ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer BIGINT NOT NULL,
            order_id BIGINT NOT NULL)"];

    fn publish(order: i64, customer: i64) -> String {
        format!(
            r#"CALL twinbox_publish('orders.placed', '{customer}',
                '{{"order_id":{order},"customer":{customer}}}', 'order-{order}', NULL)"#
        )
    }

    /// They have the documented rights and no more.
    async fn programs_url(store: &Store<Self>, url: String) -> String {
        let Roles { runtime, .. } = Roles::create_on_mysql(store, "invoices").await;
        let ledger = format!("GRANT SELECT, INSERT ON ledger TO '{runtime}'");
        sqlx::raw_sql(AssertSqlSafe(ledger)).execute(store.pool()).await.unwrap();
        let (_, server) = url.split_once('@').unwrap();
        format!("mysql://{runtime}:{MYSQL_PASSWORD}@{server}")
    }

    async fn prepared(store: &Store<Self>) -> usize {
        sqlx::raw_sql("XA RECOVER").fetch_all(store.pool()).await.unwrap().len()
    }
}

/// Each commit goes to the binary log too, as on every server with a replica or backups up to the minute.
/// Faults 4, 5, 6, 20, 25
#[tokio::test(flavor = "multi_thread")]
async fn every_order_is_invoiced_once_and_in_order_however_often_the_server_is_killed() {
    let options = MySqlOptions::default().set("log_bin", "binlog").set("sync_binlog", "1");
    let started = tokio::task::spawn_blocking(|| {
        (MySqlServer::start_with(options).unwrap(), NatsServer::start().unwrap())
    });
    let (server, broker) = started.await.unwrap();
    let faults = long::or(
        Faults { crashes: 10, others: 2, forgets: false },
        Faults { crashes: 2, others: 1, forgets: false },
    );
    survives::<MySql>(server, broker, faults, 4, orders_min()).await;
}

/// After a crash such a server gives positions again that were published.
#[tokio::test]
async fn no_program_starts_on_a_server_that_does_not_flush_its_commits() {
    let server = MySqlServer::start().unwrap();
    let store = MySql::open(&server.url()).await;
    store.migrate().await.unwrap();
    sqlx::raw_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 0").execute(store.pool()).await.unwrap();
    let programs = Programs::at(server.url());
    for program in [Program::Relay, Program::Consumer] {
        let mut command = programs.command(program);
        let ended = timeout(PATIENCE, command.stderr(Stdio::piped()).output()).await.unwrap().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(
            !ended.status.success() && said.contains("SET GLOBAL innodb_flush_log_at_trx_commit = 1"),
            "{said}"
        );
    }
}
