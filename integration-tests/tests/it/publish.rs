//! What is published is there if, and only if, its transaction committed.
mod batches;
mod bounds;
#[cfg(feature = "programs")]
mod delayed;
#[cfg(feature = "postgres")]
mod languages;
#[cfg(feature = "postgres")]
mod moving;
mod times;

use crate::support::{
    cases::cases,
    databases::{MySql, PROCESSES, Postgres},
    stores::{Confirmed, Placed, TestDb, World, effect},
    wait::{eventually, in_time},
};
use sqlx::{Acquire as _, Sqlite};
use twinbox::{Draft, ErrorKind, MessageId, Timestamp};

/// Keys of what is published, in order.
async fn keys<DB: TestDb>(world: &World<DB>) -> Vec<String> {
    let messages = world.published("orders.placed", 10_000).await.unwrap();
    messages.into_iter().map(|m| m.key.unwrap()).collect()
}

/// R36
async fn a_message_is_visible_if_and_only_if_its_transaction_committed<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    effect::<DB>(&mut tx, 1).await.unwrap();
    world.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
    assert!(keys(&world).await.is_empty(), "before the commit");
    tx.commit().await.unwrap();
    assert_eq!(keys(&world).await, ["1"]);

    let mut tx = world.begin().await.unwrap();
    world.outbox().publish(&mut tx, &Placed { n: 2 }).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish(&mut tx, &Placed { n: 3 }).await.unwrap();
    drop(tx);
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish(&mut tx, &Placed { n: 4 }).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(keys(&world).await, ["1", "4"]);
}

async fn a_message_has_the_id_that_publish_returned_and_fitting_defaults<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let before = now(&world).await;
    let mut tx = world.begin().await.unwrap();
    let first = world.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
    let second = world.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    let [a, b] = &world.published("orders.placed", 10).await.unwrap()[..] else { panic!("two messages") };
    assert_eq!((a.message_id(), b.message_id()), (first, second));
    assert_ne!(first, second);
    assert_eq!(first, MessageId::of("test", "orders.placed", &a.id));
    assert_eq!((a.source.as_str(), a.version, a.key.as_deref()), ("test", 1, Some("1")));
    assert_eq!(a.correlation_id.as_ref(), Some(&a.id), "nothing caused it, so it begins an operation");
    assert_eq!((&a.causation_id, &a.traceparent, &a.subject), (&None, &None, &None));
    assert_eq!((a.content_type.as_str(), &a.headers[..]), ("application/json", &[][..]));
    assert_eq!(&a.payload[..], br#"{"n":1}"#);
    assert!(a.sequence.unwrap() < b.sequence.unwrap());
    assert!(before <= a.time && a.time <= now(&world).await, "{:?}", a.time);
}

