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

-- The log. Append-only; a producer in any language may call the function `publish`, or insert (type, payload, …) with bound
-- parameters.
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

-- An invented transaction id would be delivered years later, or never; a position that no reader begins before, never. No
-- CHECK, which Postgres would parse anew in each INSERT.
CREATE FUNCTION {refuse_place}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'twinbox: leave position and txid out of the INSERT; the log numbers its messages, and txid is the id of the inserting transaction'
        USING ERRCODE = 'TB002';
END $$;
CREATE TRIGGER refuse_place BEFORE INSERT ON {outbox} FOR EACH ROW
    WHEN (NEW.txid IS DISTINCT FROM pg_current_xact_id() OR NEW.position <= 0) EXECUTE FUNCTION {refuse_place}();

-- For producers in any language. A literal into bytea loses backslashes without a word, so the payload is text here and
-- keeps its bytes; jsonb would change them, and so the hash of the payload. Runs with the rights of its caller, who needs
-- those of the INSERT. Returns the id, which a producer has no right to read back.
CREATE FUNCTION {publish}(type text, key text, payload text, id text DEFAULT NULL, version bigint DEFAULT 1,
    subject text DEFAULT NULL, headers jsonb DEFAULT NULL, correlation_id text DEFAULT NULL,
    causation_id text DEFAULT NULL, traceparent text DEFAULT NULL, event_time timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    event_id text := COALESCE(id, gen_random_uuid()::text);
    problem text;
BEGIN
    BEGIN
        IF payload::json IS NULL THEN
            RAISE EXCEPTION 'twinbox: the payload is NULL'
                USING ERRCODE = 'null_value_not_allowed', HINT = 'The payload null is the text ''null''.';
        END IF;
    EXCEPTION WHEN invalid_text_representation THEN
        GET STACKED DIAGNOSTICS problem = PG_EXCEPTION_DETAIL;
        RAISE EXCEPTION 'twinbox: the payload is not JSON' USING ERRCODE = 'invalid_text_representation',
            DETAIL = problem, HINT = 'publish_bytes(type, key, payload, content_type) takes anything else.';
    END;
    INSERT INTO {outbox} (id, type, version, key, subject, time, correlation_id, causation_id,
        traceparent, content_type, headers, payload)
    VALUES (event_id, type, version, key, subject, COALESCE(event_time, clock_timestamp()), correlation_id, causation_id,
        traceparent, 'application/json', headers::text, convert_to(payload, 'UTF8'));
    RETURN event_id;
END $$;

-- The same for a payload that is no JSON.
CREATE FUNCTION {publish_bytes}(type text, key text, payload bytea, content_type text, id text DEFAULT NULL,
    version bigint DEFAULT 1, subject text DEFAULT NULL, headers jsonb DEFAULT NULL, correlation_id text DEFAULT NULL,
    causation_id text DEFAULT NULL, traceparent text DEFAULT NULL, event_time timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    event_id text := COALESCE(id, gen_random_uuid()::text);
BEGIN
    INSERT INTO {outbox} (id, type, version, key, subject, time, correlation_id, causation_id,
        traceparent, content_type, headers, payload)
    VALUES (event_id, type, version, key, subject, COALESCE(event_time, clock_timestamp()), correlation_id, causation_id,
        traceparent, content_type, headers::text, payload);
    RETURN event_id;
END $$;

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
    -- How long the lease is, in microseconds.
    lease bigint NOT NULL DEFAULT 0,
    -- The ticks that the reader reads between, which may be beyond what is settled.
    ahead_p bigint NOT NULL DEFAULT 0,
    ahead_w bigint NOT NULL DEFAULT 0,
    CHECK (p <= w)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Which run of the server this is. Crash recovery, also that of a single backend, and a promotion empty an unlogged table:
-- commits may be forgotten then, and whoever goes on from memory would skip what they wrote.
CREATE UNLOGGED TABLE {run} (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
-- A clean stop keeps the row, and its data folder may be put back from an older copy: a start is another run too. Null
-- before the first reader of a run has made it known, and on a standby, where an unlogged table cannot be read.
CREATE FUNCTION {run_id}() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT hashtextextended(id::text || extract(epoch FROM pg_postmaster_start_time()), 0) FROM {run});
END $$;

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
