//! Operations with a key, without HTTP.
#[cfg(feature = "postgres")]
mod on_postgres;

use crate::support::{
    cases::cases,
    databases::{MySql, Postgres},
    operations::{SHORT, answer, asked, key, known, open, policy},
    stores::{Confirmed, TestDb, World, effect, sql_of},
    wait::{self, Pause, eventually, in_time},
};
use sqlx::{AssertSqlSafe, Row as _};
use std::time::Duration;
use twinbox::{
    Dialect as _, ErrorKind, Store, StoreOptions,
    message::TraceContext,
    operation::{
        FingerprintAlgorithm, Operation, OperationKey, OperationPolicy, OperationResponse, OperationStart,
        ResponseBody,
    },
};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

async fn begin<DB: TestDb>(
    world: &World<DB>,
    key: &OperationKey,
    body: &str,
    wait: Duration,
) -> OperationStart<Operation<DB>> {
    in_time(world.idempotency_keys().begin(key, &asked(body), &policy(wait))).await.unwrap()
}

/// Refunds `n` and says so.
async fn refund<DB: TestDb>(world: &World<DB>, key: &OperationKey, n: i64) -> OperationStart<Operation<DB>> {
    let body = format!("{{\"n\":{n}}}");
    let begun = begin(world, key, &body, LONG).await;
    let OperationStart::Open(mut operation) = begun else { return begun };
    effect::<DB>(&mut operation.tx(), n).await.unwrap();
    let rf = answer(&format!("rf_{n}"));
    operation.commit(&rf).await.unwrap();
    OperationStart::Completed(rf)
}

/// R24, R37, R48, t02 and t03
async fn asked_again_it_answers_the_same_and_does_nothing<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let first = known(refund(&world, &key("a"), 1).await);
    assert_eq!(known(refund(&world, &key("a"), 1).await), first);
    assert_eq!(world.effects().await, [1]);
    assert_eq!(world.idempotency_keys().find(&key("a"), &asked("{\"n\":1}")).await.unwrap(), Some(first));
    assert_eq!(known(refund(&world, &key("b"), 2).await), answer("rf_2"));
    assert_eq!(world.effects().await, [1, 2]);
}

/// R25, D1, t04
async fn another_request_with_the_key_is_a_mismatch<DB: TestDb>() {
    let world = World::<DB>::new().await;
    refund(&world, &key("a"), 1).await;
    assert!(matches!(refund(&world, &key("a"), 2).await, OperationStart::Mismatch));
    assert_eq!(known(begin(&world, &key("a"), " { \"n\" : 1.0 } ", SHORT).await), answer("rf_1"));
}

/// D1, t04
async fn a_mismatch_is_told_when_the_first_has_ended_on_mysql() {
    const { assert!(!MySql::CAPABILITIES.early_mismatch) };
    let world = World::<MySql>::new().await;
    let operation = open(&world, &key("a"), "1").await;
    for body in ["1", "2"] {
        assert!(matches!(begin(&world, &key("a"), body, SHORT).await, OperationStart::InFlight), "{body}");
    }
    operation.commit(&answer("1")).await.unwrap();
    assert!(matches!(begin(&world, &key("a"), "2", LONG).await, OperationStart::Mismatch));
}

/// D1, t04
async fn a_mismatch_is_told_while_the_first_is_under_way() {
    const { assert!(Postgres::CAPABILITIES.early_mismatch) };
    let world = World::<Postgres>::new().await;
    let operation = open(&world, &key("a"), "1").await;
    assert!(matches!(begin(&world, &key("a"), "2", LONG).await, OperationStart::Mismatch));
    assert!(matches!(begin(&world, &key("a"), "1", SHORT).await, OperationStart::InFlight));
    operation.abandon().await;
    open(&world, &key("a"), "2").await.abandon().await;
}

/// D11, R58, t07
async fn keys_of_others_are_other_keys<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let all = [
        key("a"),
        OperationKey { tenant: "t".into(), ..key("a") },
        OperationKey { principal: "t".into(), ..key("a") },
        OperationKey { scope: "POST_/payments".into(), ..key("a") },
        OperationKey { tenant: "a".into(), principal: "b".into(), ..key("c") },
        OperationKey { tenant: "ab".into(), ..key("c") },
    ];
    for (n, key) in (0i64..).zip(&all) {
        assert_eq!(known(refund(&world, key, n).await), answer(&format!("rf_{n}")));
    }
    assert_eq!(world.effects().await, [0, 1, 2, 3, 4, 5]);
}

