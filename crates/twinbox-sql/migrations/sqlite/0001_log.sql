-- The service that owns these tables. It is fixed here, because messages are identified by it.
CREATE TABLE {meta} (
    singleton INTEGER PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    service TEXT NOT NULL CHECK (length(CAST(service AS BLOB)) BETWEEN 1 AND 255)
) STRICT;

-- The log. It is append-only. A producer in any language may insert (type, payload, …) with bound parameters.
-- All times are microseconds since 1970.
CREATE TABLE {outbox} (
    -- No reader begins before the first one.
    position INTEGER PRIMARY KEY AUTOINCREMENT CHECK (position > 0),
    id TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))) CHECK (length(CAST(id AS BLOB)) BETWEEN 1 AND 255),
    source TEXT CHECK (length(CAST(source AS BLOB)) BETWEEN 1 AND 255),
    -- GLOB and length end at a NUL, the length in bytes does not.
    type TEXT NOT NULL CHECK (
        length(type) BETWEEN 1 AND 128
        AND length(type) = length(CAST(type AS BLOB))
        AND type NOT GLOB '*[^A-Za-z0-9_.-]*'
        AND type NOT GLOB '.*'
        AND type NOT GLOB '*.'
        AND type NOT GLOB '*..*'
    ),
    version INTEGER NOT NULL DEFAULT 1 CHECK (version BETWEEN 1 AND 4294967295),
    -- A JSON text, in which rows are parked, ends at a NUL.
    key TEXT CHECK (length(CAST(key AS BLOB)) <= 255 AND NOT instr(CAST(key AS BLOB), x'00')),
    subject TEXT CHECK (length(CAST(subject AS BLOB)) <= 1024),
    -- In milliseconds, because a producer may have SQLite 3.41 or older. The years 0 to 9999: no destination
    -- has a form for others.
    time INTEGER NOT NULL
        DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
        CHECK (time BETWEEN -62167219200000000 AND 253402300799999999),
    correlation_id TEXT CHECK (length(CAST(correlation_id AS BLOB)) <= 255),
    causation_id TEXT CHECK (length(CAST(causation_id AS BLOB)) <= 255),
    traceparent TEXT CHECK (length(traceparent) <= 55),
    content_type TEXT NOT NULL DEFAULT 'application/json'
        CHECK (length(CAST(content_type AS BLOB)) <= 255),
    -- NULL is no valid JSON to SQLite before 3.42.
    headers TEXT CHECK (
        headers IS NULL
        OR length(CAST(headers AS BLOB)) <= 65536 AND json_valid(headers) AND json_type(headers) = 'object'
    ),
    payload BLOB NOT NULL CHECK (length(payload) <= 983040)
) STRICT;
-- For looking a message up by its event id. Not unique: the inbox removes duplicates.
CREATE INDEX {outbox_id} ON {outbox} (id);

-- Refuses a position that the log has given already: readers may have passed it.
CREATE TRIGGER {refuse_position} AFTER INSERT ON {outbox}
WHEN NEW.position <= (SELECT seq FROM sqlite_sequence WHERE name = '{outbox}')
BEGIN
    SELECT RAISE(ABORT, 'twinbox: leave position out of the INSERT; the log numbers its messages');
END;

-- How far each reader has settled the log, and which process owns it. p and w are positions: with one writer
-- at a time positions follow the order of commits.
CREATE TABLE {cursors} (
    destination TEXT PRIMARY KEY,
    -- The window. All messages before it are settled, and those inside it up to `position`.
    p INTEGER NOT NULL,
    w INTEGER NOT NULL,
    position INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    owner BLOB,
    lease_until INTEGER NOT NULL DEFAULT 0,
    partitions INTEGER,
    -- The duration of the lease, in microseconds.
    lease INTEGER NOT NULL DEFAULT 0,
    -- The ticks of the window that is being read or searched. The settled window moves towards it.
    ahead_p INTEGER NOT NULL DEFAULT 0,
    ahead_w INTEGER NOT NULL DEFAULT 0,
    -- How many destinations the process of the owner owned when it wrote the row.
    owned INTEGER NOT NULL DEFAULT 0,
    -- The process with a smaller share that wishes for the lease, how many destinations it owns, and until
    -- when the wish counts. NULL: the owner has seen the end of the last wish.
    wished_by BLOB,
    wisher_owned INTEGER,
    wished_until INTEGER NOT NULL DEFAULT 0,
    -- Why an operator paused the destination. NULL: it is not paused.
    pause_reason TEXT,
    -- When the destination was new.
    started_at INTEGER,
    -- Where at its broker the destination has its messages, in a format of that broker.
    address TEXT,
    CHECK (p <= w)
) STRICT, WITHOUT ROWID;

-- The secrets of destinations. A relay makes names for the broker with one, which nobody else can make.
CREATE TABLE {destination_secrets} (
    destination TEXT PRIMARY KEY,
    secret BLOB NOT NULL CHECK (length(secret) = 32)
) STRICT;

