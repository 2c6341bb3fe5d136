//! The order of a key whose messages are refused: again, by the relay itself, or each on its own.
use super::*;

async fn parked(store: &Store<Postgres>, state: &str) -> i64 {
    let count = "SELECT count(*) FROM twinbox.parked_messages WHERE state = $1";
    sqlx::query_scalar(count).bind(state).fetch_one(store.pool()).await.unwrap()
}

async fn parked_is(store: &Store<Postgres>, state: &str, count: i64) {
    eventually(async || (parked(store, state).await == count).then_some(())).await;
}

/// Writes as many messages of each key, in one transaction. The database computes headers and type of the
/// `n`th.
async fn insert(store: &Store<Postgres>, keys: i32, each: i32, event_type: &str, headers: &str) {
    let sql = format!(
        "INSERT INTO twinbox.outbox (id, type, key, headers, payload)
        SELECT k || '-' || n, {event_type}, 'key-' || k, {headers}, '{{}}'
        FROM generate_series(1, {keys}) k, generate_series(1, {each}) n
        ORDER BY k, n"
    );
    sqlx::query(AssertSqlSafe(sql)).execute(store.pool()).await.unwrap();
}

async fn assert_in_order(target: &Target, count: usize) {
    for (key, sequences) in arrived(target, count).await {
        assert!(sequences.is_sorted(), "{key}: {sequences:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_refused_again_is_passed_by_none_of_its_key() {
    let (store, homes) = (database::postgres().await, homes(&["orders.placed"]).await);
    insert(&store, 10, 3, "CASE n WHEN 1 THEN 'orders.other' ELSE 'orders.placed' END", "NULL").await;
    let running = relay(&homes, &store, OnExhausted::DeadLetter);
    parked_is(&store, "waiting", 30).await;
    for refusals in [20, 30] {
        execute(&store, "UPDATE parked SET next_attempt_at = now()").await;
        eventually(async || (running.counters.parked() >= refusals).then_some(())).await;
        parked_is(&store, "waiting", 30).await;
    }
    assert_eq!(running.counters.published(), 0);
    homes.update(config(&homes, &["orders.placed", "orders.other"])).await;
    running.published(30).await;
    running.stop().await;
    assert_in_order(&homes, 30).await;
}

/// The second of each key has a header that NATS cannot transport: the relay knows so before the first one is
/// stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_holds_its_key_while_an_earlier_message_is_on_its_way() {
    let (store, homes) = (database::postgres().await, homes(&["orders.placed"]).await);
    insert(&store, 40, 4, "'orders.placed'", r#"CASE n WHEN 2 THEN '{"a b": "x"}' END"#).await;
    let running = relay(&homes, &store, OnExhausted::ParkKey);
    parked_is(&store, "dead", 40).await;
    parked_is(&store, "waiting", 80).await;
    assert_eq!(running.counters.published(), 40);
    execute(&store, "DELETE FROM parked WHERE state = 'dead'").await;
    running.published(120).await;
    running.stop().await;
    assert_in_order(&homes, 120).await;
}

/// Its id, which is its correlation too, holds a line feed: no event may have it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_whose_event_would_be_invalid_stops_nobody() {
    let (store, target) = (database::postgres().await, Target::shared());
    let sql = r#"INSERT INTO twinbox.outbox (id, type, headers, payload)
        VALUES (E'order-7\n', 'orders.placed', '{"a b": "x"}', '{}')"#;
    sqlx::query(sql).execute(store.pool()).await.unwrap();
    insert(&store, 5, 10, "'orders.placed'", "NULL").await;
    let options = RelayOptions::new().dead_letter_events(true);
    let running = Running::run(Relay::with_options(store.clone(), target.destination(), options));
    // With the event itself.
    running.published(51).await;
    parked_is(&store, "dead", 1).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_subject_stops_only_its_own_messages() {
    let (store, target) = (database::postgres().await, Target::shared());
    let config = stream::Config {
        max_messages_per_subject: 5,
        discard: stream::DiscardPolicy::New,
        discard_new_per_subject: true,
        ..target.config(&["orders.placed", "orders.paid"])
    };
    target.create(config).await;
    insert(&store, 1, 10, "'orders.placed'", "NULL").await;
    publish_as(&store, 0..3, |_| "orders.paid").await;
    let running = relay(&target, &store, OnExhausted::DeadLetter);
    running.published(8).await;
    parked_is(&store, "waiting", 5).await;
    running.stop().await;
}

/// Both are destinations of one outbox.
#[tokio::test(flavor = "multi_thread")]
async fn two_destinations_of_one_stream_have_a_copy_of_each_message_each() {
    let (store, target) = (database::postgres().await, Target::shared());
    let subjects = ["first.>", "second.>"].map(|subject| format!("{}.{subject}", target.prefix()));
    target.create(stream::Config { subjects: subjects.to_vec(), ..target.config(&[]) }).await;
    insert(&store, 20, 10, "'orders.placed'", "NULL").await;
    let run = |id: &str| {
        let options = target.existing().id(id).prefix(format!("{}.{id}", target.prefix()));
        Running::run(Relay::new(store.clone(), Nats::with_options(options).unwrap()))
    };
    let both = [run("first"), run("second")];
    for running in both {
        running.published(200).await;
        assert_eq!(running.stop().await.duplicates(), 0);
    }
    assert_eq!(target.count().await, 400);
}