/// R50
async fn what_is_given_up_leaves_its_key_free<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut operation = open(&world, &key("a"), "1").await;
    effect::<DB>(&mut operation.tx(), 1).await.unwrap();
    operation.abandon().await;
    let mut operation = open(&world, &key("a"), "2").await;
    effect::<DB>(&mut operation.tx(), 2).await.unwrap();
    drop(operation);
    known(refund(&world, &key("a"), 3).await);
    assert_eq!(world.effects().await, [3]);
}

/// R49, R54, t11
async fn of_many_who_wait_for_one_that_fails_one_succeeds() {
    let world = World::<Postgres>::new().await;
    let first = open(&world, &key("a"), "{\"n\":1}").await;
    let asked = async {
        let all = (0..8).map(async |_| refund(&world, &key("a"), 1).await);
        futures::future::join_all(all).await
    };
    let fails = async {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        eventually(async || {
            let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(world.pool()).await.unwrap();
            (waiting >= 4).then_some(())
        })
        .await;
        first.abandon().await;
    };
    let (answers, ()) = tokio::join!(asked, fails);
    assert!(answers.into_iter().all(|one| known(one) == answer("rf_1")));
    assert_eq!(world.effects().await, [1]);
}

/// R6, R7, R16, t21
async fn t21_what_has_expired_is_done_again_and_purged<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let at_once = OperationPolicy { keep: Duration::ZERO, ..policy(SHORT) };
    // The clock of SQLite counts milliseconds.
    let again = async |body: &'static str| {
        eventually(async || {
            let begun = world.idempotency_keys().begin(&key("a"), &asked(body), &at_once).await.unwrap();
            if let OperationStart::Open(operation) = begun { Some(operation) } else { None }
        })
        .await
    };
    again("1").await.commit(&answer("first")).await.unwrap();
    open(&world, &key("b"), "1").await.commit(&answer("b")).await.unwrap();
    again("2").await.commit(&answer("second")).await.unwrap();
    assert_eq!(world.idempotency_keys().find(&key("a"), &asked("2")).await.unwrap(), None);
    let mut purged = 0;
    eventually(async || {
        purged += world.idempotency_keys().purge().await.unwrap();
        (purged > 0).then_some(())
    })
    .await;
    assert_eq!((purged, world.rows("idempotency_keys").await), (1, 1));
    assert_eq!(world.idempotency_keys().find(&key("b"), &asked("1")).await.unwrap(), Some(answer("b")));
}

async fn a_key_has_a_bound<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let of = |bytes| {
        let long = "k".repeat(bytes);
        let (key, scope, tenant, principal) = (long.clone(), long.clone(), long.clone(), long);
        OperationKey { key, scope, tenant, principal, is_shared: false }
    };
    for n in 0..4 {
        let OperationKey { key, scope, tenant, principal, .. } = of(255);
        let mut parts = [key, scope, tenant, principal];
        parts[n].push('k');
        let [key, scope, tenant, principal] = parts;
        let long = OperationKey { key, scope, tenant, principal, is_shared: n % 2 == 0 };
        let error = world.idempotency_keys().begin(&long, &asked("1"), &policy(SHORT)).await.err().unwrap();
        assert!(error.to_string().contains("at most 255 bytes"), "{error}");
    }
    open(&world, &of(255), "1").await.commit(&answer("1")).await.unwrap();
}

/// t21: in statements of 1,000
async fn t21_a_purge_takes_what_has_expired_and_nothing_else<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for n in 0..3 {
        open(&world, &key(&n.to_string()), "1").await.commit(&answer("1")).await.unwrap();
    }
    let table = DB::table_of("idempotency_keys");
    let bytes = match DB::MODULE {
        "postgres" => "sha256(n::text::bytea)",
        "mysql" => "UNHEX(SHA2(n, 256))",
        _ => "randomblob(32)",
    };
    let many = format!(
        "INSERT INTO {table} (slot, tenant, principal, scope, key, request_hash, hash_alg, status, \
        expires_at, created_at)
        SELECT {bytes}, '', '', '', 'old', {bytes}, 'raw-sha256/1', 'complete', created_at, created_at
        FROM {}, (SELECT min(created_at) AS created_at FROM {table}) AS first",
        DB::numbers(2500)
    );
    let mut tx = world.owner().begin().await.unwrap();
    if DB::MODULE == "postgres" {
        sqlx::raw_sql("SET LOCAL session_replication_role = replica").execute(&mut *tx).await.unwrap();
    }
    sqlx::raw_sql(sql_of::<DB>(&many)).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.idempotency_keys().purge().await.unwrap(), 2500);
    assert_eq!(world.rows("idempotency_keys").await, 3);
}

