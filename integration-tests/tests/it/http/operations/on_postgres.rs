//! Operations on Postgres: schemas, time-outs and isolation.
use super::*;

/// Services that share a database have keys of their own.
async fn keys_of_another_schema_are_other_keys() {
    let world = World::<Postgres>::new().await;
    let options = StoreOptions::new().namespace("other");
    let other = Store::with_options(world.pool().clone(), "other", options).unwrap();
    other.migrate().await.unwrap();
    let operation = open(&world, &key("a"), "1").await;
    for body in ["1", "2"] {
        let begun =
            in_time(other.idempotency_keys().begin(&key("a"), &asked(body), &policy(SHORT))).await.unwrap();
        assert!(matches!(begun, OperationStart::Open(_)), "{body}");
    }
    drop(operation);
}

/// Whoever lost power holds its key no longer than its transaction may stand still.
async fn a_transaction_that_stands_still_is_ended_by_the_server() {
    let world = World::<Postgres>::new().await;
    // A busy machine has to write within this time.
    let brief = OperationPolicy { idle_max: Duration::from_secs(2), ..policy(LONG) };
    let OperationStart::Open(mut still) =
        world.idempotency_keys().begin(&key("a"), &asked("1"), &brief).await.unwrap()
    else {
        panic!("it is free");
    };
    effect::<Postgres>(&mut still.tx(), 1).await.unwrap();
    let OperationStart::Open(mut next) = begin(&world, &key("a"), "1", LONG).await else {
        panic!("it is free again")
    };
    effect::<Postgres>(&mut next.tx(), 1).await.unwrap();
    next.commit(&answer("next")).await.unwrap();
    assert!(still.commit(&answer("late")).await.is_err());
    assert_eq!(world.effects().await, [1]);
}

/// The wait for the key is not the wait for the handler's own locks
async fn the_time_out_of_the_wait_does_not_leak_into_the_handler() {
    let world = World::<Postgres>::new().await;
    let mut operation = open(&world, &key("a"), "1").await;
    let left: String = sqlx::query_scalar("SHOW lock_timeout").fetch_one(&mut *operation.tx()).await.unwrap();
    assert_eq!(left, "0");
    operation.abandon().await;
}

/// t12
async fn t12_sessions_that_ask_for_more_isolation_get_what_the_key_needs() {
    let world = World::<Postgres>::new().await;
    world
        .execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = \
                   serializable', current_database()); END $$",
        )
        .await;
    let store = Postgres::open(world.url()).await;
    let again = async || {
        let begun = store.idempotency_keys().begin(&key("a"), &asked("1"), &policy(LONG)).await.unwrap();
        let OperationStart::Open(mut operation) = begun else { return known(begun) };
        effect::<Postgres>(&mut operation.tx(), 1).await.unwrap();
        operation.commit(&answer("1")).await.unwrap();
        answer("1")
    };
    let all = futures::future::join_all((0..8).map(|_| again())).await;
    assert_eq!(all, vec![answer("1"); 8]);
    assert_eq!(world.effects().await, [1]);
}

/// Of a few rows, for which their page has room.
async fn the_end_of_an_operation_writes_its_row_into_no_index() {
    let world = World::<Postgres>::new().await;
    for n in 0..5 {
        known(refund(&world, &key(&n.to_string()), n).await);
    }
    // A server process hands in what it has counted when it ends.
    world.close().await;
    let counted = async |column: &str| {
        world
            .number(format!(
                "SELECT {column} FROM pg_stat_user_tables WHERE relid = 'twinbox.idempotency_keys'::regclass"
            ))
            .await
    };
    eventually(async || (counted("n_tup_upd").await == 5).then_some(())).await;
    assert_eq!(counted("n_tup_hot_upd").await, 5);
}

cases! {
    postgres: [
        the_end_of_an_operation_writes_its_row_into_no_index,
        keys_of_another_schema_are_other_keys,
        a_transaction_that_stands_still_is_ended_by_the_server,
        the_time_out_of_the_wait_does_not_leak_into_the_handler,
        t12_sessions_that_ask_for_more_isolation_get_what_the_key_needs,
    ]
}