async fn now<DB: TestDb>(world: &World<DB>) -> Timestamp {
    let sql = match DB::MODULE {
        "postgres" => "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
        "mysql" => "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
        _ => "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 999", // counts in milliseconds
    };
    let mut conn = world.pool().acquire().await.unwrap();
    let micros: i64 = sqlx::query_scalar::<DB, i64>(sql).fetch_one(&mut *conn).await.unwrap();
    Timestamp::from_micros(if DB::MODULE == "sqlite" { micros / 1000 * 1000 } else { micros })
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn full() -> Draft {
    Draft::raw("orders.noted", 7, &b"\x00\xff not JSON"[..])
        .id("order/7 é")
        .key("k\u{1f600}")
        .subject("orders/7")
        .time(Timestamp::from_micros(1_789_000_000_123_456))
        .correlation_id("c-1")
        .causation_id("m-0")
        .traceparent(TRACE)
        .content_type("application/octet-stream")
        .header("region", "eu \"west\"; é")
        .header("empty", "")
        .header("x-tenant_1", "{}")
}

/// Whatever a draft says comes back, alone and in a batch.
async fn a_draft_comes_back_as_it_was_written<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    let alone = world.outbox().publish_draft(&mut tx, full()).await.unwrap();
    let batch = world.outbox().publish_all(&mut tx, vec![full()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(batch, [alone], "one id is one message");
    let messages = world.published("orders.noted", 10).await.unwrap();
    assert_eq!(messages.len(), 2, "the inbox removes duplicates, not the outbox");
    for mut m in messages {
        assert_eq!(m.message_id(), alone);
        assert!(m.sequence.take().is_some());
        m.headers.sort();
        let headers = [("empty", ""), ("region", "eu \"west\"; é"), ("x-tenant_1", "{}")];
        let expected = twinbox::Message {
            id: "order/7 é".into(),
            source: "test".into(),
            event_type: "orders.noted".into(),
            version: 7,
            key: Some("k\u{1f600}".into()),
            subject: Some("orders/7".into()),
            time: Timestamp::from_micros(1_789_000_000_123_456),
            sequence: None,
            correlation_id: Some("c-1".into()),
            causation_id: Some("m-0".into()),
            traceparent: Some(TRACE.into()),
            content_type: "application/octet-stream".into(),
            headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
            payload: (&b"\x00\xff not JSON"[..]).into(),
        };
        assert_eq!(m, expected);
    }
}

/// Garbage is left out and the message is published. Fault 49
async fn a_trace_context_that_cannot_be_read_is_left_out<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let garbage = [
        "",
        "garbage",
        &"0".repeat(8192),
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\n",
        "00-é",
    ];
    let mut tx = world.begin().await.unwrap();
    for trace in garbage {
        let draft = Draft::of(&Placed { n: 1 }).unwrap().traceparent(trace);
        world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    }
    tx.commit().await.unwrap();
    let messages = world.published("orders.placed", 100).await.unwrap();
    assert_eq!(messages.len(), garbage.len());
    assert!(messages.iter().all(|m| m.traceparent.is_none()));
}

/// Any transaction will do: sqlx's own, and a savepoint inside it.
async fn a_transaction_of_sqlx_and_its_savepoints_are_accepted<DB: TestDb>()
where
    for<'c> &'c mut sqlx::Transaction<'static, DB>: sqlx::Acquire<'c, Database = DB>,
{
    let world = World::<DB>::new().await;
    let outbox = world.outbox();
    let mut tx = world.pool().begin().await.unwrap();
    outbox.publish(&mut tx, &Placed { n: 1 }).await.unwrap();
    for (n, keep) in [(2, true), (3, false)] {
        let mut nested = (&mut tx).begin().await.unwrap();
        outbox.publish(&mut nested, &Placed { n }).await.unwrap();
        outbox.publish(&mut nested, &Confirmed { n }).await.unwrap(); // reborrowed, not moved
        if keep { nested.commit().await.unwrap() } else { nested.rollback().await.unwrap() }
    }
    outbox.publish_all(&mut tx, vec![Draft::of(&Placed { n: 4 }).unwrap()]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(keys(&world).await, ["1", "2", "4"]);
    assert_eq!(world.rows("outbox").await, 4);
}

/// sqlx's `commit` says `Ok` to a transaction that Postgres rolls back; ours says what happened.
async fn a_commit_after_a_swallowed_error_says_what_happened<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
    effect::<DB>(&mut tx, 1).await.unwrap();
    effect::<DB>(&mut tx, 1).await.unwrap_err();
    let committed = tx.commit().await;
    if !DB::CAPABILITIES.errors_abort {
        committed.unwrap();
        assert_eq!(world.left_behind().await, (0, 1, 1));
        return;
    }
    let error = committed.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TransactionAborted, "{error:?}");
    assert!(!error.is_transient());
    assert_eq!(world.left_behind().await, (0, 0, 0));
    // This is what sqlx says.
    let mut tx = world.pool().begin().await.unwrap();
    effect::<DB>(&mut tx, 1).await.unwrap();
    effect::<DB>(&mut tx, 1).await.unwrap_err();
    tx.commit().await.unwrap();
    assert_eq!(world.left_behind().await, (0, 0, 0), "committed, says sqlx");
}

/// The second waits from its `publish_ordered` on until the first has committed; another key does not wait.
async fn ordered_publishers_take_turns<DB: TestDb>(is_waiting: &str) {
    let world = World::<DB>::new().await;
    let mut first = world.begin().await.unwrap();
    world.outbox().publish_ordered(&mut first, &Placed { n: 7 }).await.unwrap();

    let mut other = world.begin().await.unwrap();
    in_time(world.outbox().publish_ordered(&mut other, &Placed { n: 8 })).await.unwrap();
    other.commit().await.unwrap();

    let mut second = world.begin().await.unwrap();
    let store = (*world).clone();
    let waiting = tokio::spawn(async move {
        store.outbox().publish_ordered(&mut second, &Placed { n: 7 }).await.unwrap();
        second.commit().await.unwrap();
    });
    eventually(async || (world.number(is_waiting).await == 1).then_some(())).await;
    assert_eq!(keys(&world).await, ["8"]);
    first.commit().await.unwrap();
    in_time(waiting).await.unwrap();
    assert_eq!(keys(&world).await, ["7", "8", "7"]);
}

async fn ordered_publishers_of_one_key_take_turns_on_postgres() {
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event = 'advisory'";
    ordered_publishers_take_turns::<Postgres>(waiting).await;
}

async fn ordered_publishers_of_one_key_take_turns_on_mysql() {
    let waiting = format!(
        "SELECT count(*) FROM {PROCESSES}
        WHERE db = DATABASE() AND info LIKE '%key_locks%FOR UPDATE%' AND info NOT LIKE '%processlist%'"
    );
    ordered_publishers_take_turns::<MySql>(&waiting).await;
}

/// Where writers take turns anyway it is the same as `publish`, and it needs no key.
async fn publish_ordered_publishes<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut tx = world.begin().await.unwrap();
    let id = world.outbox().publish_ordered(&mut tx, &Placed { n: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.published("orders.placed", 10).await.unwrap()[0].message_id(), id);
}

cases! {
    all: [
        a_commit_after_a_swallowed_error_says_what_happened,
        a_message_is_visible_if_and_only_if_its_transaction_committed,
        a_message_has_the_id_that_publish_returned_and_fitting_defaults,
        a_draft_comes_back_as_it_was_written,
        a_trace_context_that_cannot_be_read_is_left_out,
        a_transaction_of_sqlx_and_its_savepoints_are_accepted,
        publish_ordered_publishes,
    ]
    postgres: [ordered_publishers_of_one_key_take_turns_on_postgres]
    mysql: [ordered_publishers_of_one_key_take_turns_on_mysql]
}