/// D13
async fn every_kind_of_answer_comes_back_as_it_was<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let bodies = [
        ResponseBody::Inline(Vec::new()),
        ResponseBody::Inline(vec![0, 255, b'"']),
        ResponseBody::Reference("rf_1".into()),
        ResponseBody::Omitted,
    ];
    for (n, body) in (0u16..).zip(bodies) {
        let answer = OperationResponse { code: n, headers: vec![0, 13, 10], body, is_failure: n % 2 == 1 };
        let key = key(&n.to_string());
        open(&world, &key, "1").await.commit(&answer).await.unwrap();
        assert_eq!(known(begin(&world, &key, "1", SHORT).await), answer);
    }
}

/// What is published again after the key has expired is no duplicate
async fn what_is_published_has_fresh_ids_and_the_operation_as_its_correlation<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for n in [1, 2] {
        // The clock of SQLite counts milliseconds: the first answer expires a little later.
        let mut operation = eventually(async || {
            let begun = world.idempotency_keys().begin(&key("a"), &asked("1"), &policy(SHORT)).await.unwrap();
            if let OperationStart::Open(operation) = begun { Some(operation) } else { None }
        })
        .await;
        let expired = OperationPolicy { keep: Duration::ZERO, ..policy(SHORT) };
        operation.tx().publish(&Confirmed { n: 1 }).await.unwrap();
        if n == 1 {
            operation.abandon().await;
            let OperationStart::Open(mut first) =
                world.idempotency_keys().begin(&key("a"), &asked("1"), &expired).await.unwrap()
            else {
                panic!("the key is free");
            };
            let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            first.correlate(None, TraceContext::new(trace, None));
            first.tx().publish(&Confirmed { n: 1 }).await.unwrap();
            first.commit(&answer("1")).await.unwrap();
        } else {
            operation.commit(&answer("2")).await.unwrap();
        }
    }
    let text = if DB::NAME == "MySQL" { "CHAR" } else { "TEXT" };
    let columns = ["id", "correlation_id", "causation_id", "traceparent"];
    let columns = columns.map(|column| format!("CAST({column} AS {text})")).join(", ");
    let sql = format!("SELECT {columns} FROM {} ORDER BY position", DB::table_of("outbox"));
    let rows = sqlx::query::<DB>(AssertSqlSafe(sql)).fetch_all(world.pool()).await.unwrap();
    let text = |row: usize, column: usize| rows[row].get::<Option<String>, _>(column);
    assert_eq!(rows.len(), 2);
    assert_ne!(text(0, 0), text(1, 0));
    let id = key("a").domain_id(world.service()).to_string();
    assert_eq!([text(0, 1), text(1, 1), text(0, 2)], [Some(id.clone()), Some(id), None]);
    assert!(text(0, 3).is_some_and(|trace| trace.contains("0af7651916cd43dd8448eb211c80319c")));
    assert_eq!(text(1, 3), None);
}

/// D11, R58
async fn a_key_that_a_tenant_shares_is_no_other_principals<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let of = |principal: &str| OperationKey { principal: principal.into(), is_shared: true, ..key("a") };
    refund(&world, &of("one"), 1).await;
    assert!(matches!(refund(&world, &of("two"), 1).await, OperationStart::Mismatch));
    assert_eq!(known(refund(&world, &of("one"), 1).await), answer("rf_1"));
    // Shared no more: whoever has no name has the same slot, and is another all the same.
    assert!(matches!(refund(&world, &key("a"), 1).await, OperationStart::Mismatch));
    assert_eq!(world.effects().await, [1]);
}

