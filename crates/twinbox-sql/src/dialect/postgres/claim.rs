use super::super::{Claim, Claims, OperationBegun, OperationClaim, OperationClaimed};
use crate::{
    Error,
    micros::Micros,
    sql::{Statements, query},
};
use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, Postgres, Row as _};
use std::time::Duration;
use uuid::Uuid;

// The time-out holds for the claim and not for the handler: it is set before the first row is inserted, and put
// back when the aggregate has read the last. The commit is flushed before the message is acknowledged, unless the handler
// says otherwise of its transaction.
pub(super) const CLAIM: &str = "WITH old AS MATERIALIZED (
        SELECT current_setting('lock_timeout') AS lock_timeout, set_config('lock_timeout', '2s', true), {flushed}
    ), claimed AS (
        INSERT INTO {inbox} (consumer, message_id, source, event_id, payload_hash, state, time, claimed_at)
        SELECT $1, message_id, source, event_id, payload_hash, 'processed', time, greatest(now(), time)
        FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::timestamptz[]) WITH ORDINALITY
            AS m (message_id, source, event_id, payload_hash, time, nth), old ORDER BY nth
        ON CONFLICT DO NOTHING RETURNING message_id
    ) SELECT array_agg(message_id), pg_current_xact_id_if_assigned()::text,
        {purge_mark}($1), set_config('lock_timeout', (SELECT lock_timeout FROM old), true) FROM claimed";
// Arrays cost the server a third more.
pub(super) const CLAIM_ONE: &str = "WITH old AS MATERIALIZED (
        SELECT current_setting('lock_timeout') AS lock_timeout, set_config('lock_timeout', '2s', true), {flushed}
    ) INSERT INTO {inbox} (consumer, message_id, source, event_id, payload_hash, state, time, claimed_at)
    SELECT $1, $2, $3, $4, $5, 'processed', $6, greatest(now(), $6) FROM old
    ON CONFLICT DO NOTHING
    RETURNING pg_current_xact_id_if_assigned()::text, {purge_mark}($1),
        set_config('lock_timeout', (SELECT lock_timeout FROM old), true)";
// Who asks the same waits for the first lock; who has asked something else holds the second one alone. The time-out
// holds for the claim and not for what comes after.
pub(super) const CLAIM_OPERATION: [&str; 3] = [
    "WITH old AS MATERIALIZED (
        SELECT current_setting('lock_timeout') AS was, set_config('lock_timeout', ?, true),
            set_config('idle_in_transaction_session_timeout', ?, true), {flushed}
    ), first AS MATERIALIZED (
        SELECT was, CASE WHEN ? THEN pg_advisory_xact_lock(?) IS NOT NULL
            ELSE pg_try_advisory_xact_lock(?) END AS is_first FROM old
    ), locked AS MATERIALIZED (
        SELECT was, is_first, is_first AND pg_try_advisory_xact_lock(?) AS is_mine FROM first
    ), claimed AS (",
    "FROM locked WHERE is_mine",
    ", pg_current_xact_id()::text AS guard
    ) SELECT is_first, guard, attempts, failures, recovery_point, created_at, tokens, set_config('lock_timeout', was, true)
    FROM locked LEFT JOIN claimed ON true",
];

pub(super) const RECEIVE: [&str; 3] = [
    "WITH old AS MATERIALIZED (
        SELECT current_setting('lock_timeout') AS was, set_config('lock_timeout', '2s', true), {flushed}) ",
    "FROM old",
    "set_config('lock_timeout', (SELECT was FROM old), true) IS NOT NULL",
];

pub(super) const PURGE_OPERATIONS: &str = "DELETE FROM {idempotency_keys} WHERE slot = ANY(ARRAY(
        SELECT slot FROM {idempotency_keys}
        WHERE expires_at <= (SELECT {now}) AND NOT unfinished
            AND (lease_until IS NULL OR lease_until <= (SELECT {now}))
        ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED))";

