//! A database that is crashed and forgets its last commits.
use super::{
    crashing::{Faults, Shop, survives},
    *,
};
use twinbox_testkit::servers::{NatsServer, PostgresOptions, PostgresServer};

impl Shop for Postgres {
    const TABLES: &[&str] = &[
        "
        CREATE TABLE customers (customer bigint PRIMARY KEY, orders bigint NOT NULL);
        INSERT INTO customers SELECT n, 0 FROM generate_series(0, 39) n;
        CREATE TABLE orders (order_id bigint PRIMARY KEY, customer bigint NOT NULL);
        CREATE TABLE invoices (order_id bigint NOT NULL, attempt bigint NOT NULL);
        CREATE TABLE ledger (id bigserial PRIMARY KEY, customer bigint NOT NULL, order_id bigint NOT NULL)",
        "CHECKPOINT",
    ];

    fn publish(order: i64, customer: i64) -> String {
        format!(
            r#"INSERT INTO twinbox.outbox (id, type, key, payload) VALUES ('order-{order}', 'orders.placed',
                '{customer}', convert_to('{{"order_id":{order},"customer":{customer}}}', 'UTF8'))"#
        )
    }

    async fn programs_url(_: &Store<Self>, url: String) -> String {
        url
    }

    async fn prepared(store: &Store<Self>) -> usize {
        sqlx::raw_sql("SELECT * FROM pg_prepared_xacts").fetch_all(store.pool()).await.unwrap().len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_forgets_leaves_no_order_out_and_invents_none() {
    let forgets = PostgresOptions::default().set("synchronous_commit", "off").set("wal_writer_delay", "10s");
    let started = tokio::task::spawn_blocking(|| {
        (PostgresServer::start_with(forgets).unwrap(), NatsServer::start().unwrap())
    });
    let (server, broker) = started.await.unwrap();
    let faults = long::or(
        Faults { crashes: 10, others: 5, forgets: true },
        Faults { crashes: 3, others: 1, forgets: true },
    );
    survives::<Postgres>(server, broker, faults, 2, 1).await;
}
