-- Responses of operations with an idempotency key. A retry gets the stored response and runs nothing.
CREATE TABLE {idempotency_keys} (
    -- SHA-256 of tenant, principal, scope and key, each with its length. So it fits an index.
    slot BLOB PRIMARY KEY CHECK (length(slot) = 32),
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash BLOB NOT NULL,
    -- The algorithm, and the members that it left out. Later releases compare requests by the same.
    hash_alg TEXT NOT NULL,
    -- 'failed': a final failure. A retry gets it like a success.
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'complete', 'failed')),
    http_code INTEGER,
    response_headers BLOB,
    response_body BLOB,
    body_kind TEXT NOT NULL DEFAULT 'omitted' CHECK (body_kind IN ('inline', 'ref', 'omitted')),
    result_ref TEXT,
    -- The headers of the codec that encoded the body, as a JSON object. NULL: it is not encoded.
    codec_headers TEXT,
    -- The lease of an operation that runs outside a transaction: its owner, its end, and how far it has come.
    owner BLOB,
    lease_until INTEGER,
    recovery_point TEXT,
    -- The tokens for vendors and their times: a JSON object of microseconds since 1970. NULL: none was made.
    tokens TEXT,
    -- Whether a vendor may have been called without a final response. Such a row never expires.
    unfinished INTEGER NOT NULL
        GENERATED ALWAYS AS (
            (status = 'pending' OR status = 'failed' AND http_code >= 500)
            AND (recovery_point IS NOT NULL OR tokens IS NOT NULL)
        ) STORED,
    attempts INTEGER NOT NULL DEFAULT 1,
    -- Attempts among these that ended without a failure.
    uncounted_attempts INTEGER NOT NULL DEFAULT 0,
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
-- For operators too. It has a row only if a vendor may have been called.
CREATE INDEX {idempotency_keys_unfinished} ON {idempotency_keys} (created_at) WHERE unfinished;

-- What operators may read: no key and no response.
CREATE VIEW {idempotency_audit} AS
    SELECT
        substr(lower(hex(slot)), 1, 8) AS slot,
        tenant,
        principal,
        scope,
        hash_alg,
        status,
        http_code,
        body_kind,
        length(response_body) AS body_bytes,
        result_ref,
        owner,
        lease_until,
        recovery_point,
        tokens,
        unfinished,
        attempts,
        created_at,
        updated_at,
        expires_at
    FROM {idempotency_keys};

-- Webhooks that were received, so that a repeated one runs nothing. They are not among the idempotency keys:
-- the id of a sender must not meet the key of a caller.
CREATE TABLE {webhook_receipts} (
    provider TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    dedup_id TEXT NOT NULL,
    -- The signed part of the request that the id is from.
    dedup_basis TEXT NOT NULL CHECK (dedup_basis IN ('header', 'body', 'digest')),
    payload_hash BLOB NOT NULL,
    -- The index of the secret that verified the signature.
    secret_index INTEGER NOT NULL,
    received_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (provider, endpoint, dedup_id)
) STRICT;
-- For the purge.
CREATE INDEX {webhook_receipts_expires_at} ON {webhook_receipts} (expires_at);

-- Changes by operators. A row is written before the change, and completed after it.
CREATE TABLE {audit} (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    -- As the operator says, and as the database knows, which has no users.
    operator TEXT NOT NULL,
    database_user TEXT NOT NULL DEFAULT '',
    command TEXT NOT NULL,
    -- What the command changed: a destination, a consumer, a key.
    target TEXT NOT NULL,
    reason TEXT,
    -- The number of changed rows. NULL: the command has no known end.
    count INTEGER
) STRICT;