/// D12: a deployment that changes the algorithm
async fn a_stored_fingerprint_is_compared_by_its_own_algorithm<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let with = |algorithm| OperationPolicy { algorithm, ..policy(SHORT) };
    let old = with(FingerprintAlgorithm::Raw);
    let OperationStart::Open(operation) =
        world.idempotency_keys().begin(&key("a"), &asked("{\"n\":1}"), &old).await.unwrap()
    else {
        panic!("it is free");
    };
    operation.commit(&answer("rf_1")).await.unwrap();
    let new = with(FingerprintAlgorithm::ExactJson);
    let again = async |body| world.idempotency_keys().begin(&key("a"), &asked(body), &new).await.unwrap();
    assert_eq!(known(again("{\"n\":1}").await), answer("rf_1"));
    assert!(matches!(again("{\"n\": 1}").await, OperationStart::Mismatch));
}

/// R5, R51: a COMMIT of the handler's would leave the effect without the key
async fn a_handler_cannot_commit_without_the_key<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut operation = open(&world, &key("a"), "1").await;
    effect::<DB>(&mut operation.tx(), 1).await.unwrap();
    let _ = sqlx::raw_sql("COMMIT").execute(&mut *operation.tx()).await;
    let _ = effect::<DB>(&mut operation.tx(), 2).await;
    let committed = operation.commit(&answer("1")).await;
    assert_eq!(committed.unwrap_err().kind(), ErrorKind::TransactionEnded);
    if !DB::CAPABILITIES.refuses_commit {
        // The first effect, before the COMMIT, is there, and is not written again.
        assert_eq!(world.effects().await, [1]);
        let again = world.idempotency_keys().begin(&key("a"), &asked("1"), &policy(SHORT)).await;
        assert_eq!(again.err().unwrap().kind(), ErrorKind::PartlyCommitted);
        return;
    }
    // On Postgres what was written after the COMMIT that was refused stands for itself.
    assert!(!world.effects().await.contains(&1));
    assert_eq!(world.idempotency_keys().find(&key("a"), &asked("1")).await.unwrap(), None);
}

/// An error that is ignored makes COMMIT a ROLLBACK, and the answer must not say otherwise
async fn an_ignored_error_is_not_answered_as_a_success() {
    let world = World::<Postgres>::new().await;
    let mut operation = open(&world, &key("a"), "1").await;
    effect::<Postgres>(&mut operation.tx(), 1).await.unwrap();
    effect::<Postgres>(&mut operation.tx(), 1).await.unwrap_err();
    let error = operation.commit(&answer("1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TransactionAborted);
    known(refund(&world, &key("a"), 2).await);
    assert_eq!(world.effects().await, [2]);
}

/// Whoever waits in another process finds the key free, however one by one the locks of the first are given
/// up.
async fn a_failure_is_no_mismatch_for_who_asks_the_same() {
    let world = World::<Postgres>::new().await;
    for n in 0..100 {
        let key = key(&n.to_string());
        let first = open(&world, &key, "1").await;
        let waits = async || begin(&world, &key, "1", LONG).await;
        let (begun, ()) = tokio::join!(waits(), async {
            // Another moment each time: the locks are given up while the other is anywhere in its wait.
            wait::pause(Pause::Pace, Duration::from_millis(n % 4)).await;
            first.abandon().await;
        });
        assert!(matches!(begun, OperationStart::Open(_)), "{n}");
    }
}

cases! {
    all: [
        asked_again_it_answers_the_same_and_does_nothing,
        another_request_with_the_key_is_a_mismatch,
        keys_of_others_are_other_keys,
        what_is_given_up_leaves_its_key_free,
        t21_what_has_expired_is_done_again_and_purged,
        every_kind_of_answer_comes_back_as_it_was,
        a_key_has_a_bound,
        a_key_that_a_tenant_shares_is_no_other_principals,
        a_stored_fingerprint_is_compared_by_its_own_algorithm,
        a_handler_cannot_commit_without_the_key,
        t21_a_purge_takes_what_has_expired_and_nothing_else,
        what_is_published_has_fresh_ids_and_the_operation_as_its_correlation,
    ]
    postgres: [
        a_mismatch_is_told_while_the_first_is_under_way,
        of_many_who_wait_for_one_that_fails_one_succeeds,
        an_ignored_error_is_not_answered_as_a_success,
        a_failure_is_no_mismatch_for_who_asks_the_same,
    ]
    mysql: [a_mismatch_is_told_when_the_first_has_ended_on_mysql]
}
