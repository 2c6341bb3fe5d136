-- Which service owns these tables. Fixed here, because messages are identified by it.
CREATE TABLE {meta} (
    singleton INTEGER PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    service TEXT NOT NULL CHECK (length(CAST(service AS BLOB)) BETWEEN 1 AND 255)
) STRICT;

-- The log. Append-only; a producer in any language may insert (type, payload, …) with bound
-- parameters. Times are microseconds
-- since 1970.
CREATE TABLE {outbox} (
    -- No reader begins before the first one.
    position INTEGER PRIMARY KEY AUTOINCREMENT CHECK (position > 0),
    id TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))) CHECK (length(CAST(id AS BLOB)) BETWEEN 1 AND 255),
    source TEXT CHECK (length(CAST(source AS BLOB)) BETWEEN 1 AND 255),
    -- GLOB and length end at a NUL, the length in bytes does not.
    type TEXT NOT NULL CHECK (length(type) BETWEEN 1 AND 128 AND length(type) = length(CAST(type AS BLOB))
        AND type NOT GLOB '*[^A-Za-z0-9_.-]*'
        AND type NOT GLOB '.*' AND type NOT GLOB '*.' AND type NOT GLOB '*..*'),
    version INTEGER NOT NULL DEFAULT 1 CHECK (version BETWEEN 1 AND 4294967295),
    key TEXT CHECK (length(CAST(key AS BLOB)) <= 255),
    subject TEXT CHECK (length(CAST(subject AS BLOB)) <= 1024),
    -- In milliseconds, as a producer's SQLite from before 3.42 can tell them.
    time INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    correlation_id TEXT CHECK (length(CAST(correlation_id AS BLOB)) <= 255),
    causation_id TEXT CHECK (length(CAST(causation_id AS BLOB)) <= 255),
    traceparent TEXT CHECK (length(traceparent) <= 55),
    content_type TEXT NOT NULL DEFAULT 'application/json' CHECK (length(CAST(content_type AS BLOB)) <= 255),
    -- NULL is no valid JSON to SQLite before 3.42.
    headers TEXT CHECK (headers IS NULL
        OR length(CAST(headers AS BLOB)) <= 65536 AND json_valid(headers) AND json_type(headers) = 'object'),
    payload BLOB NOT NULL CHECK (length(payload) <= 983040)
) STRICT;
-- For looking a message up by its event id. Not unique: the inbox removes duplicates.
CREATE INDEX {outbox_id} ON {outbox} (id);

-- How far each reader has settled, and who runs it. p and w are positions: one writer at a time means that
-- positions follow commit order.
CREATE TABLE {cursors} (
    destination TEXT PRIMARY KEY,
    p INTEGER NOT NULL,
    w INTEGER NOT NULL,
    position INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    owner BLOB,
    lease_until INTEGER NOT NULL DEFAULT 0,
    partitions INTEGER,
    -- How long the lease is, in microseconds.
    lease INTEGER NOT NULL DEFAULT 0,
    -- The ticks that the reader reads between, which may be beyond what is settled.
    ahead_p INTEGER NOT NULL DEFAULT 0,
    ahead_w INTEGER NOT NULL DEFAULT 0,
    CHECK (p <= w)
) STRICT, WITHOUT ROWID;

-- One row for each message that a consumer has done with.
CREATE TABLE {inbox} (
    consumer TEXT NOT NULL,
    message_id BLOB NOT NULL,
    source TEXT NOT NULL,
    event_id TEXT NOT NULL,
    payload_hash BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('processed', 'rejected', 'dead')),
    claimed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

-- Failures of messages that are not done with yet.
CREATE TABLE {attempts} (
    consumer TEXT NOT NULL,
    message_id BLOB NOT NULL,
    failures INTEGER NOT NULL,
    last_error TEXT NOT NULL,
    first_failed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    last_failed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

-- Messages that a consumer gave up on, whole.
CREATE TABLE {dead_letters} (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer TEXT NOT NULL,
    message_id BLOB NOT NULL,
    reason TEXT NOT NULL,
    error TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    died_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    event_id TEXT NOT NULL,
    source TEXT NOT NULL,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    key TEXT,
    subject TEXT,
    time INTEGER NOT NULL,
    sequence INTEGER,
    correlation_id TEXT,
    causation_id TEXT,
    traceparent TEXT,
    content_type TEXT NOT NULL,
    headers TEXT,
    payload BLOB NOT NULL
) STRICT;
CREATE INDEX {dead_letters_consumer} ON {dead_letters} (consumer, died_at);
