//! Idempotency keys and webhooks.
use super::super::portable;
use crate::texts::{Operations, Webhooks};

pub(super) const OPERATIONS: Operations = Operations {
    lock: "
        SELECT slot
        FROM {idempotency_keys}
        WHERE slot = ?
        FOR UPDATE",
    claim: "
        INSERT INTO {idempotency_keys} (slot, tenant, principal, scope, key, request_hash, hash_alg, owner,
            lease_until, expires_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, {after}, {after})",
    // The assignments run in order: each uses columns that are not assigned yet.
    take_again: "
        UPDATE {idempotency_keys} k
        JOIN (
            SELECT CAST(? AS BINARY(32)) AS slot, ? AS tenant, ? AS principal, ? AS scope, ? AS key,
                CAST(? AS BINARY) AS request_hash, ? AS hash_alg, CAST(? AS BINARY(16)) AS owner,
                {after} AS lease_until, {after} AS expires_at
        ) n
        SET k.attempts = CASE WHEN k.unfinished OR k.expires_at > {now} THEN k.attempts + 1 ELSE 1 END,
            k.uncounted_attempts =
                CASE WHEN k.unfinished OR k.expires_at > {now} THEN k.uncounted_attempts ELSE 0 END,
            k.created_at = CASE WHEN k.unfinished OR k.expires_at > {now} THEN k.created_at ELSE {now} END,
            k.recovery_point = CASE WHEN k.unfinished THEN k.recovery_point END,
            k.tokens = CASE WHEN k.unfinished THEN k.tokens END,
            k.principal = n.principal, k.key = n.key, k.request_hash = n.request_hash,
            k.hash_alg = n.hash_alg, k.owner = n.owner, k.lease_until = n.lease_until,
            k.status = 'pending', k.http_code = NULL, k.response_headers = NULL, k.response_body = NULL,
            k.body_kind = 'omitted', k.result_ref = NULL, k.codec_headers = NULL,
            k.updated_at = {now}, k.expires_at = n.expires_at
        WHERE k.slot = ? AND (k.lease_until IS NULL OR k.lease_until <= {now})
            AND (NOT k.unfinished AND k.expires_at <= {now}
                OR k.status = 'pending' AND k.owner IS NOT NULL AND k.request_hash = n.request_hash
                    AND k.principal = n.principal)",
    claimed: "
        SELECT attempts, attempts - 1 - uncounted_attempts AS failures, recovery_point, created_at, tokens
        FROM {idempotency_keys}
        WHERE slot = ?",
    complete: "
        UPDATE {idempotency_keys}
        SET status = ?, http_code = ?, response_headers = ?, response_body = ?, body_kind = ?, result_ref = ?,
            codec_headers = ?, lease_until = NULL, updated_at = {now}
        WHERE slot = ? AND ? = ''",
    purge: "
        DELETE FROM {idempotency_keys}
        WHERE {bounded_wait} AND expires_at <= {now} AND NOT unfinished
            AND (lease_until IS NULL OR lease_until <= {now})
        ORDER BY expires_at
        LIMIT ?",
    ..portable::OPERATIONS
};

pub(super) const WEBHOOKS: Webhooks = Webhooks {
    forget_expired: "
        DELETE FROM {webhook_receipts}
        WHERE provider = ? AND endpoint = ? AND dedup_id = ? AND expires_at <= {now}",
    receive: "
        INSERT INTO {webhook_receipts} (provider, endpoint, dedup_id, dedup_basis, payload_hash,
            secret_index, is_open, expires_at)
        VALUES (?, ?, ?, ?, ?, ?, TRUE, {after})",
    payload_hash: "
        SELECT payload_hash, is_open
        FROM {webhook_receipts}
        WHERE provider = ? AND endpoint = ? AND dedup_id = ?",
    end: "
        UPDATE {webhook_receipts}
        SET is_open = FALSE
        WHERE provider = ? AND endpoint = ? AND dedup_id = ?",
    purge: "
        DELETE FROM {webhook_receipts}
        WHERE {bounded_wait} AND expires_at <= {now}
        ORDER BY expires_at
        LIMIT ?",
};