-- Messages that a destination refused, and the later messages of their keys. The messages themselves stay in
-- the log. Waiting rows are tried again, those of one key in the order of their positions.
CREATE TABLE {parked_messages} (
    destination TEXT NOT NULL,
    position INTEGER NOT NULL,
    key TEXT,
    type TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'dead', 'blocking')),
    -- Whether later messages of the key wait behind this one.
    blocks_key INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    first_error TEXT NOT NULL,
    last_error TEXT NOT NULL,
    -- Groups messages that were given up for one cause.
    fingerprint TEXT NOT NULL,
    parked_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (destination, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX {parked_messages_waiting} ON {parked_messages} (destination) WHERE state = 'waiting';
-- For messages without a key, which have no order.
CREATE INDEX {parked_messages_keyless} ON {parked_messages} (destination, next_attempt_at)
    WHERE state = 'waiting' AND key IS NULL;
-- For the lowest position of a key.
CREATE INDEX {parked_messages_key} ON {parked_messages} (destination, key, position)
    WHERE blocks_key = true;
CREATE INDEX {parked_messages_blocking} ON {parked_messages} (destination) WHERE state = 'blocking';
-- For dead letters and their groups: in order, and by time. They hold all that counts read.
CREATE INDEX {parked_messages_group}
    ON {parked_messages} (destination, fingerprint, position, state)
    WHERE state <> 'waiting';
CREATE INDEX {parked_messages_group_time}
    ON {parked_messages} (destination, fingerprint, parked_at, state)
    WHERE state <> 'waiting';
-- For the purge, which keeps parked messages in the log.
CREATE INDEX {parked_messages_position} ON {parked_messages} (position);

-- Messages that enter the log later. They have the bounds of the log, so that none is refused then.
CREATE TABLE {delayed_messages} (
    insert_order INTEGER PRIMARY KEY,
    not_before INTEGER NOT NULL CHECK (not_before BETWEEN -62167219200000000 AND 253402300799999999),
    -- For cancelling. A message without it cannot be cancelled.
    message_id BLOB,
    id TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))) CHECK (length(CAST(id AS BLOB)) BETWEEN 1 AND 255),
    type TEXT NOT NULL CHECK (
        length(type) BETWEEN 1 AND 128
        AND length(type) = length(CAST(type AS BLOB))
        AND type NOT GLOB '*[^A-Za-z0-9_.-]*'
        AND type NOT GLOB '.*'
        AND type NOT GLOB '*.'
        AND type NOT GLOB '*..*'
    ),
    version INTEGER NOT NULL DEFAULT 1 CHECK (version BETWEEN 1 AND 4294967295),
    -- A JSON text, in which rows are parked, ends at a NUL.
    key TEXT CHECK (length(CAST(key AS BLOB)) <= 255 AND NOT instr(CAST(key AS BLOB), x'00')),
    subject TEXT CHECK (length(CAST(subject AS BLOB)) <= 1024),
    -- NULL: the time at which it enters the log.
    time INTEGER CHECK (time BETWEEN -62167219200000000 AND 253402300799999999),
    correlation_id TEXT CHECK (length(CAST(correlation_id AS BLOB)) <= 255),
    causation_id TEXT CHECK (length(CAST(causation_id AS BLOB)) <= 255),
    traceparent TEXT CHECK (length(traceparent) <= 55),
    content_type TEXT NOT NULL DEFAULT 'application/json'
        CHECK (length(CAST(content_type AS BLOB)) <= 255),
    -- NULL is no valid JSON to SQLite before 3.42.
    headers TEXT CHECK (
        headers IS NULL
        OR length(CAST(headers AS BLOB)) <= 65536 AND json_valid(headers) AND json_type(headers) = 'object'
    ),
    payload BLOB NOT NULL CHECK (length(payload) <= 983040)
) STRICT;
CREATE INDEX {delayed_messages_due} ON {delayed_messages} (not_before, insert_order);
CREATE INDEX {delayed_messages_message_id} ON {delayed_messages} (message_id);

-- Replays: a range of the log again, to a destination that has settled it. Each has a cursor `replay:ID`.
CREATE TABLE {replays} (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The name of the replay for brokers and inboxes. Ids start over in a restored database, tokens do not.
    token BLOB NOT NULL UNIQUE,
    destination TEXT NOT NULL,
    -- The one consumer that reprocesses the messages. NULL: a resend, and inboxes remove duplicates.
    consumer TEXT,
    selection TEXT NOT NULL CHECK (json_type(selection) = 'object'),
    -- How far the destination had settled the log when the replay was made. Later messages come anyway.
    p INTEGER NOT NULL,
    w INTEGER NOT NULL,
    position INTEGER NOT NULL,
    -- The positions of the first and the last selected message, and the number of selected messages.
    first_position INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    selected INTEGER NOT NULL,
    -- The most messages a second.
    rate INTEGER CHECK (rate > 0),
    state TEXT NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    made_by TEXT NOT NULL,
    reason TEXT,
    made_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    ended_at INTEGER
) STRICT;
CREATE INDEX {replays_running} ON {replays} (destination, id) WHERE state = 'running';
