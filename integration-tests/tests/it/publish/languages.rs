//! Producers that are no Rust: the functions of the schema, bound parameters, and the programs that a page
//! shows.
use crate::support::{
    broker_users::without_login,
    cases::cases,
    consumer::publish,
    relay::{Running, Target},
    stores::{Confirmed, Placed, TestDb, World},
    wait::in_time,
};
use sqlx::{AssertSqlSafe, Postgres, Sqlite};
use std::{path::Path, process::Stdio};
use tokio::{io::AsyncWriteExt as _, process::Command};
use twinbox::{Draft, Schema as _, Timestamp};
use twinbox_testkit::{servers::find, skipped};

#[path = "../../../producers/tokio_postgres.rs"]
mod tokio_postgres_producer;

const PAGE: &str = include_str!("../../../../docs/src/other-languages.md");
const PRODUCERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/producers");
const CONSUMER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/consumers/mail.py");

/// JSON in which some layer between a program and a row might see more than bytes.
const PAYLOADS: [&str; 13] = [
    r#"{"order_id": 7, "cents": 4200}"#,
    r#"{"name": "O'Brien", "said": "it''s"}"#,
    r#"{"said": "\"no\"", "path": "C:\\temp\\new", "tab": "\t", "lines": "a\nb\r\n"}"#,
    "{\n  \"on\": \"several\",\r\n\t\"lines\": [1,\n2]\n}\n",
    r#"{"name": "Zoë Łukasz 北京", "mood": "🦀👩‍👩‍👧", "escaped": "\u00e9\ud83e\udd80\u0000"}"#,
    r#"{"b": 1, "a": 2, "a": 3, "n": 1.50, "big": 12345678901234567890.0e10}"#,
    r#"{"sql": "'); DROP TABLE twinbox.outbox; --", "dollar": "$1 $$ %s %(a)s :a ?"}"#,
    r#"{"backslash": "\\x41\\101"}"#,
    r#""just a string with \\ and ' and \" ""#,
    "[]",
    "  null  ",
    "-0",
    r#"{"": "", "e": "\\'"}"#,
];

/// What readers of the log get, in order.
async fn payloads<DB: TestDb>(world: &World<DB>) -> Vec<String> {
    let messages = world.published("orders.placed", 10_000).await.unwrap();
    messages.into_iter().map(|m| String::from_utf8(m.payload.to_vec()).unwrap()).collect()
}

async fn ids<DB: TestDb>(world: &World<DB>) -> Vec<String> {
    world.published("orders.placed", 10_000).await.unwrap().into_iter().map(|m| m.id).collect()
}

async fn code_of(world: &World<Postgres>, sql: &str) -> (String, String) {
    let refused = sqlx::query(AssertSqlSafe(sql)).execute(world.pool()).await.expect_err(sql);
    let refused = refused.as_database_error().unwrap();
    (refused.code().unwrap().into_owned(), refused.message().to_owned())
}

async fn a_text_that_is_published_in_sql_arrives_byte_for_byte() {
    let world = World::<Postgres>::new().await;
    let mut returned = Vec::new();
    for payload in PAYLOADS {
        let id: String = sqlx::query_scalar("SELECT twinbox.publish('orders.placed', 'order-7', $1)")
            .bind(payload)
            .fetch_one(world.pool())
            .await
            .unwrap();
        returned.push(id);
    }
    assert_eq!(payloads(&world).await, PAYLOADS);
    assert_eq!(ids(&world).await, returned);
    let literal = r#"SELECT twinbox.publish('orders.placed', NULL, '{"a":"C:\\temp\n"}')"#;
    sqlx::raw_sql(literal).execute(world.pool()).await.unwrap();
    let [.., last] = &payloads(&world).await[..] else { panic!("one more") };
    assert_eq!(last, r#"{"a":"C:\\temp\n"}"#, "a literal is text here, and no bytea");
}

async fn every_column_can_be_named_in_sql() {
    let world = World::<Postgres>::new().await;
    let sql = r#"SELECT twinbox.publish('orders.placed', 'k', '{}', id => 'o-7', version => 3,
        subject => 'orders/7',
        headers => '{"region": "eu \"west\""}', correlation_id => 'c', causation_id => 'm',
        traceparent => '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
        event_time => '2026-01-02T03:04:05.000006Z')"#;
    let id: String = sqlx::query_scalar(sql).fetch_one(world.pool()).await.unwrap();
    assert_eq!(id, "o-7");
    let [m] = &world.published("orders.placed", 10).await.unwrap()[..] else { panic!("one message") };
    assert_eq!(
        (m.id.as_str(), m.version, m.key.as_deref(), m.subject.as_deref()),
        ("o-7", 3, Some("k"), Some("orders/7"))
    );
    assert_eq!((m.correlation_id.as_deref(), m.causation_id.as_deref()), (Some("c"), Some("m")));
    assert_eq!(m.headers, [("region".to_owned(), "eu \"west\"".to_owned())]);
    assert!(m.traceparent.is_some());
    assert_eq!(m.time, Timestamp::from_micros(1_767_323_045_000_006));
    assert_eq!((m.source.as_str(), m.content_type.as_str()), ("test", "application/json"));
}

