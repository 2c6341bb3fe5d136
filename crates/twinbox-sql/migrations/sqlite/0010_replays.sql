-- Past messages again: a range of the log, by a cursor `replay:ID` of its own, to a destination that has settled it.
CREATE TABLE {replays} (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- What brokers and inboxes know it by: ids start over in a database that was restored, and this does not.
    token BLOB NOT NULL UNIQUE,
    destination TEXT NOT NULL,
    -- For whom alone the messages are to run again. None: the inbox of each consumer removes what it knows.
    consumer TEXT,
    selection TEXT NOT NULL CHECK (json_type(selection) = 'object'),
    -- How far the destination had settled the log when the replay was made: what is beyond comes by itself.
    p INTEGER NOT NULL,
    w INTEGER NOT NULL,
    position INTEGER NOT NULL,
    -- Positions of the first and the last message that is selected, and how many there are.
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    selected INTEGER NOT NULL,
    -- Messages a second, at most.
    rate INTEGER CHECK (rate > 0),
    state TEXT NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    made_by TEXT NOT NULL,
    reason TEXT,
    made_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    ended_at INTEGER
) STRICT;
CREATE INDEX {replays_running} ON {replays} (destination, id) WHERE state = 'running';

-- Claims that were taken back so that a message runs again: once for each replay.
CREATE TABLE {inbox_superseded} (
    consumer TEXT NOT NULL,
    message_id BLOB NOT NULL,
    -- The token of the replay.
    replay BLOB NOT NULL,
    -- Of the claim, if there was one.
    state TEXT,
    payload_hash BLOB,
    claimed_at INTEGER,
    superseded_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (consumer, message_id, replay)
) STRICT, WITHOUT ROWID;
