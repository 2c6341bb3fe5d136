//! Positions that have no committed row, on MySQL and MariaDB: late commits, roll-backs, slow producers.
mod disk;
mod failover;
mod hostile;
mod naive;
mod wide;
mod writers;

use crate::support::{
    cases::cases,
    database,
    log::{draft, open, publish, publish_all, run, settle_until, take, text},
    wait::{eventually, in_time},
};
use metrics_exporter_prometheus::PrometheusBuilder;
use sqlx::{AssertSqlSafe, MySql, MySqlPool, mysql::MySqlPoolOptions};
use std::time::Duration;
use twinbox::{
    Draft, ErrorKind, Store, Timestamp,
    log::{Log, Reader},
};
use twinbox_testkit::servers::MySqlServer;

async fn number(store: &Store<MySql>, sql: &str) -> i64 {
    let mut conn = store.pool().acquire().await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut *conn).await.unwrap()
}

const OPEN_HOLES: &str = "SELECT count(*) FROM twinbox_holes WHERE closed_by = 9223372036854775807";
const TOMBSTONES: &str = "SELECT count(*) FROM twinbox_outbox WHERE type = ''";

/// Reads on until `sql` says 1 or more. Returns the texts that came.
async fn read_until(store: &Store<MySql>, reader: &mut Reader<MySql>, sql: &str) -> Vec<String> {
    let mut came = Vec::new();
    let read = async {
        loop {
            for entry in reader.next(100).await.unwrap() {
                reader.settle(entry.ticket);
                came.push(text(&entry));
            }
        }
    };
    let reached = eventually(async || (number(store, sql).await > 0).then_some(()));
    tokio::select! {
        () = reached => came,
        () = read => unreachable!("it reads for ever"),
    }
}

/// Fault 40
async fn a_message_that_commits_late_is_delivered_and_stops_no_other(store: &Store<MySql>) {
    let mut late = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut late, draft(None, "late")).await.unwrap();
    publish(store, None, &["early"]).await;
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "early").await, ["early"]);
    assert_eq!(number(store, OPEN_HOLES).await, 1);
    late.commit().await.unwrap();
    assert_eq!(settle_until(&mut reader, "late").await, ["late"]);
    assert_eq!((number(store, OPEN_HOLES).await, number(store, TOMBSTONES).await), (0, 0));
}

/// A snapshot shows all earlier messages of a key or none, whatever their positions are.
async fn what_commits_in_another_order_keeps_the_order_of_its_key(store: &Store<MySql>) {
    let mut reader = open(store, "d").await;
    for n in 0..20 {
        let [first, next] = [format!("{n}-late"), format!("{n}-next")];
        let mut late = store.begin().await.unwrap();
        store.outbox().publish_draft(&mut late, draft(Some("a"), &first)).await.unwrap();
        publish(store, Some("b"), &["between"]).await;
        let (_, read) = tokio::join!(late.commit(), reader.next(100));
        let mut seen = Vec::new();
        for entry in read.unwrap() {
            reader.settle(entry.ticket);
            seen.push(text(&entry));
        }
        publish(store, Some("a"), &[&next]).await;
        seen.extend(settle_until(&mut reader, &next).await);
        seen.retain(|text| text != "between");
        assert_eq!(seen, [first, next]);
    }
}

/// Ticks are made for messages alone, also by processes that do not know what the others have flushed.
async fn processes_that_are_idle_make_no_ticks(store: &Store<MySql>) {
    let another = Store::new(store.pool().clone(), database::SERVICE).unwrap();
    let (mut here, mut there) = (open(store, "here").await, open(&another, "there").await);
    for text in ["a", "b", "c"] {
        publish(store, None, &[text]).await;
        assert_eq!(settle_until(&mut here, text).await, [text]);
        assert_eq!(settle_until(&mut there, text).await, [text]);
    }
    let ticks = async || number(store, "SELECT count(*) FROM twinbox_ticks").await;
    let before = ticks().await;
    let idle = async { tokio::join!(here.next(10), there.next(10)) };
    assert!(tokio::time::timeout(Duration::from_millis(500), idle).await.is_err(), "they wait");
    assert_eq!((before, ticks().await), (4, 4));
}

