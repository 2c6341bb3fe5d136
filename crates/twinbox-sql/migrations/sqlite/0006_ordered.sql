-- How far a consumer that keeps the order of keys has settled each partition of a broker's log, and who reads it.
CREATE TABLE {places} (
    consumer TEXT NOT NULL,
    partition INTEGER NOT NULL,
    -- What is read of it. A place says nothing of other types.
    types TEXT NOT NULL,
    -- Which log the sequence is of: another one of the same name begins anew.
    log TEXT NOT NULL DEFAULT '',
    sequence INTEGER NOT NULL DEFAULT 0,
    -- Which message is there. Another one: the log has lost its end since.
    message TEXT NOT NULL DEFAULT '',
    epoch INTEGER NOT NULL DEFAULT 0,
    owner BLOB,
    lease_until INTEGER NOT NULL DEFAULT 0,
    -- How long that is, in microseconds.
    lease INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, partition)
) STRICT, WITHOUT ROWID;

-- The processes that share the partitions of a consumer.
CREATE TABLE {members} (
    consumer TEXT NOT NULL,
    member BLOB NOT NULL,
    lease_until INTEGER NOT NULL,
    -- How long that is, in microseconds.
    lease INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, member)
) STRICT, WITHOUT ROWID;

-- Deliveries that were put aside so that other keys go on, whole, because the broker is told that they are done.
CREATE TABLE {parked_deliveries} (
    -- In the order of delivery, within a key.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer TEXT NOT NULL,
    partition INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    parked_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    message_id BLOB NOT NULL,
    message_sequence INTEGER,
    event_id TEXT NOT NULL,
    source TEXT NOT NULL,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    key TEXT,
    subject TEXT,
    time INTEGER NOT NULL,
    correlation_id TEXT,
    causation_id TEXT,
    traceparent TEXT,
    content_type TEXT NOT NULL,
    headers TEXT,
    payload BLOB NOT NULL,
    UNIQUE (consumer, message_id)
) STRICT;
-- For the first of a key, and for the keys of a partition.
CREATE INDEX {parked_deliveries_key} ON {parked_deliveries} (consumer, partition, key, id);
CREATE INDEX {parked_deliveries_keyless} ON {parked_deliveries} (consumer, partition, next_attempt_at) WHERE key IS NULL;
