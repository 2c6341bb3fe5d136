//! What a stranger can make grow: every table, with those who can, and what bounds it.
use super::*;
use crate::support::{cases::cases, stores::TestDb};
use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};
use twinbox::ops::{Ops, dead_letters::DeadLetterId};

/// Who makes a table grow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    /// Nobody: the program writes as many rows as it has parts, or as time passes.
    Program,
    /// The service, with the role of a producer, and its handlers.
    Service,
    Operator,
    /// Whoever may publish a type on the broker.
    Publisher,
    /// A caller of the service's HTTP interface.
    Caller,
    /// The sender of webhooks, who has a secret.
    Sender,
}

impl By {
    fn is_stranger(self) -> bool {
        matches!(self, Self::Publisher | Self::Caller | Self::Sender)
    }
}

/// A table, who makes it grow, what bounds it, and the tests that fill it or try to.
type Growth = (&'static str, By, &'static str, &'static [&'static str]);

const MONTH: &str = "it/log/keeper.rs::a_consumer_keeps_its_tables_bounded_for_a_month";

const TABLES: [Growth; 36] = [
    (
        "attempts",
        By::Publisher,
        "a row for a message that fails: deleted with its claim, at the latest after 90 days",
        &["it/consumer/forget.rs::attempts_that_nobody_will_finish_go_as_well"],
    ),
    ("audit", By::Operator, "the acts of operators", &[]),
    ("bulk_actions", By::Operator, "the acts of operators", &[]),
    (
        "client_keys",
        By::Caller,
        "a key for a business action: `Keeper::keep_effects`",
        &[MONTH, "it/effects/client.rs::only_keys_that_ended_are_purged"],
    ),
    ("consumers", By::Program, "the consumers of the code", &[]),
    ("cursors", By::Program, "the destinations of the configuration, and replays", &[]),
    (
        "dead_letters",
        By::Publisher,
        "`Consumer::dead_letter_bytes_max`",
        &[
            "it/neighbours/growth.rs::dead_letters_have_a_bound_in_bytes_and_nothing_is_lost_at_it",
            "it/neighbours/growth.rs::garbage_beyond_the_rate_waits_and_other_types_are_handled",
            "it/neighbours/growth.rs::of_garbage_the_beginning_is_kept_and_no_handler_runs_on_it",
        ],
    ),
    (
        "delayed_messages",
        By::Service,
        "a message stays until its time",
        &["it/publish/delayed.rs::a_message_is_in_the_log_within_a_second_of_its_time_and_not_before"],
    ),
    ("destination_secrets", By::Program, "the destinations of the configuration", &[]),
    (
        "drift_findings",
        By::Program,
        "`FINDINGS_MAX` of each check",
        &["it/effects/drift.rs::a_run_has_an_id_and_a_bound"],
    ),
    ("flushes", By::Program, "one row", &[]),
    ("holes", By::Service, "positions that were rolled back: deleted with the ticks", &[]),
    (
        "idempotency_keys",
        By::Caller,
        "`Idempotency::live_keys_max` of each caller, and the retention",
        &["it/http/keeping.rs::a_principal_has_so_many_keys", MONTH],
    ),
    (
        "inbox",
        By::Publisher,
        "a claim for a message: `Consumer::inbox_retention` behind its time, at most `TIME_AHEAD_MAX` ahead",
        &["it/consumer/forget.rs::many_go_in_several_statements"],
    ),
    (
        "job_runs",
        By::Program,
        "`Keeper::keep_job_runs`",
        &["it/effects/jobs.rs::old_runs_are_deleted_while_a_runner_runs"],
    ),
    ("jobs", By::Program, "the jobs of the code", &[]),
    ("key_locks", By::Program, "512 rows", &[]),
    ("lock_secret", By::Program, "one row", &[]),
    ("locks", By::Program, "one row for each kind of work", &[]),
    ("meta", By::Program, "one row", &[]),
    ("migrations", By::Program, "one row for each migration", &[]),
    ("outbox", By::Service, "`Keeper::keep`", &[MONTH, "it/log/retention.rs::all_of_many_goes"]),
    (
        "parked_deliveries",
        By::Publisher,
        "`PARKED_MAX` and `PARKED_BYTES_MAX` of each partition",
        &["it/consumer/ordered/stuck.rs::too_many_parked_deliveries_stop_what_comes"],
    ),
    (
        "parked_messages",
        By::Service,
        "`PARKED_MAX` of each destination",
        &["it/relay/parking.rs::at_a_limit_of_waiting_messages_nothing_more_is_read"],
    ),
    ("partition_fences", By::Program, "the partitions of the consumers of the code", &[]),
    ("partition_leases", By::Program, "the partitions of the consumers of the code", &[]),
    ("partition_members", By::Program, "the processes that run", &[]),
    ("purge_marks", By::Program, "the consumers of the code", &[]),
    ("replays", By::Operator, "the acts of operators", &[]),
    ("sentinel", By::Program, "one row", &[]),
    ("server_run", By::Program, "one row for each server", &[]),
    ("side_effects", By::Service, "`Keeper::keep_effects`", &[MONTH]),
    (
        "superseded_claims",
        By::Operator,
        "replays, which a relay signs",
        &["it/neighbours.rs::a_mark_that_no_relay_has_signed_lets_no_message_run_again"],
    ),
    (
        "ticks",
        By::Program,
        "time, and the retention",
        &["it/log/thinned.rs::ticks_of_a_day_are_few_and_a_destination_that_was_down_goes_on"],
    ),
    ("vendors", By::Program, "the vendors of the code", &[]),
    (
        "webhook_receipts",
        By::Sender,
        "a receipt for a webhook that is signed: its retention",
        &[
            "it/http/webhooks.rs::t28_what_is_not_signed_is_refused",
            "it/http/webhooks.rs::receipts_expire_and_are_purged",
            MONTH,
        ],
    ),
];

