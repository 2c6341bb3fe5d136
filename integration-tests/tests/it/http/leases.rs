//! Operations that hold their key without a transaction.
use crate::support::{
    cases::cases,
    databases::Postgres,
    operations::{LONG, SHORT, answer, asked, end, key, known, lease, open_lease as open, policy, runs_out},
    postgres::waits_for_a_lock,
    stores::{TestDb, World, effect},
    wait::{eventually, in_time},
};
use sqlx::AssertSqlSafe;
use std::time::Duration;
use twinbox::{ErrorKind, operation::OperationStart};

/// R34, D5
async fn the_key_is_held_without_a_transaction<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = open(&world, &key("a"), "1").await;
    assert!(matches!(lease(&world, &key("a"), "1").await, OperationStart::InFlight));
    assert!(matches!(lease(&world, &key("a"), "2").await, OperationStart::Mismatch));
    assert!(matches!(
        world.idempotency_keys().begin(&key("a"), &asked("1"), &policy(SHORT)).await.unwrap(),
        OperationStart::InFlight
    ));
    end(&first, 1).await;
    assert_eq!(known(lease(&world, &key("a"), "1").await), answer("1"));
    assert!(matches!(lease(&world, &key("a"), "2").await, OperationStart::Mismatch));
    assert_eq!(world.effects().await, [1]);
}

/// R42, t16
async fn who_was_too_slow_is_fenced<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut slow = open(&world, &key("a"), "1").await;
    slow.save("charged:ch_1").await.unwrap();
    runs_out(&world).await;
    assert!(matches!(lease(&world, &key("a"), "2").await, OperationStart::Mismatch));
    let second = open(&world, &key("a"), "1").await;
    assert_eq!((second.attempt(), second.recovery_point()), (2, Some("charged:ch_1")));
    for error in [slow.save("later").await.unwrap_err(), slow.begin().await.err().unwrap()] {
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
    }
    end(&second, 2).await;
    assert_eq!(slow.begin().await.err().unwrap().kind(), ErrorKind::LeaseLost);
    slow.release().await.unwrap();
    assert_eq!(known(lease(&world, &key("a"), "1").await), answer("2"));
    assert_eq!(world.effects().await, [2]);
}

/// D9
async fn who_gives_up_lets_the_same_request_try_at_once<DB: TestDb>() {
    let world = World::<DB>::new().await;
    open(&world, &key("a"), "1").await.release().await.unwrap();
    assert!(matches!(lease(&world, &key("a"), "2").await, OperationStart::Mismatch));
    let second = open(&world, &key("a"), "1").await;
    assert_eq!((second.attempt(), second.failures()), (2, 1));
    second.postpone().await.unwrap();
    let third = open(&world, &key("a"), "1").await;
    assert_eq!((third.attempt(), third.failures()), (3, 1));
    drop(third);
    runs_out(&world).await;
    let last = open(&world, &key("a"), "1").await;
    assert_eq!((last.attempt(), last.failures()), (4, 2));
    end(&last, 1).await;
}

async fn who_has_done_nothing_lets_any_request_try<DB: TestDb>() {
    let world = World::<DB>::new().await;
    open(&world, &key("a"), "1").await.forget().await.unwrap();
    let mut first = open(&world, &key("a"), "2").await;
    assert_eq!(first.attempt(), 1);
    first.save("called").await.unwrap();
    first.forget().await.unwrap();
    assert!(matches!(lease(&world, &key("a"), "3").await, OperationStart::Mismatch));
    let last = open(&world, &key("a"), "2").await;
    assert_eq!((last.attempt(), last.failures(), last.recovery_point()), (2, 0, Some("called")));
    end(&last, 1).await;
}

/// Who failed, or died, may have called somebody before it could save that.
async fn who_has_done_nothing_does_not_speak_for_those_before<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for dies in [false, true] {
        let key = key(if dies { "dies" } else { "fails" });
        let first = open(&world, &key, "1").await;
        if dies {
            drop(first);
            runs_out(&world).await;
        } else {
            first.release().await.unwrap();
        }
        open(&world, &key, "1").await.forget().await.unwrap();
        assert!(matches!(lease(&world, &key, "2").await, OperationStart::Mismatch));
        let third = open(&world, &key, "1").await;
        assert_eq!((third.attempt(), third.failures()), (3, 1));
    }
}

async fn a_transaction_that_fails_leaves_the_key_held<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = open(&world, &key("a"), "1").await;
    let mut operation = first.begin().await.unwrap();
    effect::<DB>(&mut operation.tx(), 1).await.unwrap();
    operation.abandon().await;
    assert!(matches!(lease(&world, &key("a"), "1").await, OperationStart::InFlight));
    end(&first, 2).await;
    assert_eq!(world.effects().await, [2]);
}

/// Whoever has its transaction cannot save or begin beside it, and goes on when it has ended.
async fn a_lease_has_one_transaction<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut first = open(&world, &key("a"), "1").await;
    let operation = first.begin().await.unwrap();
    assert_eq!(in_time(first.begin()).await.err().unwrap().kind(), ErrorKind::Conflict);
    assert_eq!(in_time(first.save("here")).await.unwrap_err().kind(), ErrorKind::Conflict);
    operation.abandon().await;
    first.save("here").await.unwrap();
    end(&first, 1).await;
}