/// The position of a message that was rolled back gets a tombstone, which nobody is given.
async fn a_rolled_back_position_is_closed(store: &Store<MySql>) {
    let mut undone = store.begin().await.unwrap();
    let drafts = ["a", "b", "c"].map(|text| draft(None, text)).to_vec();
    store.outbox().publish_all(&mut undone, drafts).await.unwrap();
    undone.rollback().await.unwrap();
    publish(store, None, &["after"]).await;
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "after").await, ["after"]);
    let no_holes = format!("SELECT ({OPEN_HOLES}) = 0 AND ({TOMBSTONES}) = 3");
    assert_eq!(read_until(store, &mut reader, &no_holes).await, [""; 0]);
    publish(store, None, &["more"]).await;
    assert_eq!(settle_until(&mut reader, "more").await, ["more"]);
}

/// A transaction that is open for longer than a hole is left alone keeps its position.
async fn an_open_transaction_keeps_its_position(store: &Store<MySql>) {
    let mut slow = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut slow, draft(None, "slow")).await.unwrap();
    publish(store, None, &["other"]).await;
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "other").await, ["other"]);
    let probed = "SELECT count(*) FROM twinbox_holes h, twinbox_ticks t
        WHERE t.id = h.opened_by AND h.probe_at > TIMESTAMPADD(SECOND, 3, t.taken_at)";
    assert_eq!(read_until(store, &mut reader, probed).await, [""; 0]);
    slow.commit().await.unwrap();
    assert_eq!(settle_until(&mut reader, "slow").await, ["slow"]);
    assert_eq!(number(store, TOMBSTONES).await, 0);
}

/// A producer that was so slow that its position has a tombstone gets another one, in the same transaction.
async fn a_position_that_was_taken_is_replaced(store: &Store<MySql>) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let counters = recorder.handle();
    let _counted = metrics::set_default_local_recorder(&recorder);
    publish(store, None, &["first"]).await;
    let tombstone =
        "INSERT INTO twinbox_outbox (position, type, id, payload) VALUES (2, '', 'tombstone', '')";
    run(store, tombstone).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    sqlx::raw_sql("SET INSERT_ID = 2").execute(&mut *tx).await.unwrap();
    store.outbox().publish_draft(&mut tx, draft(None, "second")).await.unwrap();
    sqlx::raw_sql("SET INSERT_ID = 2").execute(&mut *tx).await.unwrap();
    let drafts = ["third", "fourth"].map(|text| draft(None, text)).to_vec();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "fourth").await, ["first", "second", "third", "fourth"]);
    let counted = counters.render();
    assert!(counted.contains("twinbox_mysql_repeated_inserts_total 2"), "{counted}");
}

/// The same for messages that are due.
async fn a_mover_whose_position_was_taken_takes_another(store: &Store<MySql>) {
    publish(store, None, &["first"]).await;
    let later = draft(None, "second").not_before(Timestamp::from_micros(0));
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut tx, later).await.unwrap();
    tx.commit().await.unwrap();
    let tombstone =
        "INSERT INTO twinbox_outbox (position, type, id, payload) VALUES (2, '', 'tombstone', '')";
    run(store, tombstone).await.unwrap();
    let options = store.pool().connect_options().as_ref().clone();
    let one = MySqlPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    sqlx::raw_sql("SET INSERT_ID = 2").execute(&one).await.unwrap();
    let mover = Log::new(&Store::new(one, database::SERVICE).unwrap());
    assert_eq!(mover.move_due(10).await.unwrap().messages, 1);
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "second").await, ["first", "second"]);
}