pub(super) const PURGE_RECEIPTS: &str = "WITH old AS MATERIALIZED (
        SELECT provider, endpoint, dedup_id FROM {webhook_receipts} WHERE expires_at <= (SELECT {now})
        ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED
    ) DELETE FROM {webhook_receipts} AS r USING old
    WHERE r.provider = old.provider AND r.endpoint = old.endpoint AND r.dedup_id = old.dedup_id";

pub(super) async fn claim(
    conn: &mut PgConnection,
    statements: &Statements,
    consumer: &str,
    claims: &[Claim<'_>],
    guard: &mut Option<String>,
) -> Result<Claims<Uuid>, Error> {
    if let [one] = claims {
        let row = query::<Postgres>(&statements.claim_one)
            .bind(consumer)
            .bind(one.message_id)
            .bind(&*one.source)
            .bind(&*one.event_id)
            .bind(&*one.payload_hash)
            .bind(one.time)
            .fetch_optional(conn)
            .await?;
        let Some(row) = row else { return Ok(Claims { new: Vec::new(), mark: None }) };
        *guard = row.try_get(0)?;
        let mark: Option<Micros> = row.try_get(1)?;
        return Ok(Claims { new: vec![one.message_id], mark: mark.map(|mark| mark.0) });
    }
    let row = query::<Postgres>(&statements.claim)
        .bind(consumer)
        .bind(claims.iter().map(|c| c.message_id).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| &*c.source).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| &*c.event_id).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| &*c.payload_hash).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| c.time).collect::<Vec<_>>())
        .fetch_one(conn)
        .await?;
    let new: Option<Vec<Uuid>> = row.try_get(0)?;
    if new.is_some() {
        *guard = row.try_get(1)?;
    }
    let mark: Option<Micros> = row.try_get(2)?;
    Ok(Claims { new: new.unwrap_or_default(), mark: mark.map(|mark| mark.0) })
}

pub(super) async fn claim_operation(
    conn: &mut PgConnection,
    statements: &Statements,
    claim: &OperationClaim<'_>,
) -> Result<OperationClaimed<String>, Error> {
    let (slot, request) = (&claim.slot[..], &claim.same.digest()[..]);
    let (wait, same) = (claim.policy.wait, lock_number(statements, &[slot, request]));
    let lock_timeout = wait.max(LOCK_TIMEOUT_MIN).as_millis().min(i32::MAX.unsigned_abs().into());
    let query = query::<Postgres>(&statements.claim_operation)
        .bind(format!("{lock_timeout}ms"))
        .bind(idle_max(claim.policy.idle_max))
        .bind(!wait.is_zero())
        .bind(same)
        .bind(same)
        .bind(lock_number(statements, &[slot]));
    let row = claim.bind(query).fetch_one(conn).await?;
    if !row.try_get::<bool, _>(0)? {
        return Ok(OperationClaimed::InFlight);
    }
    let Some(guard) = row.try_get(1)? else { return Ok(OperationClaimed::Taken) };
    Ok(OperationClaimed::Open(OperationBegun::of(&row, 2)?, guard))
}

/// As the server takes it: 0 would be for ever.
pub(super) fn idle_max(idle: Duration) -> String {
    format!("{}ms", idle.as_millis().clamp(1, i32::MAX.unsigned_abs().into()))
}

/// An insert waits for more than keys, such as for a table to be made longer: that takes no longer.
const LOCK_TIMEOUT_MIN: Duration = Duration::from_millis(250);

/// The number of an advisory lock. Two that share one wait for each other, and nothing worse.
fn lock_number(statements: &Statements, parts: &[&[u8]]) -> i64 {
    let mut hash = Sha256::new_with_prefix("operation/1");
    hash.update(Sha256::digest(&statements.namespace));
    parts.iter().for_each(|part| hash.update(part));
    let mut head = [0; 8];
    head.copy_from_slice(&hash.finalize()[..8]);
    i64::from_be_bytes(head)
}