/// Tables that not every database has.
const ONLY: [(&str, &[&str]); 9] = [
    ("flushes", &["mysql"]),
    ("holes", &["mysql"]),
    ("key_locks", &["mysql"]),
    ("lock_secret", &["postgres", "mysql"]),
    ("locks", &["postgres"]),
    ("partition_fences", &["mysql"]),
    ("sentinel", &["postgres"]),
    ("server_run", &["postgres", "mysql"]),
    ("ticks", &["postgres", "mysql"]),
];

/// A new table is to be written down here, with what bounds it.
async fn every_table_has_a_known_bound<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let names = match DB::MODULE {
        "postgres" => {
            "SELECT table_name::text FROM information_schema.tables
            WHERE table_schema = 'twinbox' AND table_type = 'BASE TABLE'"
        }
        "mysql" => {
            "SELECT CAST(table_name AS CHAR) FROM information_schema.tables
            WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'"
        }
        _ => "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'twinbox%'",
    };
    let mut conn = world.pool().acquire().await.unwrap();
    let names = sqlx::query_scalar::<DB, String>(names).fetch_all(&mut *conn).await.unwrap();
    let found = names.iter().map(|name| name.strip_prefix("twinbox_").unwrap_or(name));
    // Beside those of the program, the tests have one.
    let found = BTreeSet::from_iter(found.filter(|name| *name != "effects"));
    let is_here = |name: &&str| {
        let only = ONLY.iter().find(|(table, _)| table == name);
        only.is_none_or(|(_, databases)| databases.contains(&DB::MODULE))
    };
    let listed = BTreeSet::from_iter(TABLES.iter().map(|(name, ..)| *name).filter(is_here));
    let (new, gone) = (Vec::from_iter(found.difference(&listed)), Vec::from_iter(listed.difference(&found)));
    assert!(new.is_empty() && gone.is_empty(), "say what bounds {new:?}; {gone:?} do not exist any more");
}

cases! { all: [every_table_has_a_known_bound] }

#[test]
fn each_table_that_a_stranger_can_make_grow_is_filled_by_a_test() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut strangers = 0;
    for (table, by, bound, proofs) in TABLES {
        strangers += usize::from(by.is_stranger());
        assert!(!by.is_stranger() || !proofs.is_empty(), "{table} grows by a {by:?}, and no test fills it");
        assert!(!bound.is_empty(), "{table}");
        for proof in proofs {
            let (file, test) = proof.split_once("::").unwrap();
            let code = std::fs::read_to_string(tests.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            let is_there = ["<", "("].iter().any(|after| code.contains(&format!("fn {test}{after}")));
            assert!(is_there, "{table}: there is no {proof}");
        }
    }
    assert!(strangers > 5, "{strangers}");
}

/// The ids of the dead letters of a consumer.
async fn ids(world: &World<Postgres>, consumer: &str) -> Vec<DeadLetterId> {
    let dead_letters = world.inbox(consumer).dead_letters(100).await.unwrap();
    dead_letters.iter().map(|dead_letter| DeadLetterId::OfConsumer(dead_letter.id)).collect()
}

