//! What is kept of keys and answers, for how many, and how it goes away. R7, R23
use crate::support::{
    cases::cases,
    codec::{Cipher, ciphered, store_with, strict},
    databases::Postgres,
    operations::{SHORT, answer, asked, expire, key, known, open, policy},
    stores::{TestDb, World, effect, sql_of},
    wait::{eventually, in_time},
};
use sqlx::AssertSqlSafe;
use std::time::Duration;
use twinbox::{
    ErrorKind, StoreOptions,
    operation::{OperationKey, OperationPolicy, OperationResponse, OperationStart, ResponseBody},
};

fn of(tenant: &str, principal: &str, name: &str) -> OperationKey {
    OperationKey { tenant: tenant.into(), principal: principal.into(), ..key(name) }
}

async fn done<DB: TestDb>(world: &World<DB>, key: &OperationKey) {
    open(world, key, "1").await.commit(&answer("secret")).await.unwrap();
}

async fn all_with<DB: TestDb>(world: &World<DB>, condition: &str) -> i64 {
    world.number(format!("SELECT count(*) FROM {} WHERE {condition}", DB::table_of("idempotency_keys"))).await
}

/// What is known is answered as ever, and what has expired does not count.
async fn a_principal_has_so_many_keys<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let two = OperationPolicy { live_max: Some(2), ..policy(SHORT) };
    let begin =
        async |key: &OperationKey| world.idempotency_keys().begin(key, &asked("1"), &two).await.unwrap();
    for name in ["a", "b"] {
        let OperationStart::Open(operation) = begin(&of("t", "p", name)).await else {
            panic!("{name} is refused")
        };
        operation.commit(&answer(name)).await.unwrap();
    }
    assert!(matches!(begin(&of("t", "p", "c")).await, OperationStart::TooMany));
    let leased = world.idempotency_keys().lease(&of("t", "p", "c"), &asked("1"), &two, SHORT).await.unwrap();
    assert!(matches!(leased, OperationStart::TooMany));
    assert_eq!(known(begin(&of("t", "p", "a")).await), answer("a"));
    for (tenant, principal) in [("t", "other"), ("other", "p"), ("", "")] {
        assert!(
            matches!(begin(&of(tenant, principal, "c")).await, OperationStart::Open(_)),
            "{tenant} {principal}"
        );
    }
    expire(&world).await;
    assert!(matches!(begin(&of("t", "p", "c")).await, OperationStart::Open(_)));
}

/// D9: a key that is being worked on goes on, whatever the quota is now
async fn a_quota_does_not_stop_who_has_begun<DB: TestDb>() {
    let world = World::<DB>::new().await;
    done(&world, &of("t", "p", "a")).await;
    let long = Duration::from_secs(300);
    let begun =
        world.idempotency_keys().lease(&of("t", "p", "b"), &asked("1"), &policy(SHORT), long).await.unwrap();
    let OperationStart::Open(first) = begun else { panic!("it is free") };
    first.release().await.unwrap();
    let one = OperationPolicy { live_max: Some(1), ..policy(SHORT) };
    let again = world.idempotency_keys().lease(&of("t", "p", "b"), &asked("1"), &one, long).await.unwrap();
    assert!(matches!(again, OperationStart::Open(_)));
}

async fn the_text_of_a_key_need_not_be_kept<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let silent = OperationPolicy { keeps_text: false, ..policy(SHORT) };
    let begun = world.idempotency_keys().begin(&key("refund:ch_9ab"), &asked("1"), &silent).await.unwrap();
    let OperationStart::Open(operation) = begun else { panic!("it is free") };
    operation.commit(&answer("1")).await.unwrap();
    assert_eq!(all_with(&world, "key = ''").await, 1);
    let again = world.idempotency_keys().begin(&key("refund:ch_9ab"), &asked("1"), &silent).await.unwrap();
    assert_eq!(known(again), answer("1"));
    // One that was kept goes when the key is taken again.
    done(&world, &key("old")).await;
    expire(&world).await;
    let OperationStart::Open(operation) =
        world.idempotency_keys().begin(&key("old"), &asked("1"), &silent).await.unwrap()
    else {
        panic!("it has expired")
    };
    operation.commit(&answer("1")).await.unwrap();
    assert_eq!(all_with(&world, "key = ''").await, 2);
}

/// Nothing commits without its key.
async fn who_deletes_its_key_cannot_commit<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut operation = open(&world, &key("a"), "1").await;
    effect::<DB>(&mut operation.tx(), 1).await.unwrap();
    let delete = format!("DELETE FROM {}", DB::table_of("idempotency_keys"));
    sqlx::raw_sql(AssertSqlSafe(delete)).execute(&mut *operation.tx()).await.unwrap();
    assert_eq!(operation.commit(&answer("1")).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(world.effects().await.is_empty());
    assert_eq!(world.rows("idempotency_keys").await, 0);
}

