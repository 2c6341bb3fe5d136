-- Which service owns these tables. Fixed here, because messages are identified by it.
CREATE TABLE {meta} (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    service text NOT NULL CHECK (octet_length(service) BETWEEN 1 AND 255)
);

-- One row that holds a transaction id beside its own xmin. They agree for ever in the cluster that wrote
-- them and differ after a restore, where the transaction ids of the log mean nothing. No migration may
-- rewrite this table.
CREATE TABLE {sentinel} (txid xid8 NOT NULL DEFAULT pg_current_xact_id());
INSERT INTO {sentinel} DEFAULT VALUES;

-- The log. Append-only; a producer in any language may insert (type, payload, …).
CREATE TABLE {outbox} (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    txid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id text NOT NULL DEFAULT gen_random_uuid()::text CHECK (octet_length(id) BETWEEN 1 AND 255),
    source text CHECK (octet_length(source) BETWEEN 1 AND 255),
    type text NOT NULL CHECK (octet_length(type) <= 128 AND type ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$'),
    version bigint NOT NULL DEFAULT 1 CHECK (version BETWEEN 1 AND 4294967295),
    key text CHECK (octet_length(key) <= 255),
    subject text CHECK (octet_length(subject) <= 1024),
    time timestamptz NOT NULL DEFAULT now() CHECK (isfinite(time)),
    correlation_id text CHECK (octet_length(correlation_id) <= 255),
    causation_id text CHECK (octet_length(causation_id) <= 255),
    traceparent text CHECK (octet_length(traceparent) <= 55),
    content_type text NOT NULL DEFAULT 'application/json' CHECK (octet_length(content_type) <= 255),
    headers text CHECK (octet_length(headers) <= 65536 AND jsonb_typeof(headers::jsonb) = 'object'),
    payload bytea NOT NULL CHECK (octet_length(payload) <= 983040)
);
-- For the late committers and the newcomers of a window.
CREATE INDEX outbox_txid_position ON {outbox} (txid, position);
-- For looking a message up by its event id. Not unique: the inbox removes duplicates.
CREATE INDEX outbox_id ON {outbox} (id);

-- An invented transaction id would be delivered years later, or never.
CREATE FUNCTION {refuse_txid}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'twinbox: leave txid out of the INSERT; it is the id of the inserting transaction'
        USING ERRCODE = 'TB002';
END $$;
CREATE TRIGGER refuse_txid BEFORE INSERT ON {outbox} FOR EACH ROW
    WHEN (NEW.txid IS DISTINCT FROM pg_current_xact_id()) EXECUTE FUNCTION {refuse_txid}();

-- What was visible when. A window is what became visible between two of these.
CREATE TABLE {ticks} (
    id bigint PRIMARY KEY,
    snapshot pg_snapshot NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO {ticks} (id, snapshot, at) VALUES (0, '1:1:', 'epoch');

-- How far each reader has settled, and who runs it. Rewritten often, so rows get room to stay in place.
CREATE TABLE {cursors} (
    destination text PRIMARY KEY,
    p bigint NOT NULL,
    w bigint NOT NULL,
    position bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL DEFAULT 0,
    owner uuid,
    lease_until timestamptz NOT NULL DEFAULT 'epoch',
    partitions bigint,
    CHECK (p <= w)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- One row for each message that a consumer has done with.
CREATE TABLE {inbox} (
    consumer text NOT NULL,
    message_id uuid NOT NULL,
    source text NOT NULL,
    event_id text NOT NULL,
    payload_hash bytea NOT NULL,
    state text NOT NULL CHECK (state IN ('processed', 'rejected', 'dead')),
    claimed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
);

-- Refuses a COMMIT that does not come from the runtime. Without it a raw COMMIT inside a handler would keep
-- the claim, and the redelivery of the half-done message would be a duplicate.
CREATE FUNCTION {refuse_commit}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('twinbox.commit', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
        RAISE EXCEPTION 'twinbox: a handler must not COMMIT; its runtime does' USING ERRCODE = 'TB001';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT ON {inbox}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {refuse_commit}();

-- Failures of messages that are not done with yet.
CREATE TABLE {attempts} (
    consumer text NOT NULL,
    message_id uuid NOT NULL,
    failures bigint NOT NULL,
    last_error text NOT NULL,
    first_failed_at timestamptz NOT NULL DEFAULT now(),
    last_failed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
);

-- Messages that a consumer gave up on, whole.
CREATE TABLE {dead_letters} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer text NOT NULL,
    message_id uuid NOT NULL,
    reason text NOT NULL,
    error text NOT NULL,
    attempts bigint NOT NULL,
    died_at timestamptz NOT NULL DEFAULT now(),
    event_id text NOT NULL,
    source text NOT NULL,
    type text NOT NULL,
    version bigint NOT NULL,
    key text,
    subject text,
    time timestamptz NOT NULL,
    sequence bigint,
    correlation_id text,
    causation_id text,
    traceparent text,
    content_type text NOT NULL,
    headers text,
    payload bytea NOT NULL
);
CREATE INDEX dead_letters_consumer ON {dead_letters} (consumer, died_at);
