//! Operations with a key.
use super::{
    stores::{TestDb, World, effect},
    wait::in_time,
};
use sqlx::AssertSqlSafe;
use std::time::Duration;
use twinbox::operation::{
    Operation, OperationKey, OperationLease, OperationPolicy, OperationResponse, OperationStart,
    RequestDigest, ResponseBody,
};

pub(crate) const SHORT: Duration = Duration::from_millis(200);

pub(crate) fn policy(wait: Duration) -> OperationPolicy {
    OperationPolicy { wait, ..OperationPolicy::default() }
}

pub(crate) fn key(key: &str) -> OperationKey {
    OperationKey { scope: "POST_/refunds".into(), key: key.into(), ..OperationKey::default() }
}

pub(crate) fn asked(body: &str) -> RequestDigest {
    RequestDigest::new(vec!["POST".into(), "/refunds".into()], body.to_owned())
}

pub(crate) async fn open<DB: TestDb>(world: &World<DB>, key: &OperationKey, body: &str) -> Operation<DB> {
    let begun = in_time(world.idempotency_keys().begin(key, &asked(body), &policy(SHORT))).await.unwrap();
    let OperationStart::Open(operation) = begun else { panic!("{key:?} is taken") };
    operation
}

pub(crate) fn answer(body: &str) -> OperationResponse {
    let headers = b"content-type: application/json".to_vec();
    OperationResponse { code: 201, headers, body: ResponseBody::Inline(body.into()), is_failure: false }
}

pub(crate) fn known<T>(begun: OperationStart<T>) -> OperationResponse {
    let OperationStart::Completed(answer) = begun else { panic!("it is not known") };
    answer
}

/// A lease that does not end within a test.
pub(crate) const LONG: Duration = Duration::from_secs(300);

pub(crate) async fn lease<DB: TestDb>(
    world: &World<DB>,
    key: &OperationKey,
    body: &str,
) -> OperationStart<OperationLease<DB>> {
    in_time(world.idempotency_keys().lease(key, &asked(body), &policy(SHORT), LONG)).await.unwrap()
}

pub(crate) async fn open_lease<DB: TestDb>(
    world: &World<DB>,
    key: &OperationKey,
    body: &str,
) -> OperationLease<DB> {
    let OperationStart::Open(lease) = lease(world, key, body).await else { panic!("{key:?} is taken") };
    lease
}

pub(crate) async fn end<DB: TestDb>(lease: &OperationLease<DB>, n: i64) {
    let mut operation = lease.begin().await.unwrap();
    effect::<DB>(&mut operation.tx(), n).await.unwrap();
    operation.commit(&answer(&n.to_string())).await.unwrap();
}

/// Ends the lease, as if its owner had died or stopped.
pub(crate) async fn runs_out<DB: TestDb>(world: &World<DB>) {
    let sql = format!(
        "UPDATE {} SET lease_until = created_at WHERE status = 'pending'",
        DB::table_of("idempotency_keys")
    );
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await.unwrap();
}

/// Lets all keys expire.
pub(crate) async fn expire<DB: TestDb>(world: &World<DB>) {
    let expired = format!("UPDATE {} SET expires_at = created_at", DB::table_of("idempotency_keys"));
    sqlx::raw_sql(AssertSqlSafe(expired)).execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
}
