//! Idempotency keys and webhooks.
use super::{
    super::{
        claim::{OperationClaim, OperationClaimed, OperationRow},
        fence::session_bound,
        portable::{self, claim_operation, complete_operation, receive_webhook},
    },
    lock_secret,
};
use crate::{
    Error,
    catalog::Catalog,
    statement::{STATEMENT_MAX, query},
    texts::{Operations, Webhooks},
};
use sqlx::{PgConnection, Postgres, Row as _};
use std::time::Duration;

pub(super) const OPERATIONS: Operations = Operations {
    // Copies of one request wait for the first lock. Another request with the key holds the second lock
    // alone, and is not waited for. The time-out holds for the claim and not for what follows.
    claim: claim_operation! {
        before: "
        WITH old AS MATERIALIZED (
            SELECT current_setting('lock_timeout') AS was, set_config('lock_timeout', ?, true),
                {bound_session}(?), {flushed}
        ), first AS MATERIALIZED (
            SELECT was, CASE WHEN ? THEN pg_advisory_xact_lock({lock_number}) IS NOT NULL
                ELSE pg_try_advisory_xact_lock({lock_number}) END AS is_first
            FROM old
        ), locked AS MATERIALIZED (
            SELECT was, is_first, is_first AND pg_try_advisory_xact_lock({lock_number}) AS is_mine
            FROM first
        ), claimed AS (",
        from: "FROM locked
        WHERE is_mine",
        after: ", pg_current_xact_id()::text AS guard
        )
        SELECT is_first, guard, attempts, failures, recovery_point, created_at, tokens,
            set_config('lock_timeout', was, true)
        FROM locked
        LEFT JOIN claimed ON true",
    },
    complete: complete_operation! {
        no_hash: "'\\x'::bytea",
        allowed: "set_config('twinbox.commit', ?, true) = pg_current_xact_id()::text",
    },
    // A trigger blanks the other columns.
    erase: "
        UPDATE {idempotency_keys}
        SET principal = '', key = '', updated_at = {now}
        WHERE slot > ? AND slot <= ? AND status <> 'pending' AND NOT unfinished
            AND tenant = ? AND principal = COALESCE(?, principal)",
    purge: "
        DELETE FROM {idempotency_keys}
        WHERE slot = ANY(ARRAY(
            SELECT slot
            FROM {idempotency_keys}
            WHERE expires_at <= (SELECT {now}) AND NOT unfinished
                AND (lease_until IS NULL OR lease_until <= (SELECT {now}))
            ORDER BY expires_at
            LIMIT ?
            FOR UPDATE SKIP LOCKED))",
    ..portable::OPERATIONS
};

pub(super) const WEBHOOKS: Webhooks = Webhooks {
    receive: receive_webhook! {
        before: "
        WITH old AS MATERIALIZED (
            SELECT current_setting('lock_timeout') AS was, set_config('lock_timeout', '2s', true), {flushed}
        )",
        from: "FROM old",
        result: "set_config('lock_timeout', (SELECT was FROM old), true) IS NOT NULL",
    },
    purge: "
        WITH old AS MATERIALIZED (
            SELECT provider, endpoint, dedup_id
            FROM {webhook_receipts}
            WHERE expires_at <= (SELECT {now})
            ORDER BY expires_at
            LIMIT ?
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM {webhook_receipts} AS r
        USING old
        WHERE r.provider = old.provider AND r.endpoint = old.endpoint AND r.dedup_id = old.dedup_id",
    ..portable::WEBHOOKS
};

/// An insert also waits for other things than keys, such as for a table to be extended.
const LOCK_TIMEOUT_MIN: Duration = Duration::from_millis(250);

pub(super) async fn claim(
    conn: &mut PgConnection,
    catalog: &Catalog,
    claim: &OperationClaim<'_>,
) -> Result<OperationClaimed<String>, Error> {
    // Two processes with two secrets do not wait here, but at the primary key.
    let secret = lock_secret::known(conn, catalog).await?;
    let same = secret.number(&[b"operation/", &claim.slot[..], &claim.same[..]]);
    let lock_timeout = claim.wait.max(LOCK_TIMEOUT_MIN).as_millis().min(i32::MAX.unsigned_abs().into());
    let query = query::<Postgres>(&catalog.sql.operations.claim)
        .bind(format!("{lock_timeout}ms"))
        .bind(session_bound(claim.idle_max))
        .bind(!claim.wait.is_zero())
        .bind(same)
        .bind(same)
        .bind(secret.number(&[b"operation/", &claim.slot[..]]));
    let row = claim.bind(query).within(claim.wait.saturating_add(STATEMENT_MAX)).fetch_one(conn).await?;
    if !row.try_get::<bool, _>("is_first")? {
        return Ok(OperationClaimed::InFlight);
    }
    let Some(guard) = row.try_get("guard")? else { return Ok(OperationClaimed::Taken) };
    Ok(OperationClaimed::Open(OperationRow::read::<Postgres>(&row)?, guard))
}