async fn bytes_of_any_content_type_can_be_published_in_sql() {
    let world = World::<Postgres>::new().await;
    let bytes = b"\x00\xff\\'\"\n not JSON".to_vec();
    let sql =
        "SELECT twinbox.publish_bytes('orders.placed', NULL, $1, 'application/octet-stream', subject => 's')";
    let id: String = sqlx::query_scalar(sql).bind(&bytes).fetch_one(world.pool()).await.unwrap();
    let [m] = &world.published("orders.placed", 10).await.unwrap()[..] else { panic!("one message") };
    assert_eq!((&m.id, &m.payload[..], m.key.as_deref()), (&id, &bytes[..], None));
    assert_eq!((m.content_type.as_str(), m.subject.as_deref()), ("application/octet-stream", Some("s")));
}

async fn what_is_no_json_is_refused_in_sql_and_says_what_to_call() {
    let world = World::<Postgres>::new().await;
    for payload in ["", "{", "{'a': 1}", "{\"a\": \"\n\"}", "{} {}", "NaN", r"\x7b7d"] {
        let refused = sqlx::query("SELECT twinbox.publish('orders.placed', 'k', $1)").bind(payload);
        let refused = refused.execute(world.pool()).await.expect_err(payload);
        let refused = refused.as_database_error().unwrap();
        assert_eq!(refused.message(), "twinbox: the payload is not JSON", "{payload:?}");
        let refused = refused.downcast_ref::<sqlx::postgres::PgDatabaseError>();
        assert_eq!(refused.code(), "22P02");
        assert!(refused.hint().unwrap().contains("publish_bytes"), "{refused:?}");
    }
    let (code, message) = code_of(&world, "SELECT twinbox.publish('orders.placed', 'k', NULL)").await;
    assert_eq!((code.as_str(), message.as_str()), ("22004", "twinbox: the payload is NULL"));
    // The bounds of the table hold.
    for sql in [
        "SELECT twinbox.publish('orders placed', 'k', '{}')",
        "SELECT twinbox.publish('orders.placed', repeat('k', 256), '{}')",
        "SELECT twinbox.publish('orders.placed', 'k', '{}', headers => '[]')",
        "SELECT twinbox.publish('orders.placed', 'k', to_json(repeat('x', 983040))::text)",
        "SELECT twinbox.publish('orders.placed', 'k', '{}', version => 0)",
    ] {
        assert_eq!(code_of(&world, sql).await.0, "23514", "{sql}");
    }
    assert_eq!(world.rows("outbox").await, 0);
}

async fn a_publish_in_sql_belongs_to_its_transaction() {
    let world = World::<Postgres>::new().await;
    let mut tx = world.pool().begin().await.unwrap();
    sqlx::query("SELECT twinbox.publish('orders.placed', 'k', '{}')").execute(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(world.rows("outbox").await, 0);
}

/// The part of a program that the page shows.
fn shown(program: &str) -> String {
    let text = std::fs::read_to_string(program).unwrap();
    let shown = text.split("docs: this function\n").nth(1).and_then(|rest| rest.split("docs: end").next());
    shown.unwrap().trim_end_matches(['#', '/', ' ']).trim().to_owned()
}

#[test]
fn the_page_shows_the_producers_as_they_are_tested() {
    let producers = ["postgres.py", "postgres.js", "sqlite.py", "tokio_postgres.rs"];
    for program in producers.map(|name| format!("{PRODUCERS}/{name}")).iter().chain([&CONSUMER.to_owned()]) {
        assert!(PAGE.contains(&shown(program)), "{program}: put this into the page\n{}", shown(program));
    }
    for page in [PAGE, include_str!("../../../../crates/twinbox-ops/GRANTS.md")] {
        for block in page.split("```").skip(1).step_by(2) {
            let is_literal = block.contains("INSERT INTO twinbox.outbox") && block.contains("'{");
            assert!(!is_literal, "a bare literal into bytea loses backslashes: {block}");
        }
    }
}

async fn run_program<DB: TestDb>(world: &World<DB>, mut program: Command, name: &str) {
    // What follows is for sqlx.
    let url = world.url().split('?').next().unwrap();
    program.arg(format!("{PRODUCERS}/{name}")).arg(url);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut program = program.spawn().unwrap();
    let texts = serde_json::to_vec(&PAYLOADS).unwrap();
    program.stdin.take().unwrap().write_all(&texts).await.unwrap();
    let ended = program.wait_with_output().await.unwrap();
    assert!(ended.status.success());
    let printed = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(payloads(world).await, PAYLOADS);
    assert_eq!(ids(world).await, Vec::from_iter(printed.lines()));
}

async fn a_producer_in_python_publishes_byte_for_byte() {
    let packages = match find::python_packages() {
        Ok(packages) => packages,
        Err(error) => return skipped(&format!("psycopg: {error}")),
    };
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages);
    run_program(&World::<Postgres>::new().await, python, "postgres.py").await;
}

