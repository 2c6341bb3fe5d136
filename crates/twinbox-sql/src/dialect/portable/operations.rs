//! Idempotency keys and webhooks.
use crate::texts::{Operations, Webhooks};

/// Takes a key. `before` and `after` wrap the insert, `from` says whether it is made at all.
#[rustfmt::skip]
macro_rules! claim_operation {
    (before: $before:literal, from: $from:literal, after: $after:literal $(,)?) => {
        concat!($before, "
        INSERT INTO {idempotency_keys} AS k (slot, tenant, principal, scope, key, request_hash, hash_alg,
            owner, lease_until, expires_at)
        SELECT ?, ?, ?, ?, ?, ?, ?, ?, {after}, {after}
        ", $from, "
        ON CONFLICT (slot) DO UPDATE
        SET principal = excluded.principal, key = excluded.key, request_hash = excluded.request_hash,
            hash_alg = excluded.hash_alg, owner = excluded.owner, lease_until = excluded.lease_until,
            status = 'pending', http_code = NULL, response_headers = NULL, response_body = NULL,
            body_kind = 'omitted', result_ref = NULL, codec_headers = NULL,
            attempts = CASE WHEN k.unfinished OR k.expires_at > {now} THEN k.attempts + 1 ELSE 1 END,
            uncounted_attempts =
                CASE WHEN k.unfinished OR k.expires_at > {now} THEN k.uncounted_attempts ELSE 0 END,
            recovery_point = CASE WHEN k.unfinished THEN k.recovery_point END,
            tokens = CASE WHEN k.unfinished THEN k.tokens END,
            created_at = CASE WHEN k.unfinished OR k.expires_at > {now} THEN k.created_at ELSE {now} END,
            updated_at = {now}, expires_at = excluded.expires_at
        WHERE (k.lease_until IS NULL OR k.lease_until <= {now})
            AND (NOT k.unfinished AND k.expires_at <= {now}
                OR k.status = 'pending' AND k.request_hash = excluded.request_hash
                    AND k.principal = excluded.principal)
        RETURNING attempts, attempts - 1 - uncounted_attempts AS failures, recovery_point, created_at,
            tokens", $after)
    };
}
#[cfg(feature = "postgres")]
pub(in crate::dialect) use claim_operation;

/// Stores a response. `no_hash`: an empty hash. `allowed`: a condition, with one bind, under which the
/// transaction may commit.
#[rustfmt::skip]
macro_rules! complete_operation {
    (no_hash: $no_hash:literal, allowed: $allowed:literal $(,)?) => {
        concat!("
        INSERT INTO {idempotency_keys} AS k (status, http_code, response_headers, response_body,
            body_kind, result_ref, codec_headers, slot, tenant, principal, scope, key, request_hash, hash_alg,
            expires_at)
        SELECT ?, ?, ?, ?, ?, ?, ?, ?, '', '', '', '', ", $no_hash, ", '', {now}
        WHERE ", $allowed, "
        ON CONFLICT (slot) DO UPDATE
        SET status = excluded.status, http_code = excluded.http_code,
            response_headers = excluded.response_headers, response_body = excluded.response_body,
            body_kind = excluded.body_kind, result_ref = excluded.result_ref,
            codec_headers = excluded.codec_headers, lease_until = NULL, updated_at = {now}
        RETURNING hash_alg")
    };
}
#[cfg(feature = "postgres")]
pub(in crate::dialect) use complete_operation;

/// Writes a receipt. `before` comes before the insert, `from` ends its select, `result` is what it returns.
#[rustfmt::skip]
macro_rules! receive_webhook {
    (before: $before:literal, from: $from:literal, result: $result:literal $(,)?) => {
        concat!($before, "
        INSERT INTO {webhook_receipts} AS r (provider, endpoint, dedup_id, dedup_basis, payload_hash,
            secret_index, expires_at)
        SELECT ?, ?, ?, ?, ?, ?, {after}
        ", $from, "
        ON CONFLICT (provider, endpoint, dedup_id) DO UPDATE
        SET dedup_basis = excluded.dedup_basis, payload_hash = excluded.payload_hash,
            secret_index = excluded.secret_index, received_at = {now}, expires_at = excluded.expires_at
        WHERE r.expires_at <= {now}
        RETURNING ", $result)
    };
}
#[cfg(feature = "postgres")]
pub(in crate::dialect) use receive_webhook;

pub(in crate::dialect) const OPERATIONS: Operations = Operations {
    claim: claim_operation! { before: "", from: "WHERE true", after: "" },
    lock: "",
    take_again: "",
    claimed: "",
    find: "
        SELECT request_hash, hash_alg, principal, status, http_code, response_headers, response_body,
            body_kind, result_ref, codec_headers, NOT unfinished AND expires_at <= {now} AS has_expired,
            status = 'pending' AND owner IS NULL AS is_left_open
        FROM {idempotency_keys}
        WHERE slot = ?",
    complete: complete_operation! { no_hash: "x''", allowed: "? = ''" },
    enter: "
        UPDATE {idempotency_keys}
        SET owner = NULL
        WHERE slot = ? AND owner = ? AND status = 'pending'
        {returning_flushed}",
    save: "
        UPDATE {idempotency_keys}
        SET recovery_point = ?, lease_until = {after}, updated_at = {now}
        WHERE {bounded_wait} AND slot = ? AND owner = ? AND status = 'pending'
        {returning_flushed}",
    token_time: "
        SELECT {now}
        FROM {idempotency_keys}
        WHERE slot = ? AND owner = ? AND status = 'pending'",
    save_tokens: "
        UPDATE {idempotency_keys}
        SET tokens = ?, updated_at = {now}
        WHERE {bounded_wait} AND slot = ? AND owner = ? AND status = 'pending'
        {returning_flushed}",
    renew: "
        UPDATE {idempotency_keys}
        SET lease_until = {after}
        WHERE {bounded_wait} AND slot = ? AND owner = ? AND status = 'pending'",
    release: "
        UPDATE {idempotency_keys}
        SET owner = ?, uncounted_attempts = uncounted_attempts + ?, lease_until = {now}
        WHERE {bounded_wait} AND slot = ? AND owner = ? AND status = 'pending'",
    forget: "
        DELETE FROM {idempotency_keys}
        WHERE {bounded_wait} AND slot = ? AND owner = ? AND status = 'pending'
            AND NOT unfinished AND attempts = 1",
    unfinished: "
        SELECT slot, tenant, principal, scope, key, attempts, recovery_point, tokens, created_at, updated_at,
            expires_at, expires_at <= (SELECT {now}) AS has_expired
        FROM {idempotency_keys}
        WHERE {is_unfinished}
        ORDER BY created_at
        LIMIT ?",
    count_unfinished: "
        SELECT count(*)
        FROM (
            SELECT 1
            FROM {idempotency_keys}
            WHERE {is_unfinished}
            LIMIT ?
        ) unfinished",
    delete_unfinished: "
        DELETE FROM {idempotency_keys}
        WHERE {bounded_wait} AND slot = ? AND {is_unfinished}",
    count_live: "
        SELECT count(*)
        FROM (
            SELECT 1
            FROM {idempotency_keys}
            WHERE tenant = ? AND principal = ? AND expires_at > (SELECT {now})
            LIMIT ?
        ) live",
    erase_page: "
        SELECT slot
        FROM (
            SELECT slot
            FROM {idempotency_keys}
            WHERE slot > ?
            ORDER BY slot
            LIMIT ?
        ) page
        ORDER BY slot DESC
        LIMIT 1",
    erase: "
        UPDATE {idempotency_keys}
        SET principal = '', key = '', response_headers = NULL, response_body = NULL, body_kind = 'omitted',
            result_ref = NULL, codec_headers = NULL, recovery_point = NULL, updated_at = {now}
        WHERE slot > ? AND slot <= ? AND status <> 'pending' AND NOT unfinished
            AND tenant = ? AND principal = COALESCE(?, principal)",
    purge: "
        DELETE FROM {idempotency_keys}
        WHERE slot IN (
            SELECT slot
            FROM {idempotency_keys}
            WHERE expires_at <= (SELECT {now}) AND NOT unfinished
                AND (lease_until IS NULL OR lease_until <= (SELECT {now}))
            ORDER BY expires_at
            LIMIT ?)",
};

pub(in crate::dialect) const WEBHOOKS: Webhooks = Webhooks {
    receive: receive_webhook! { before: "", from: "WHERE true", result: "true" },
    forget_expired: "",
    payload_hash: "
        SELECT payload_hash, FALSE AS is_open
        FROM {webhook_receipts}
        WHERE provider = ? AND endpoint = ? AND dedup_id = ?",
    end: "",
    purge: "
        DELETE FROM {webhook_receipts}
        WHERE (provider, endpoint, dedup_id) IN (
            SELECT provider, endpoint, dedup_id
            FROM {webhook_receipts}
            WHERE expires_at <= (SELECT {now})
            ORDER BY expires_at
            LIMIT ?)",
};