/// It is renewed three times in this time. The rest is for a busy machine.
const BRIEF: Duration = Duration::from_secs(4);

/// An abandoned transaction is not the end of the heartbeat.
async fn a_key_is_renewed_again_after_a_transaction_that_failed<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let begun = world.idempotency_keys().lease(&key("a"), &asked("1"), &policy(SHORT), BRIEF).await.unwrap();
    let OperationStart::Open(first) = begun else { panic!("it is free") };
    first.begin().await.unwrap().abandon().await;
    renewed(&world).await;
    renewed(&world).await;
    assert!(matches!(lease(&world, &key("a"), "1").await, OperationStart::InFlight));
    end(&first, 1).await;
}

/// What was saved, the row knows.
async fn what_was_saved_is_not_forgotten_by_who_does_not_know<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = open(&world, &key("a"), "1").await;
    let saved = format!("UPDATE {} SET recovery_point = 'charged'", DB::table_of("idempotency_keys"));
    sqlx::raw_sql(AssertSqlSafe(saved)).execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
    first.forget().await.unwrap();
    assert!(matches!(lease(&world, &key("a"), "2").await, OperationStart::Mismatch));
    assert_eq!(open(&world, &key("a"), "1").await.recovery_point(), Some("charged"));
}

/// D1: whether another ends it or not
async fn a_mismatch_is_told_while_it_ends() {
    let world = World::<Postgres>::new().await;
    let first = open(&world, &key("a"), "1").await;
    let operation = first.begin().await.unwrap();
    assert!(matches!(lease(&world, &key("a"), "2").await, OperationStart::Mismatch));
    assert!(matches!(lease(&world, &key("a"), "1").await, OperationStart::InFlight));
    operation.commit(&answer("1")).await.unwrap();
}

/// Waits until the lease is renewed.
async fn renewed<DB: TestDb>(world: &World<DB>) {
    let until = async || {
        let sql = format!("SELECT CAST(lease_until AS CHAR(40)) FROM {}", DB::table_of("idempotency_keys"));
        let mut conn = world.pool().acquire().await.unwrap();
        sqlx::query_scalar::<DB, String>(AssertSqlSafe(sql)).fetch_one(&mut *conn).await.unwrap()
    };
    let before = until().await;
    eventually(async || Some(until().await).filter(|now| *now != before)).await;
}

/// D5: a heartbeat
async fn a_key_stays_held_for_as_long_as_it_is_worked_on<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let begun = world.idempotency_keys().lease(&key("a"), &asked("1"), &policy(SHORT), BRIEF).await.unwrap();
    let OperationStart::Open(first) = begun else { panic!("it is free") };
    // After the fourth the first lease would be over.
    for _ in 0..4 {
        renewed(&world).await;
    }
    assert!(matches!(lease(&world, &key("a"), "1").await, OperationStart::InFlight));
    drop(first);
    eventually(async || matches!(lease(&world, &key("a"), "1").await, OperationStart::Open(_)).then_some(()))
        .await;
}

/// t21
async fn a_purge_passes_by_what_is_held<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = open(&world, &key("a"), "1").await;
    let sql = format!("UPDATE {} SET expires_at = created_at", DB::table_of("idempotency_keys"));
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await.unwrap();
    drop(conn);
    assert_eq!(world.idempotency_keys().purge().await.unwrap(), 0);
    assert!(matches!(lease(&world, &key("a"), "1").await, OperationStart::InFlight));
    runs_out(&world).await;
    assert_eq!(world.idempotency_keys().purge().await.unwrap(), 1);
    assert_eq!(first.begin().await.err().unwrap().kind(), ErrorKind::LeaseLost);
}

/// Whoever ends it cannot be overtaken half-way.
async fn nobody_takes_over_while_it_ends() {
    let world = World::<Postgres>::new().await;
    let first = open(&world, &key("a"), "1").await;
    let mut operation = first.begin().await.unwrap();
    effect::<Postgres>(&mut operation.tx(), 1).await.unwrap();
    let (again, waits) = (key("a"), policy(LONG));
    let (keys, request) = (world.idempotency_keys(), asked("1"));
    let again = keys.lease(&again, &request, &waits, LONG);
    let (ended, second) = tokio::join!(
        async {
            waits_for_a_lock(world.pool()).await;
            operation.commit(&answer("1")).await
        },
        again,
    );
    ended.unwrap();
    assert_eq!(known(second.unwrap()), answer("1"));
    assert_eq!(world.effects().await, [1]);
}

cases! {
    all: [
        the_key_is_held_without_a_transaction,
        who_was_too_slow_is_fenced,
        who_gives_up_lets_the_same_request_try_at_once,
        who_has_done_nothing_lets_any_request_try,
        who_has_done_nothing_does_not_speak_for_those_before,
        a_transaction_that_fails_leaves_the_key_held,
        a_key_stays_held_for_as_long_as_it_is_worked_on,
        a_purge_passes_by_what_is_held,
        a_lease_has_one_transaction,
        a_key_is_renewed_again_after_a_transaction_that_failed,
        what_was_saved_is_not_forgotten_by_who_does_not_know,
    ]
    postgres: [nobody_takes_over_while_it_ends, a_mismatch_is_told_while_it_ends]
}
