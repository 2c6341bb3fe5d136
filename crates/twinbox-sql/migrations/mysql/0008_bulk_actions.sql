-- Acts of operators on all dead letters that match a filter. Relays and consumers carry them out, in small
-- transactions, each of which also moves the place of its row.
CREATE TABLE IF NOT EXISTS {bulk_actions} (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    action VARBINARY(64) NOT NULL CHECK (action IN ('redrive', 'discard')),
    -- The dead letters, as a filter in JSON. It names one consumer or one destination.
    filter TEXT NOT NULL CHECK (JSON_TYPE(filter) = 'OBJECT'),
    -- The time between two redriven dead letters, in microseconds.
    spacing BIGINT NOT NULL CHECK (spacing >= 0),
    -- How many dead letters matched when it was planned, counted up to a limit.
    planned BIGINT NOT NULL,
    state VARBINARY(64) NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    -- The last dead letter that was looked at: its time, and its number or position.
    after_time DATETIME(6) NOT NULL DEFAULT '1970-01-01',
    after_number BIGINT NOT NULL DEFAULT 0,
    looked_at BIGINT NOT NULL DEFAULT 0,
    changed BIGINT NOT NULL DEFAULT 0,
    -- Its entry in the audit, which gets the number of changed dead letters at the end.
    audit_id BIGINT NOT NULL,
    made_by TEXT NOT NULL,
    reason TEXT,
    -- Later dead letters are left alone.
    made_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    ended_at DATETIME(6),
    owner BINARY(16),
    lease_until DATETIME(6) NOT NULL DEFAULT '1970-01-01',
    -- For those that run.
    INDEX bulk_actions_running (state, id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