/// A producer in another language that takes errors for warnings loses its message: the procedure does not.
async fn the_procedure_publishes_and_refuses_what_is_no_json(store: &Store<MySql>) {
    run(store, r#"CALL twinbox_publish('orders.placed', 'k-1', '{"a":"C:\\\\temp"}', NULL, NULL)"#)
        .await
        .unwrap();
    let error =
        run(store, "CALL twinbox_publish('orders.placed', 'k-1', '{', NULL, NULL)").await.unwrap_err();
    assert!(error.to_string().contains("JSON"), "{error}");
    let entry = take(&mut open(store, "d").await, 1).await.remove(0);
    assert_eq!((text(&entry).as_str(), entry.message.key.as_deref()), (r#"{"a":"C:\\temp"}"#, Some("k-1")));
}

/// A message at a chosen position below what readers have passed would never be delivered.
async fn a_chosen_position_is_refused(store: &Store<MySql>) {
    let chosen = "INSERT INTO twinbox_outbox (position, type, payload) VALUES (7, 'orders.placed', '{}')";
    let error = run(store, chosen).await.unwrap_err();
    assert!(error.to_string().contains("leave position out of the INSERT"), "{error}");
}

/// More messages than one tick covers, with a hole among them.
async fn a_far_behind_reader_gets_everything_in_order(store: &Store<MySql>) {
    let mut late = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut late, draft(Some("late"), "late")).await.unwrap();
    let drafts = |from: i64| (from..from + 1000).map(|n| draft(None, &n.to_string())).collect::<Vec<Draft>>();
    for from in (0..25_000).step_by(1000) {
        publish_all(store, drafts(from)).await;
    }
    let mut reader = open(store, "d").await;
    let came = settle_until(&mut reader, "24999").await;
    assert!(came.iter().map(|text| text.parse::<i64>().unwrap()).eq(0..25_000));
    late.commit().await.unwrap();
    assert_eq!(settle_until(&mut reader, "late").await, ["late"]);
}

/// Open transactions take all statements of a round of probes.
#[tokio::test]
async fn a_roll_back_behind_many_open_transactions_is_closed() {
    const OPEN: usize = 250;
    let server = MySqlServer::start().unwrap();
    let pool = MySqlPoolOptions::new().max_connections(270).connect(&server.url()).await.unwrap();
    let store = Store::new(pool, database::SERVICE).unwrap();
    store.migrate().await.unwrap();
    let mut transactions = Vec::new();
    for n in 0..OPEN {
        let mut tx = store.begin().await.unwrap();
        store.outbox().publish_draft(&mut tx, draft(None, &n.to_string())).await.unwrap();
        publish(&store, None, &["between"]).await;
        transactions.push(tx);
    }
    let mut undone = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut undone, draft(None, "undone")).await.unwrap();
    undone.rollback().await.unwrap();
    publish(&store, None, &["free"]).await;
    let mut reader = open(&store, "d").await;
    assert_eq!(settle_until(&mut reader, "free").await.len(), OPEN + 1);
    // In the order of their positions.
    let due = "UPDATE twinbox_holes SET probe_at = TIMESTAMPADD(SECOND, id, '2020-01-01')";
    sqlx::raw_sql(due).execute(store.pool()).await.unwrap();
    assert_eq!(read_until(&store, &mut reader, TOMBSTONES).await, [""; 0]);
    let still_open = format!("SELECT ({OPEN_HOLES}) >= {OPEN}");
    assert_eq!(number(&store, &still_open).await, 1);
}

/// Each of them is a hole, which is probed again and again, and keeps its place.
#[tokio::test]
async fn five_hundred_open_transactions_stop_no_other() {
    const OPEN: usize = 500;
    let server = MySqlServer::start().unwrap();
    let pool = MySqlPoolOptions::new().max_connections(600).connect(&server.url()).await.unwrap();
    let store = Store::new(pool, database::SERVICE).unwrap();
    store.migrate().await.unwrap();
    let mut transactions = Vec::new();
    for n in 0..OPEN {
        let mut tx = store.begin().await.unwrap();
        store.outbox().publish_draft(&mut tx, draft(None, &n.to_string())).await.unwrap();
        publish(&store, None, &["between"]).await;
        transactions.push(tx);
    }
    publish(&store, None, &["free"]).await;
    let mut reader = open(&store, "d").await;
    assert_eq!(settle_until(&mut reader, "free").await.len(), OPEN + 1);
    assert_eq!(number(&store, OPEN_HOLES).await, OPEN as i64);
    let all_probed =
        format!("SELECT ({OPEN_HOLES} AND probe_at < TIMESTAMPADD(SECOND, 2, UTC_TIMESTAMP(6))) = 0");
    assert_eq!(read_until(&store, &mut reader, &all_probed).await, [""; 0]);
    for tx in transactions {
        tx.commit().await.unwrap();
    }
    let mut came = Vec::new();
    while came.len() < OPEN {
        for entry in in_time(reader.next(100)).await.unwrap() {
            reader.settle(entry.ticket);
            came.push(text(&entry).parse::<usize>().unwrap());
        }
    }
    came.sort_unstable();
    assert!(came.into_iter().eq(0..OPEN));
    assert_eq!((number(&store, OPEN_HOLES).await, number(&store, TOMBSTONES).await), (0, 0));
}

/// With a setting under which the server forgets commits or gives positions again, nothing starts.
#[tokio::test]
async fn a_server_that_would_lose_messages_is_refused_with_what_to_set() {
    let server = MySqlServer::start().unwrap();
    let connect = async || in_time(MySqlPool::connect(&server.url())).await.unwrap();
    let administrator = connect().await;
    for (set, says) in [
        ("SET GLOBAL innodb_flush_log_at_trx_commit = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 1"),
        ("SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1"),
        ("SET GLOBAL auto_increment_increment = 2", "SET GLOBAL auto_increment_increment = 1"),
        ("SET GLOBAL max_allowed_packet = 1048576", "SET GLOBAL max_allowed_packet = 16777216"),
        ("SET GLOBAL sql_mode = 'NO_ENGINE_SUBSTITUTION'", "STRICT_TRANS_TABLES"),
    ] {
        sqlx::raw_sql(set).execute(&administrator).await.unwrap();
        let store = Store::new(connect().await, database::SERVICE).unwrap();
        let refused = store.migrate().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Configuration);
        assert!(refused.to_string().contains(says), "{set}: {refused}");
        if says.starts_with("SET") {
            sqlx::raw_sql(says).execute(&administrator).await.unwrap();
        }
    }
}