/// The event arrives with all that `Outbox::publish` would have written, if its transaction commits.
async fn a_producer_with_another_driver_publishes_in_its_transaction() {
    let world = World::<Postgres>::new().await;
    let url = world.url().split('?').next().unwrap();
    let (mut client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let tx = client.transaction().await.unwrap();
    tokio_postgres_producer::publish(&tx, &Placed { n: 1 }).await.unwrap();
    tx.rollback().await.unwrap();
    let tx = client.transaction().await.unwrap();
    let id = tokio_postgres_producer::publish(&tx, &Confirmed { n: 2 }).await.unwrap();
    tx.commit().await.unwrap();
    let by_sqlx = Draft::of(&Confirmed { n: 2 }).unwrap().id(&*id).into_message("test");
    let [m] = &world.published(Confirmed::TYPE, 10).await.unwrap()[..] else { panic!("one message") };
    assert_eq!(
        (&m.id, &m.key, &m.subject, m.version, &m.payload, &m.content_type),
        (&id, &by_sqlx.key, &by_sqlx.subject, by_sqlx.version, &by_sqlx.payload, &by_sqlx.content_type)
    );
    assert_eq!(world.rows("outbox").await, 1);
}

async fn a_producer_in_node_publishes_byte_for_byte() {
    let packages = match find::node_packages() {
        Ok(packages) => packages,
        Err(error) => return skipped(&format!("pg: {error}")),
    };
    let mut node = Command::new("node");
    node.env("NODE_PATH", Path::new(&packages).join("node_modules"));
    run_program(&World::<Postgres>::new().await, node, "postgres.js").await;
}

async fn a_producer_in_python_publishes_byte_for_byte_to_sqlite() {
    if find::python_packages().is_err() {
        return skipped("no Python 3");
    }
    run_program(&World::<Sqlite>::new().await, Command::new("python3"), "sqlite.py").await;
}

/// It dies between its commit and its acknowledgement, and its successor gets the message again.
async fn a_consumer_in_python_handles_each_message_once_with_an_inbox_of_its_own() {
    let packages = match find::python_packages() {
        Ok(packages) => packages,
        Err(error) => return skipped(&format!("psycopg and nats-py: {error}")),
    };
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let inbox = PAGE.split("```sql\n").find(|block| block.starts_with("CREATE TABLE inbox")).unwrap();
    sqlx::raw_sql(AssertSqlSafe(inbox.split("```").next().unwrap())).execute(world.pool()).await.unwrap();
    let relay = Running::start(&*world, &target);
    publish(&world, 0..20).await;
    relay.published(20).await;
    relay.stop().await;

    let url = world.url().split('?').next().unwrap();
    let subject = format!("{}.*.orders.placed", target.prefix());
    let python = || {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", &packages).arg(CONSUMER).kill_on_drop(true);
        let nats = without_login(&target.url).replace("nats://", "tls://");
        python.args([&nats, &target.name, &subject, url]);
        python
    };
    let died = in_time(python().arg("before-ack").status()).await.unwrap();
    assert_eq!((died.code(), world.effects().await.len()), (Some(9), 1));
    assert!(in_time(python().status()).await.unwrap().success());
    assert_eq!(world.effects().await, Vec::from_iter(0..20));
    assert!(target.deliveries("mail").await > 20, "one message came again");
    assert_eq!(target.settled("mail").await, 20);
}

/// Text is refused, so that nobody finds out later that the column holds bytes.
async fn a_text_is_no_payload_on_sqlite() {
    let world = World::<Sqlite>::new().await;
    let sql = "INSERT INTO twinbox_outbox (type, key, payload) VALUES ('orders.placed', 'k', '{}')";
    let refused = sqlx::query(sql).execute(world.pool()).await.unwrap_err();
    assert!(refused.to_string().contains("cannot store TEXT value in BLOB column"), "{refused}");
}

cases! {
    postgres: [
        a_text_that_is_published_in_sql_arrives_byte_for_byte,
        every_column_can_be_named_in_sql,
        bytes_of_any_content_type_can_be_published_in_sql,
        what_is_no_json_is_refused_in_sql_and_says_what_to_call,
        a_publish_in_sql_belongs_to_its_transaction,
        a_producer_in_python_publishes_byte_for_byte,
        a_producer_in_node_publishes_byte_for_byte,
        a_producer_with_another_driver_publishes_in_its_transaction,
        a_consumer_in_python_handles_each_message_once_with_an_inbox_of_its_own,
    ]
    sqlite: [a_producer_in_python_publishes_byte_for_byte_to_sqlite, a_text_is_no_payload_on_sqlite]
}