/// The body is bound to its key, and without the codec it is not given out.
async fn answers_are_kept_as_the_codec_of_the_store_makes_them<DB: TestDb>() {
    let world = World::<DB>::new().await;
    done(&world, &key("plain")).await;
    let ciphered = ciphered(&world);
    for name in ["a", "b"] {
        let OperationStart::Open(operation) =
            ciphered.idempotency_keys().begin(&key(name), &asked("1"), &policy(SHORT)).await.unwrap()
        else {
            panic!("{name} is free")
        };
        operation.commit(&answer(&format!("secret of {name}"))).await.unwrap();
        let found = ciphered.idempotency_keys().find(&key(name), &asked("1")).await.unwrap();
        assert_eq!(found, Some(answer(&format!("secret of {name}"))));
    }
    assert_eq!(
        ciphered.idempotency_keys().find(&key("plain"), &asked("1")).await.unwrap(),
        Some(answer("secret"))
    );
    let bodies = format!("SELECT response_body FROM {}", DB::table_of("idempotency_keys"));
    let mut conn = world.pool().acquire().await.unwrap();
    let bodies: Vec<Vec<u8>> = sqlx::query_scalar(AssertSqlSafe(bodies)).fetch_all(&mut *conn).await.unwrap();
    let plain = bodies.iter().filter(|body| body.windows(6).any(|bytes| bytes == b"secret"));
    assert_eq!((bodies.len(), plain.count()), (3, 1));
    let unknown = world.idempotency_keys().find(&key("a"), &asked("1")).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Codec);
    assert!(unknown.to_string().contains("\"cipher\""), "{unknown}");
    let another = store_with(&world, StoreOptions::new().codec(Cipher::new("cipher", 8)));
    let again = async |body| another.idempotency_keys().begin(&key("a"), &asked(body), &policy(SHORT)).await;
    assert_eq!(again("1").await.err().unwrap().kind(), ErrorKind::Codec);
    assert!(matches!(again("2").await.unwrap(), OperationStart::Mismatch));
    let table = DB::table_of("idempotency_keys");
    let swapped = format!(
        "UPDATE {table} SET response_body = (
            SELECT response_body FROM (SELECT response_body FROM {table} WHERE key = 'a') a
        ) WHERE key = 'b'"
    );
    sqlx::raw_sql(sql_of::<DB>(&swapped)).execute(&mut *conn).await.unwrap();
    assert_eq!(
        ciphered.idempotency_keys().find(&key("b"), &asked("1")).await.unwrap_err().kind(),
        ErrorKind::Codec
    );
}

/// Who may change rows gives no answer to somebody else, and none another meaning. Where callers share their
/// keys, the column alone tells whose answer it is.
async fn an_answer_is_bound_to_the_columns_of_its_key<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let (store, table) = (ciphered(&world), DB::table_of("idempotency_keys"));
    let shared = |principal: &str, name: &str| OperationKey { is_shared: true, ..of("t", principal, name) };
    for (column, value) in [
        ("principal", "'mallory'"),
        ("status", "'failed'"),
        ("http_code", "200"),
        ("response_headers", "NULL"),
    ] {
        let key = shared("ada", column);
        let begun = store.idempotency_keys().begin(&key, &asked("1"), &policy(SHORT)).await.unwrap();
        let OperationStart::Open(operation) = begun else { panic!("it is free") };
        operation.commit(&answer("secret")).await.unwrap();
        let find = async |key: OperationKey| store.idempotency_keys().find(&key, &asked("1")).await;
        assert_eq!(find(key).await.unwrap(), Some(answer("secret")));
        let change = format!("UPDATE {table} SET {column} = {value} WHERE key = '{column}'");
        let mut conn = world.pool().acquire().await.unwrap();
        sqlx::raw_sql(sql_of::<DB>(&change)).execute(&mut *conn).await.unwrap();
        drop(conn);
        let asks = if column == "principal" { "mallory" } else { "ada" };
        let error = find(shared(asks, column)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Codec, "{column}");
    }
}

/// An answer without a body has nothing to encode.
async fn an_answer_that_nobody_encoded_is_refused_where_the_codec_is_required<DB: TestDb>() {
    let world = World::<DB>::new().await;
    done(&world, &key("plain")).await;
    let blank = OperationResponse { body: ResponseBody::Omitted, ..answer("") };
    open(&world, &key("blank"), "1").await.commit(&blank).await.unwrap();
    let strict = strict(&world);
    let find = async |name: &str| strict.idempotency_keys().find(&key(name), &asked("1")).await;
    let error = find("plain").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Codec);
    assert!(error.to_string().contains("`StoreOptions::require_codec`"), "{error}");
    let begun = strict.idempotency_keys().begin(&key("plain"), &asked("1"), &policy(SHORT)).await;
    assert_eq!(begun.err().unwrap().kind(), ErrorKind::Codec);
    assert_eq!(find("blank").await.unwrap(), Some(blank));
    let begun = strict.idempotency_keys().begin(&key("own"), &asked("1"), &policy(SHORT)).await.unwrap();
    let OperationStart::Open(operation) = begun else { panic!("it is free") };
    operation.commit(&answer("1")).await.unwrap();
    assert_eq!(find("own").await.unwrap(), Some(answer("1")));
}

