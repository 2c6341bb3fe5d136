-- Side effects: acts outside the database. A row is planned in the transaction that wants the act. A
-- dispatcher sends its request later.
CREATE TABLE {side_effects} (
    -- The order of effects with one key.
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Derived from source_id and kind. NULL until a dispatcher has seen a row that was planned in SQL.
    id BLOB UNIQUE,
    -- What wants the act: a message, an operation, a row of the application.
    source_id BLOB NOT NULL CHECK (length(source_id) = 16),
    -- `base` or `base:qualifier`, such as `email.welcome` or `webhook.paid:ep_42`.
    kind TEXT NOT NULL CHECK (length(CAST(kind AS BLOB)) BETWEEN 1 AND 255 AND kind NOT LIKE ':%'),
    vendor TEXT NOT NULL CHECK (length(CAST(vendor AS BLOB)) BETWEEN 1 AND 120),
    -- Effects of one vendor and key are sent one after another. NULL: in no order.
    key TEXT CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 255),
    -- 'pending': the vendor has done nothing. 'fired': it was sent, and no answer is known yet.
    state TEXT NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'fired', 'confirmed', 'unknown', 'failed', 'compensated')),
    -- The request as it was planned. Credentials are not part of it.
    method TEXT NOT NULL DEFAULT 'POST' CHECK (length(CAST(method AS BLOB)) BETWEEN 1 AND 16),
    target TEXT NOT NULL DEFAULT '' CHECK (length(CAST(target AS BLOB)) <= 2048),
    content_type TEXT NOT NULL DEFAULT 'application/json' CHECK (length(CAST(content_type AS BLOB)) <= 255),
    headers TEXT CHECK (length(CAST(headers AS BLOB)) <= 65536 AND json_type(headers) = 'object'),
    request BLOB NOT NULL CHECK (length(request) <= 983040),
    -- The headers of the codec that encoded the request, as a JSON object. NULL: it is not encoded.
    codec_headers TEXT,
    correlation_id TEXT CHECK (length(CAST(correlation_id AS BLOB)) <= 255),
    traceparent TEXT CHECK (length(CAST(traceparent AS BLOB)) <= 55),
    -- The effect that this one compensates.
    compensates INTEGER,
    -- Counts up only after it is known that the vendor did nothing. Each generation has a key of its own.
    generation INTEGER NOT NULL DEFAULT 0,
    -- The key for the vendor. NULL: this generation was never sent.
    idempotency_key TEXT,
    -- How long the vendor surely remembers the key. NULL: it was never sent, or the vendor knows no keys.
    provider_key_expires_at INTEGER,
    -- How often the request was sent, and how many of these sends failed.
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    -- The process that sends it. `next_attempt_at` is the end of its lease.
    owner BLOB,
    -- When a dispatcher looks at the row next. NULL: it has ended, or waits for an earlier one of its key.
    next_attempt_at INTEGER DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    first_fired_at INTEGER,
    fired_at INTEGER,
    -- NULL while it is open. An unknown effect is open until a person has resolved it.
    ended_at INTEGER,
    -- What the vendor calls the thing that it made.
    provider_ref TEXT,
    http_code INTEGER,
    error_code TEXT,
    last_error TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    UNIQUE (source_id, kind)
) STRICT;
CREATE INDEX {side_effects_due} ON {side_effects} (vendor, next_attempt_at, position)
    WHERE next_attempt_at IS NOT NULL;
-- For the first open effect of a key.
CREATE INDEX {side_effects_key} ON {side_effects} (vendor, key, position)
    WHERE key IS NOT NULL AND ended_at IS NULL;
-- For operators.
CREATE INDEX {side_effects_problem} ON {side_effects} (state, position) WHERE state IN ('unknown', 'failed');
-- For the purge.
CREATE INDEX {side_effects_ended_at} ON {side_effects} (ended_at) WHERE ended_at IS NOT NULL;

-- Vendors that must not be called for now.
CREATE TABLE {vendors} (
    vendor TEXT PRIMARY KEY,
    -- The vendor asked for no call before this time.
    closed_until INTEGER NOT NULL DEFAULT 0,
    -- Why an operator paused the vendor. NULL: it is not paused.
    pause_reason TEXT
) STRICT;
