//! What a destination does not take is put aside, in the order of its key, and everything else goes on.
mod order;

use super::*;
use crate::support::{
    cases::cases,
    database::{TestDatabase, owner_of},
    log::take_over,
    postgres::{postgres_address, store_at, through},
    relay::publish_as,
    stores::TestDb,
    wait::{eventually, signal},
};
use sqlx::AssertSqlSafe;
use twinbox::{
    ErrorKind,
    log::{
        Reader, ReaderOptions,
        parking::{PARKED_MAX, ParkedState},
    },
    ops::{Ops, ParkedMessage},
    relay::OnExhausted,
};

/// A stream that takes only some types.
async fn homes(types: &[&str]) -> Target {
    let target = Target::shared();
    target.create(config(&target, types)).await;
    target
}

fn config(target: &Target, types: &[&str]) -> stream::Config {
    stream::Config { max_message_size: 2048, ..target.config(types) }
}

fn relay<DB: Dialect>(target: &Target, store: &Store<DB>, on_exhausted: OnExhausted) -> Running {
    let destination = Nats::with_options(target.existing()).unwrap();
    let options = RelayOptions::new().on_exhausted(on_exhausted);
    Running::run(Relay::with_options(store.clone(), destination, options))
}

async fn draft<DB: Dialect>(store: &Store<DB>, id: &str, event_type: &str, key: &str) {
    let mut tx = store.begin().await.unwrap();
    let draft = Draft::raw(event_type, 1, n_payload(0)).id(id).key(key);
    store.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.commit().await.unwrap();
}

/// Larger than the stream takes.
async fn poison<DB: Dialect>(store: &Store<DB>, id: &str, key: &str) {
    let mut tx = store.begin().await.unwrap();
    let draft = Draft::raw("orders.placed", 1, vec![b' '; 4000]).id(id).key(key);
    store.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.commit().await.unwrap();
}

async fn execute<DB: TestDb>(store: &Store<DB>, sql: &str) {
    let sql = sql.replace("parked", &DB::table_of("parked_messages"));
    let mut conn = owner_of(store).pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await.unwrap();
}

fn ids(parked: &[ParkedMessage]) -> Vec<(&str, &str)> {
    parked.iter().map(|p| (p.message.id.as_str(), p.state.as_str())).collect()
}

/// Waits until these are put aside, and answers with all of them.
async fn parked_are<DB: TestDb>(store: &Store<DB>, expected: &[(&str, &str)]) -> Vec<ParkedMessage> {
    eventually(async || {
        let parked = Ops::new(store).parked_messages("nats", 1000).await.unwrap();
        (ids(&parked) == expected).then_some(parked)
    })
    .await
}

/// The sequences that arrived, by key.
async fn arrived(target: &Target, count: usize) -> HashMap<String, Vec<u64>> {
    let mut by_key: HashMap<String, Vec<u64>> = HashMap::new();
    for (_, key, sequence) in target.messages(count).await {
        by_key.entry(key.unwrap()).or_default().push(sequence);
    }
    by_key
}

/// A message that is too large is dead at once, and its key goes on.
async fn a_poison_message_becomes_a_dead_letter_and_delays_nobody<DB: TestDb>() {
    let (store, homes) = (DB::fresh().await, homes(&["orders.placed"]).await);
    poison(&store, "poison", "k-3").await;
    publish(&store, 0..70).await;
    let running = relay(&homes, &store, OnExhausted::DeadLetter);
    running.published(70).await;
    let parked = parked_are(&store, &[("poison", "dead")]).await;
    assert_eq!((parked[0].attempts, parked[0].first_error.as_str()), (1, "nats.10054"));
    assert_eq!(parked[0].message.payload.len(), 4000);
    let counters = running.stop().await;
    assert_eq!((counters.published(), counters.parked(), counters.dead_letters()), (70, 1, 1));
    assert_whole_and_ordered(&homes.messages(70).await, 70);
}

