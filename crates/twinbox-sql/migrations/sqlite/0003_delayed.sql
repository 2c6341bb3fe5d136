-- Messages that wait for their time, with what will be written to the log. They are bounded as the log is, so
-- that none is refused when its time comes.
CREATE TABLE {delayed} (
    nth INTEGER PRIMARY KEY,
    not_before INTEGER NOT NULL,
    -- For cancelling. Without it a message waits like any other.
    message_id BLOB,
    id TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))) CHECK (length(CAST(id AS BLOB)) BETWEEN 1 AND 255),
    type TEXT NOT NULL CHECK (length(type) BETWEEN 1 AND 128 AND length(type) = length(CAST(type AS BLOB))
        AND type NOT GLOB '*[^A-Za-z0-9_.-]*'
        AND type NOT GLOB '.*' AND type NOT GLOB '*.' AND type NOT GLOB '*..*'),
    version INTEGER NOT NULL DEFAULT 1 CHECK (version BETWEEN 1 AND 4294967295),
    key TEXT CHECK (length(CAST(key AS BLOB)) <= 255),
    subject TEXT CHECK (length(CAST(subject AS BLOB)) <= 1024),
    -- None: when it is moved to the log.
    time INTEGER,
    correlation_id TEXT CHECK (length(CAST(correlation_id AS BLOB)) <= 255),
    causation_id TEXT CHECK (length(CAST(causation_id AS BLOB)) <= 255),
    traceparent TEXT CHECK (length(traceparent) <= 55),
    content_type TEXT NOT NULL DEFAULT 'application/json' CHECK (length(CAST(content_type AS BLOB)) <= 255),
    -- NULL is no valid JSON to SQLite before 3.42.
    headers TEXT CHECK (headers IS NULL
        OR length(CAST(headers AS BLOB)) <= 65536 AND json_valid(headers) AND json_type(headers) = 'object'),
    payload BLOB NOT NULL CHECK (length(payload) <= 983040)
) STRICT;
CREATE INDEX {delayed_due} ON {delayed} (not_before, nth);
CREATE INDEX {delayed_message_id} ON {delayed} (message_id);
