-- What a destination did not take, put aside so that the rest of the log goes on. The message itself stays in
-- the log. Waiting rows are tried again; those of one key in the order of their positions.
CREATE TABLE {parked} (
    destination TEXT NOT NULL,
    position INTEGER NOT NULL,
    key TEXT,
    type TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'dead', 'blocking')),
    -- Whether later messages of the key wait behind this one.
    holds INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    first_error TEXT NOT NULL,
    last_error TEXT NOT NULL,
    parked_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (destination, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX {parked_waiting} ON {parked} (destination) WHERE state = 'waiting';
-- For those that nothing orders.
CREATE INDEX {parked_keyless} ON {parked} (destination, next_attempt_at) WHERE state = 'waiting' AND key IS NULL;
-- For the lowest position of a key.
CREATE INDEX {parked_key} ON {parked} (destination, key, position) WHERE holds = true;
CREATE INDEX {parked_blocking} ON {parked} (destination) WHERE state = 'blocking';
-- For retention, which keeps what is parked anywhere.
CREATE INDEX {parked_position} ON {parked} (position);