/// A type without a stream waits, with what comes after it of its key; everything else flows.
async fn a_type_without_a_home_waits_for_one_in_order<DB: TestDb>() {
    let (store, homes) = (DB::fresh().await, homes(&["orders.placed"]).await);
    for (id, event_type, key) in [
        ("a1", "orders.paid", "a"),
        ("a2", "orders.placed", "a"),
        ("b1", "orders.placed", "b"),
        ("a3", "orders.paid", "a"),
    ] {
        draft(&store, id, event_type, key).await;
    }
    let running = relay(&homes, &store, OnExhausted::DeadLetter);
    let parked = parked_are(&store, &[("a1", "waiting"), ("a2", "waiting"), ("a3", "waiting")]).await;
    assert_eq!(parked[0].first_error, "nats.no_stream");
    assert_eq!((parked[1].attempts, parked[1].first_error.as_str()), (0, "behind"));
    draft(&store, "a4", "orders.placed", "a").await;
    draft(&store, "b2", "orders.placed", "b").await;
    running.published(2).await;
    homes.update(config(&homes, &["orders.placed", "orders.paid"])).await;
    running.published(6).await;
    parked_are(&store, &[]).await;
    // The key is free again.
    draft(&store, "a5", "orders.placed", "a").await;
    running.published(7).await;
    running.stop().await;
    let arrived = arrived(&homes, 7).await;
    assert_eq!((&arrived["a"], &arrived["b"]), (&vec![1, 2, 4, 5, 7], &vec![3, 6]));
}

async fn a_dead_letter_holds_its_key_where_that_was_asked_for<DB: TestDb>() {
    let (store, homes) = (DB::fresh().await, homes(&["orders.placed"]).await);
    poison(&store, "poison", "a").await;
    draft(&store, "a1", "orders.placed", "a").await;
    draft(&store, "b1", "orders.placed", "b").await;
    let running = relay(&homes, &store, OnExhausted::ParkKey);
    running.published(1).await;
    parked_are(&store, &[("poison", "dead"), ("a1", "waiting")]).await;
    execute(&store, "DELETE FROM parked WHERE state = 'dead'").await;
    running.published(2).await;
    parked_are(&store, &[]).await;
    running.stop().await;
}

async fn a_dead_letter_blocks_everything_where_that_was_asked_for<DB: TestDb>() {
    let (store, homes) = (DB::fresh().await, homes(&["orders.placed"]).await);
    poison(&store, "poison", "a").await;
    let running = relay(&homes, &store, OnExhausted::Block);
    parked_are(&store, &[("poison", "blocking")]).await;
    draft(&store, "b1", "orders.placed", "b").await;
    tokio::select! {
        () = signal("parking.keeps_back") => {}
        () = running.published(1) => panic!("the message passed the one that blocks"),
    }
    running.stop().await;
    let running = relay(&homes, &store, OnExhausted::Block);
    execute(&store, "DELETE FROM parked").await;
    running.published(1).await;
    running.stop().await;
}

/// Back-pressure, not loss.
async fn at_a_limit_of_waiting_messages_nothing_more_is_read<DB: TestDb>() {
    let (store, homes) = (DB::fresh().await, homes(&["orders.placed"]).await);
    relay(&homes, &store, OnExhausted::DeadLetter).stop().await;
    // Rows of messages that the log does not have are never due.
    let all = format!(
        "INSERT INTO parked (destination, position, type, state, blocks_key, attempts, next_attempt_at, \
        first_error, last_error, fingerprint)
        SELECT 'nats', 1000000 + n, 'orders.paid', 'waiting', true, 0, {}, 'x', 'x', 'x' FROM {}",
        DB::time(twinbox::Timestamp::from_micros(0)),
        DB::numbers(PARKED_MAX),
    );
    execute(&store, &all).await;
    let running = relay(&homes, &store, OnExhausted::DeadLetter);
    eventually(async || cursor_is_owned(&store).await.then_some(())).await;
    draft(&store, "b1", "orders.placed", "b").await;
    tokio::select! {
        () = signal("parking.is_full") => {}
        () = running.published(1) => panic!("the message was read"),
    }
    execute(&store, "DELETE FROM parked WHERE position < 1000100").await;
    running.published(1).await;
    running.stop().await;
}

async fn cursor_is_owned<DB: TestDb>(store: &Store<DB>) -> bool {
    let sql = format!("SELECT count(*) FROM {} WHERE owner IS NOT NULL", DB::table_of("cursors"));
    let mut conn = store.pool().acquire().await.unwrap();
    sqlx::query_scalar::<DB, i64>(AssertSqlSafe(sql)).fetch_one(&mut *conn).await.unwrap() == 1
}

/// A fault of the destination does not bury a log.
async fn a_storm_of_dead_letters_is_stopped() {
    let (store, homes) = (database::postgres().await, homes(&["orders.placed"]).await);
    for n in 0..150 {
        poison(&store, &format!("p{n}"), &format!("k{n}")).await;
    }
    let running = relay(&homes, &store, OnExhausted::DeadLetter);
    eventually(async || (running.counters.dead_letters() == 100).then_some(())).await;
    let counters = running.stop().await;
    assert_eq!(counters.dead_letters(), 100);
    let parked = Ops::new(&store).parked_messages("nats", 1000).await.unwrap();
    assert_eq!(parked.iter().filter(|p| p.state == "dead").count(), 100);
}