/// What cannot be encoded is not kept in the clear: nothing is.
async fn an_answer_that_cannot_be_encoded_undoes_the_operation<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let ciphered = ciphered(&world);
    let begun = ciphered.idempotency_keys().begin(&key("a"), &asked("1"), &policy(SHORT)).await.unwrap();
    let OperationStart::Open(operation) = begun else { panic!("it is free") };
    assert_eq!(operation.commit(&answer("refuse")).await.unwrap_err().kind(), ErrorKind::Codec);
    assert_eq!(world.rows("idempotency_keys").await, 0);
}

/// What was done stays known, with nothing of what it was.
async fn what_is_erased_is_not_done_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let shared = OperationKey { is_shared: true, ..of("t", "p", "shared") };
    let all = [of("t", "p", "a"), of("t", "q", "b"), of("u", "p", "c"), shared.clone()];
    for key in &all {
        done(&world, key).await;
    }
    let long = Duration::from_secs(300);
    let held =
        world.idempotency_keys().lease(&of("t", "p", "d"), &asked("1"), &policy(SHORT), long).await.unwrap();
    assert_eq!(world.idempotency_keys().erase("t", Some("p")).await.unwrap(), 2);
    let blank = OperationResponse { code: 201, body: ResponseBody::Omitted, ..OperationResponse::default() };
    let find = async |key: &OperationKey| world.idempotency_keys().find(key, &asked("1")).await.unwrap();
    assert_eq!(find(&all[0]).await, Some(blank.clone()));
    let again = world.idempotency_keys().begin(&all[0], &asked("1"), &policy(SHORT)).await.unwrap();
    assert_eq!(known(again), blank);
    let other = world.idempotency_keys().begin(&all[0], &asked("2"), &policy(SHORT)).await.unwrap();
    assert!(matches!(other, OperationStart::Mismatch));
    assert_eq!(find(&shared).await, None);
    assert!(matches!(
        world.idempotency_keys().begin(&shared, &asked("1"), &policy(SHORT)).await.unwrap(),
        OperationStart::Mismatch
    ));
    for kept in &all[1..3] {
        assert_eq!(find(kept).await, Some(answer("secret")));
    }
    assert_eq!(world.idempotency_keys().erase("t", Some("p")).await.unwrap(), 0);
    // Of the tenant, those that are blank are counted again; those under way stay.
    assert_eq!(world.idempotency_keys().erase("t", None).await.unwrap(), 3);
    assert_eq!((find(&all[1]).await, find(&all[2]).await), (Some(blank), Some(answer("secret"))));
    assert_eq!(all_with(&world, "key = '' AND principal = '' AND tenant = 't'").await, 3);
    let OperationStart::Open(held) = held else { panic!("it is free") };
    held.begin().await.unwrap().commit(&answer("late")).await.unwrap();
    assert_eq!(find(&of("t", "p", "d")).await, Some(answer("late")));
}

/// Given up half-way it has blanked some, and the next run does the rest.
async fn an_erasure_that_is_given_up_goes_on_the_next_time() {
    let world = World::<Postgres>::new().await;
    let many = "SET LOCAL session_replication_role = replica;
        INSERT INTO twinbox.idempotency_keys
            (slot, tenant, principal, scope, key, request_hash, hash_alg, status, expires_at)
        SELECT sha256(n::text::bytea), 't', 'p', '', 'a', '', '', 'complete', now()
        FROM generate_series(1, 2500) AS n";
    let mut tx = world.owner().begin().await.unwrap();
    sqlx::raw_sql(many).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let mut holds = world.begin().await.unwrap();
    let last = "SELECT 1 FROM twinbox.idempotency_keys ORDER BY slot DESC LIMIT 1 FOR UPDATE";
    sqlx::raw_sql(last).execute(&mut *holds).await.unwrap();
    let blank = async || all_with(&world, "key = ''").await;
    let keys = world.idempotency_keys();
    tokio::select! {
        _ = keys.erase("t", Some("p")) => panic!("a row of the last page is locked"),
        () = eventually(async || (blank().await == 2_000).then_some(())) => {}
    }
    holds.rollback().await.unwrap();
    assert_eq!(in_time(world.idempotency_keys().erase("t", Some("p"))).await.unwrap(), 500);
    assert_eq!(blank().await, 2_500);
}

cases! {
    all: [
        a_principal_has_so_many_keys,
        a_quota_does_not_stop_who_has_begun,
        the_text_of_a_key_need_not_be_kept,
        who_deletes_its_key_cannot_commit,
        answers_are_kept_as_the_codec_of_the_store_makes_them,
        an_answer_is_bound_to_the_columns_of_its_key,
        an_answer_that_nobody_encoded_is_refused_where_the_codec_is_required,
        an_answer_that_cannot_be_encoded_undoes_the_operation,
        what_is_erased_is_not_done_again,
    ]
    postgres: [an_erasure_that_is_given_up_goes_on_the_next_time]
}
