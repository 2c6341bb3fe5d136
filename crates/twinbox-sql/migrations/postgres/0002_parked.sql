-- What a destination did not take, put aside so that the rest of the log goes on. The message itself stays in
-- the log. Waiting rows are tried again; those of one key in the order of their positions.
CREATE TABLE {parked} (
    destination text NOT NULL,
    position bigint NOT NULL,
    key text,
    type text NOT NULL,
    state text NOT NULL CHECK (state IN ('waiting', 'dead', 'blocking')),
    -- Whether later messages of the key wait behind this one.
    holds boolean NOT NULL,
    attempts bigint NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    first_error text NOT NULL,
    last_error text NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (destination, position)
);
CREATE INDEX parked_waiting ON {parked} (destination) WHERE state = 'waiting';
-- For those that nothing orders.
CREATE INDEX parked_keyless ON {parked} (destination, next_attempt_at) WHERE state = 'waiting' AND key IS NULL;
-- For the lowest position of a key.
CREATE INDEX parked_key ON {parked} (destination, key, position) WHERE holds = true;
CREATE INDEX parked_blocking ON {parked} (destination) WHERE state = 'blocking';
-- For retention, which keeps what is parked anywhere.
CREATE INDEX parked_position ON {parked} (position);
