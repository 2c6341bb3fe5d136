-- What operations with a key ended with, so that asking again does nothing again.
CREATE TABLE {idempotency_keys} (
    -- SHA-256 of tenant, principal, scope and key, each with its length: fits an index whatever they are.
    slot BLOB PRIMARY KEY CHECK (length(slot) = 32),
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash BLOB NOT NULL,
    -- The algorithm, and the members that it left out, so that later releases compare by the same.
    hash_alg TEXT NOT NULL,
    -- 'failed': a failure that is final, and given again like a success.
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'complete', 'failed')),
    http_code INTEGER,
    response_headers BLOB,
    response_body BLOB,
    body_kind TEXT NOT NULL DEFAULT 'omitted' CHECK (body_kind IN ('inline', 'ref', 'omitted')),
    result_ref TEXT,
    -- How the body was encoded, as a JSON object of the headers of the codec. NULL: it was not.
    codec_headers TEXT,
    -- Of one that somebody works on without a transaction: who, until when, and how far it has come.
    owner BLOB,
    lease_until INTEGER,
    recovery_point TEXT,
    -- Which tokens for vendors were given out, and when: a JSON object of microseconds since 1970. NULL: none was.
    tokens TEXT,
    -- Something may have been done outside, and no answer tells, or one that gave up. Such a row never expires.
    unfinished INTEGER NOT NULL
        GENERATED ALWAYS AS ((status = 'pending' OR status = 'failed' AND http_code >= 500)
            AND (recovery_point IS NOT NULL OR tokens IS NOT NULL)) STORED,
    attempts INTEGER NOT NULL DEFAULT 1,
    -- Of these, those that nobody has failed in.
    uncounted INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL
) STRICT;
-- For the purge.
CREATE INDEX {idempotency_keys_expires_at} ON {idempotency_keys} (expires_at);
-- For quotas.
CREATE INDEX {idempotency_keys_principal} ON {idempotency_keys} (tenant, principal, expires_at);
-- For operators.
CREATE INDEX {idempotency_keys_key} ON {idempotency_keys} (scope, key);
-- For operators too. Rows enter it only when a vendor may have been called.
CREATE INDEX {idempotency_keys_unfinished} ON {idempotency_keys} (updated_at) WHERE unfinished;
-- What operators may see: no key, no answer.
CREATE VIEW {idempotency_audit} AS
    SELECT substr(lower(hex(slot)), 1, 8) AS slot, tenant, principal, scope, hash_alg, status, http_code, body_kind,
        length(response_body) AS body_bytes, result_ref, owner, lease_until, recovery_point, tokens, unfinished,
        attempts, created_at, updated_at, expires_at
    FROM {idempotency_keys};
