-- Acts of operators on all dead letters that match a filter. Relays and consumers carry them out, in small
-- transactions, each of which also moves the place of its row.
CREATE TABLE {bulk_actions} (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    action TEXT NOT NULL CHECK (action IN ('redrive', 'discard')),
    -- The dead letters, as a filter in JSON. It names one consumer or one destination.
    filter TEXT NOT NULL CHECK (json_type(filter) = 'object'),
    -- The time between two redriven dead letters, in microseconds.
    spacing INTEGER NOT NULL CHECK (spacing >= 0),
    -- How many dead letters matched when it was planned, counted up to a limit.
    planned INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled', 'failed')),
    -- The last dead letter that was looked at: its time, and its number or position.
    after_time INTEGER NOT NULL DEFAULT 0,
    after_number INTEGER NOT NULL DEFAULT 0,
    looked_at INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 0,
    -- Its entry in the audit, which gets the number of changed dead letters at the end.
    audit_id INTEGER NOT NULL UNIQUE,
    made_by TEXT NOT NULL,
    reason TEXT,
    -- Why it has failed: it cannot be read, and what it had changed stays changed.
    error TEXT,
    -- Later dead letters are left alone.
    made_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    ended_at INTEGER,
    owner BLOB,
    lease_until INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX {bulk_actions_running} ON {bulk_actions} (id) WHERE state = 'running';