async fn open<DB: Dialect>(store: &TestDatabase<DB>) -> Reader<DB> {
    let options = ReaderOptions::new().parking(true).lease(Duration::from_secs(60));
    let opened = Reader::open(store, "nats", Uuid::now_v7(), options).await.unwrap();
    opened.expect("nobody else reads")
}

/// Who lost the lease puts nothing aside.
async fn a_reader_that_lost_its_lease_parks_nothing<DB: TestDb>() {
    let store = DB::fresh().await;
    draft(&store, "a1", "orders.placed", "a").await;
    let mut first = open(&store).await;
    let entry = first.next(1).await.unwrap().remove(0);
    free_leases(&store).await;
    let mut second = take_over(&store, "nats", ReaderOptions::new().parking(true)).await;
    first.park(entry, ParkedState::Dead, 1, "late");
    assert_eq!(first.close().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(Ops::new(&store).parked_messages("nats", 10).await.unwrap(), []);
    assert_eq!(second.next(1).await.unwrap()[0].message.id, "a1");
}

/// What is put aside above an unfinished message is not handed out again by the next reader.
async fn what_is_parked_is_handed_out_by_its_row_alone<DB: TestDb>() {
    let store = DB::fresh().await;
    for (id, key) in [("a1", "a"), ("b1", "b"), ("c1", "c"), ("b2", "b")] {
        draft(&store, id, "orders.placed", key).await;
    }
    let mut reader = open(&store).await;
    let mut entries = Vec::new();
    while entries.len() < 3 {
        entries.extend(reader.next(10).await.unwrap());
    }
    let b1 = entries.remove(1);
    let c1 = entries.remove(1);
    assert_eq!((b1.message.id.as_str(), c1.message.id.as_str()), ("b1", "c1"));
    reader.park(b1, ParkedState::Waiting(Duration::from_secs(600)), 2, "later");
    reader.park(c1, ParkedState::Waiting(Duration::ZERO), 1, "now");
    // a1 is never settled, and holds the cursor.
    let again = reader.next(10).await.unwrap().remove(0);
    assert_eq!((again.message.id.as_str(), again.ticket.attempt), ("c1", 2));
    reader.close().await.unwrap();
    assert_eq!(
        ids(&Ops::new(&store).parked_messages("nats", 10).await.unwrap()),
        [("b1", "waiting"), ("c1", "waiting"), ("b2", "waiting")]
    );

    let mut reader = open(&store).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        for entry in reader.next(10).await.unwrap() {
            seen.push(entry.message.id.clone());
            reader.settle(entry.ticket);
        }
    }
    seen.sort();
    assert_eq!(seen, ["a1", "c1"]);
    reader.close().await.unwrap();
    assert_eq!(
        ids(&Ops::new(&store).parked_messages("nats", 10).await.unwrap()),
        [("b1", "waiting"), ("b2", "waiting")]
    );
}

cases! {
    all: [
        a_poison_message_becomes_a_dead_letter_and_delays_nobody,
        a_type_without_a_home_waits_for_one_in_order,
        a_dead_letter_holds_its_key_where_that_was_asked_for,
        a_dead_letter_blocks_everything_where_that_was_asked_for,
        a_reader_that_lost_its_lease_parks_nothing,
        what_is_parked_is_handed_out_by_its_row_alone,
        at_a_limit_of_waiting_messages_nothing_more_is_read,
    ]
    postgres: [a_storm_of_dead_letters_is_stopped]
}

/// Over a line on which each statement takes 20 ms, with a lease of 10 s: a statement a row would lose it for
/// ever.
#[tokio::test(flavor = "multi_thread")]
async fn many_messages_are_parked_in_few_statements() {
    let (store, target) = (database::postgres().await, homes(&["orders.placed"]).await);
    let address = postgres_address(store.url());
    let proxy = twinbox_testkit::proxy::Proxy::start(address).await.unwrap();
    proxy.lead_over(Duration::from_millis(10), None);
    let far = store_at(&through(store.url(), &proxy)).await;
    publish_as(&store, 0..1000, |_| "orders.homeless").await;
    let destination = Nats::with_options(target.existing()).unwrap();
    let options = RelayOptions::new().lease(Duration::from_secs(10));
    let running = Running::run(Relay::with_options(far, destination, options));
    let parked = "SELECT count(*) FROM twinbox.parked_messages WHERE state = 'waiting'";
    eventually(async || {
        let parked: i64 = sqlx::query_scalar(parked).fetch_one(store.pool()).await.unwrap();
        (parked == 1000).then_some(())
    })
    .await;
    assert_eq!(running.stop().await.lease_losses(), 0);
}