/// An administrator can change the setting under a reader that runs.
#[tokio::test]
async fn a_reader_stops_when_commits_are_no_longer_flushed() {
    let server = MySqlServer::start().unwrap();
    let pool = in_time(MySqlPool::connect(&server.url())).await.unwrap();
    let store = Store::new(pool, database::SERVICE).unwrap();
    store.migrate().await.unwrap();
    publish(&store, None, &["a"]).await;
    let mut reader = open(&store, "d").await;
    assert_eq!(settle_until(&mut reader, "a").await, ["a"]);
    sqlx::raw_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2").execute(store.pool()).await.unwrap();
    publish(&store, None, &["b"]).await;
    let stopped = in_time(async {
        loop {
            if let Err(error) = reader.next(10).await {
                return error;
            }
        }
    });
    assert_eq!(stopped.await.kind(), ErrorKind::Configuration);
}

/// A server that was killed gives positions again that nobody committed. Readers go on from what is there.
#[tokio::test]
async fn a_killed_server_loses_and_repeats_nothing_that_was_read() {
    let mut server = MySqlServer::start().unwrap();
    let open_store = async |url: &str| {
        let pool = in_time(MySqlPool::connect(url)).await.unwrap();
        Store::new(pool, database::SERVICE).unwrap()
    };
    let store = open_store(&server.url()).await;
    store.migrate().await.unwrap();
    let (mut expected, mut came) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let store = open_store(&server.url()).await;
        for n in 0..50 {
            let text = format!("{round}-{n}");
            publish(&store, None, &[&text]).await;
            expected.push(text);
        }
        let mut undecided = store.begin().await.unwrap();
        store.outbox().publish_draft(&mut undecided, draft(None, "never")).await.unwrap();
        let last = expected.last().unwrap().clone();
        let mut reader = crate::support::log::take_over(&store, "d", Default::default()).await;
        came.extend(settle_until(&mut reader, &last).await);
        reader.close().await.unwrap();
        server.kill().unwrap();
        server.restart().unwrap();
        tokio::time::timeout(Duration::from_secs(1), undecided.rollback()).await.ok();
    }
    assert_eq!(came, expected);
}

cases! {
    with a store:
    mysql: [
        a_message_that_commits_late_is_delivered_and_stops_no_other,
        what_commits_in_another_order_keeps_the_order_of_its_key,
        processes_that_are_idle_make_no_ticks,
        a_rolled_back_position_is_closed,
        an_open_transaction_keeps_its_position,
        a_position_that_was_taken_is_replaced,
        a_mover_whose_position_was_taken_takes_another,
        the_procedure_publishes_and_refuses_what_is_no_json,
        a_chosen_position_is_refused,
        a_far_behind_reader_gets_everything_in_order,
    ]
}