/// The beginning is an event that the handlers of both consumers would take.
#[tokio::test(flavor = "multi_thread")]
async fn of_garbage_the_beginning_is_kept_and_no_handler_runs_on_it() {
    let (world, broker) = start().await;
    let garbage = format!("{{\"n\":7}}{}", " ".repeat(100_000));
    let neighbour = broker.client("reviews").await;
    send(&neighbour, "events.5.reviews.written", HeaderMap::new(), &garbage).await;
    let admin = broker.client("admin").await;
    send(&admin, "events.3.orders.placed", HeaderMap::new(), &garbage).await;
    run_until(billing(&world, &broker), async || world.rows("dead_letters").await == 2).await;
    run_until(search(&world, &broker), async || world.rows("dead_letters").await == 3).await;
    let mut all = Vec::new();
    for consumer in ["billing.invoice", "search.index"] {
        for dead_letter in world.inbox(consumer).dead_letters(10).await.unwrap() {
            let (message, error) = (&dead_letter.message, &dead_letter.error);
            assert_eq!((message.payload.len(), message.header("twinbox-cut")), (4096, Some("100007")));
            let place = "of its 100007 bytes the first 4096 are kept, and message ";
            assert!(error.contains(place) && error.contains(" of the stream `EVENTS`"), "{error}");
        }
        all.extend(ids(&world, consumer).await);
    }

    assert_eq!(Ops::new(&world).redrive(&all, Duration::ZERO).await.unwrap(), 3);
    let refused = async || {
        let refused = |(_, error): &&(String, String)| {
            error.starts_with("not redriven") && error.contains("of the stream `EVENTS`")
        };
        dead_letters(&world).await.iter().filter(refused).count()
    };
    run_until(billing(&world, &broker), async || refused().await == 2).await;
    run_until(search(&world, &broker), async || refused().await == 3).await;
    assert_eq!(world.effects().await, [0; 0], "no handler has run");
    assert_eq!((world.rows("dead_letters").await, world.rows("parked_deliveries").await), (3, 0));
}

/// On a machine that needs minutes for it, each minute has its hundred.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_beyond_the_rate_waits_and_other_types_are_handled() {
    let (world, broker) = start().await;
    let neighbour = broker.client("reviews").await;
    for _ in 0..150 {
        send(&neighbour, "events.5.reviews.written", HeaderMap::new(), "no event").await;
    }
    let admin = broker.client("admin").await;
    send(&admin, "events.0.orders.placed", headers("order-1", "orders.placed", "1"), "{\"n\":1}").await;
    let stream = jetstream::new(admin).get_stream(STREAM).await.unwrap();
    let begun = Instant::now();
    run_until(billing(&world, &broker), async || {
        let durable = stream.consumer_info("billing_invoice").await;
        let is_delivered = durable.is_ok_and(|durable| durable.delivered.stream_sequence == 151);
        is_delivered && world.rows("dead_letters").await >= 100 && world.effects().await == [1]
    })
    .await;
    let minutes = 1 + begun.elapsed().as_secs() / 60;
    let given_up = world.rows("dead_letters").await.unsigned_abs();
    assert!((100..=100 * minutes).contains(&given_up), "{given_up} in {minutes} minutes");
    let waiting = stream.consumer_info("billing_invoice").await.unwrap().num_ack_pending as u64;
    assert_eq!(given_up + waiting, 150, "nothing is lost");
}

/// With the order of keys, where a partition waits behind what has no room.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_have_a_bound_in_bytes_and_nothing_is_lost_at_it() {
    let (world, broker) = start().await;
    let admin = broker.client("admin").await;
    let partition = id::partition(Some("1"), MessageId::of("test", "orders.placed", "order-1"), 16);
    let (good, bad) = (partition, (partition + 1) % 16);
    for _ in 0..10 {
        let garbage = "x".repeat(10_000);
        send(&admin, &format!("events.{bad}.orders.placed"), HeaderMap::new(), &garbage).await;
    }
    let order = headers("order-1", "orders.placed", "1");
    send(&admin, &format!("events.{good}.orders.placed"), order, "{\"n\":1}").await;
    let bounded = |bytes| search(&world, &broker).dead_letter_bytes_max(bytes);
    run_until(bounded(10_000), async || {
        world.rows("dead_letters").await >= 3 && world.effects().await == [2001]
    })
    .await;
    let bytes = world.inbox("search.index").dead_letter_bytes().await.unwrap();
    assert!((10_000..15_000).contains(&bytes), "{bytes}");
    assert_eq!((world.rows("dead_letters").await, world.rows("parked_deliveries").await), (3, 0));

    // Others come once there is room.
    let first = ids(&world, "search.index").await;
    assert_eq!(Ops::new(&world).discard(&first).await.unwrap(), 3);
    run_until(bounded(10_000), async || world.rows("dead_letters").await > 0).await;
    run_until(bounded(1_000_000), async || world.rows("inbox").await == 11).await;
    assert_eq!((world.rows("dead_letters").await, world.effects().await), (7, vec![2001]));
}
