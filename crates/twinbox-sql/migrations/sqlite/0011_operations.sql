-- What somebody did by hand: written before it is done, and counted after.
CREATE TABLE {audit} (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    -- To what, or to which.
    target TEXT NOT NULL,
    reason TEXT,
    -- How many it was done to. None: it is not known to have ended.
    count INTEGER
) STRICT;

-- Consumers that have run here, and why somebody holds them back.
CREATE TABLE {consumers} (
    consumer TEXT PRIMARY KEY,
    seen_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    paused TEXT
) STRICT, WITHOUT ROWID;

-- When a dead letter is tried again, and how often at most. An attempt is counted before it is made.
ALTER TABLE {dead_letters} ADD COLUMN redrive_at INTEGER;
ALTER TABLE {dead_letters} ADD COLUMN redrives_left INTEGER NOT NULL DEFAULT 0;
CREATE INDEX {dead_letters_redrive} ON {dead_letters} (consumer, redrive_at) WHERE redrives_left > 0;

-- When the destination was new.
ALTER TABLE {cursors} ADD COLUMN started_at INTEGER;
