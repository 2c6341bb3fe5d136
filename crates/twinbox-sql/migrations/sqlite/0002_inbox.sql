-- One row for each message that a consumer has handled or given up.
CREATE TABLE {inbox} (
    consumer TEXT NOT NULL,
    message_id BLOB NOT NULL,
    source TEXT NOT NULL,
    event_id TEXT NOT NULL,
    payload_hash BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('processed', 'rejected', 'dead')),
    -- No earlier than `time`, whatever the clock of the producer shows.
    claimed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    -- The time of the message.
    time INTEGER,
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;
-- For the oldest claims of a consumer.
CREATE INDEX {inbox_claimed_at} ON {inbox} (consumer, claimed_at);

-- Failures of messages that may be handled yet.
CREATE TABLE {attempts} (
    consumer TEXT NOT NULL,
    message_id BLOB NOT NULL,
    failures INTEGER NOT NULL,
    last_error TEXT NOT NULL,
    first_failed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    last_failed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    -- Starts of the handler without a known end. The first may have run beside other messages, each later one
    -- ran alone.
    starts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

-- Messages that a consumer gave up, in full.
CREATE TABLE {dead_letters} (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer TEXT NOT NULL,
    message_id BLOB NOT NULL,
    reason TEXT NOT NULL,
    error TEXT NOT NULL,
    -- Groups dead letters of one cause: a hash of their type, their reason and their error without numbers.
    fingerprint TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    given_up_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
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
    payload BLOB NOT NULL,
    -- When it is redriven, and how often at most. An attempt is counted before it is made.
    redrive_at INTEGER,
    redrive_attempts_left INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX {dead_letters_consumer} ON {dead_letters} (consumer, given_up_at, id);
-- For the groups of a consumer. It holds all that their counts read.
CREATE INDEX {dead_letters_group}
    ON {dead_letters} (consumer, fingerprint, given_up_at, id, redrive_attempts_left);
-- For the dead letters of a message.
CREATE INDEX {dead_letters_event} ON {dead_letters} (event_id);
CREATE INDEX {dead_letters_redrive} ON {dead_letters} (consumer, redrive_at)
    WHERE redrive_attempts_left > 0;

-- How far a consumer with `order = "key"` has settled each partition of a broker's log, and which process
-- owns it.
CREATE TABLE {partition_leases} (
    consumer TEXT NOT NULL,
    partition INTEGER NOT NULL,
    -- The types that the consumer reads. The sequence means nothing for other types.
    types TEXT NOT NULL,
    -- The log of the sequence. Another log of the same name is read from its beginning.
    log TEXT NOT NULL DEFAULT '',
    sequence INTEGER NOT NULL DEFAULT 0,
    -- The message at this sequence. If the log has another one there, it has lost its end.
    last_message TEXT NOT NULL DEFAULT '',
    epoch INTEGER NOT NULL DEFAULT 0,
    owner BLOB,
    lease_until INTEGER NOT NULL DEFAULT 0,
    -- The duration of the lease, in microseconds.
    lease INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, partition)
) STRICT, WITHOUT ROWID;

-- The processes that share the partitions of a consumer.
CREATE TABLE {partition_members} (
    consumer TEXT NOT NULL,
    member BLOB NOT NULL,
    lease_until INTEGER NOT NULL,
    -- The duration of the lease, in microseconds.
    lease INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, member)
) STRICT, WITHOUT ROWID;

-- Deliveries that a consumer parked so that other keys continue. They are kept in full, because the broker
-- forgets them.
CREATE TABLE {parked_deliveries} (
    -- In the order of delivery, within a key.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer TEXT NOT NULL,
    partition INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    parked_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    message_id BLOB NOT NULL,
    sequence INTEGER,
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
-- For the first delivery of a key, and for the keys of a partition.
CREATE INDEX {parked_deliveries_key} ON {parked_deliveries} (consumer, partition, key, id);
CREATE INDEX {parked_deliveries_keyless} ON {parked_deliveries} (consumer, partition, next_attempt_at)
    WHERE key IS NULL;

-- The time of the newest message whose claim was deleted. A message that is no newer and has no claim may
-- have been handled or not.
CREATE TABLE {purge_marks} (
    consumer TEXT PRIMARY KEY,
    time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Claims that a replay took back, so that a message runs again: once for each replay.
CREATE TABLE {superseded_claims} (
    consumer TEXT NOT NULL,
    message_id BLOB NOT NULL,
    -- The token of the replay.
    replay BLOB NOT NULL,
    -- The claim, if there was one.
    state TEXT,
    payload_hash BLOB,
    claimed_at INTEGER,
    superseded_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (consumer, message_id, replay)
) STRICT, WITHOUT ROWID;

-- Consumers that have run on this database.
CREATE TABLE {consumers} (
    consumer TEXT PRIMARY KEY,
    seen_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    -- Why an operator paused the consumer. NULL: it is not paused.
    pause_reason TEXT,
    -- Where at its broker the consumer has its messages, in a format of that broker.
    address TEXT
) STRICT, WITHOUT ROWID;
