-- The service that owns these tables. It is fixed here, because messages are identified by it.
CREATE TABLE {meta} (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    service text NOT NULL CHECK (octet_length(service) BETWEEN 1 AND 255)
);

-- One row that holds a transaction id beside its own xmin. Both agree in the cluster that wrote them. They
-- differ after a restore from a dump, where the transaction ids of the log mean nothing. No migration may
-- rewrite this table.
CREATE TABLE {sentinel} (txid xid8 NOT NULL DEFAULT pg_current_xact_id());
INSERT INTO {sentinel} DEFAULT VALUES;

-- One row for each kind of work that one process does at a time. It locks the row: the number of an advisory
-- lock could be held by any role of the database.
CREATE TABLE {locks} (
    name text PRIMARY KEY,
    -- Never changed. A role that may change it may lock the row.
    lockable boolean NOT NULL DEFAULT true CHECK (lockable)
);
INSERT INTO {locks} (name)
VALUES ('change messages'), ('move delayed messages'), ('thin ticks');

-- Mixed into the numbers of advisory locks, so that only a role that may read it can make them.
CREATE TABLE {lock_secret} (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    secret bytea NOT NULL DEFAULT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
);
INSERT INTO {lock_secret} DEFAULT VALUES;

-- The rules of columns. Domains, because Postgres parses each CHECK of a table anew in every statement that
-- inserts into it, and those of a domain once for each connection.
CREATE DOMAIN {event_id} AS text CHECK (octet_length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN {event_source} AS text CHECK (octet_length(VALUE) BETWEEN 1 AND 255);
CREATE DOMAIN {event_type} AS text
    CHECK (octet_length(VALUE) <= 128 AND VALUE ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$');
CREATE DOMAIN {event_version} AS bigint CHECK (VALUE BETWEEN 1 AND 4294967295);
CREATE DOMAIN {event_key} AS text CHECK (octet_length(VALUE) <= 255);
CREATE DOMAIN {event_subject} AS text CHECK (octet_length(VALUE) <= 1024);
-- Of every column with a time: no program computes with an infinite one, nor writes a year beyond 9999.
CREATE DOMAIN {point_in_time} AS timestamptz
    CHECK (VALUE BETWEEN '0001-01-01 00:00:00+00 BC' AND '9999-12-31 23:59:59.999999+00');
CREATE DOMAIN {event_reference} AS text CHECK (octet_length(VALUE) <= 255);
CREATE DOMAIN {event_traceparent} AS text CHECK (octet_length(VALUE) <= 55);
CREATE DOMAIN {event_content_type} AS text CHECK (octet_length(VALUE) <= 255);
CREATE DOMAIN {event_headers} AS text
    CHECK (octet_length(VALUE) <= 65536 AND jsonb_typeof(VALUE::jsonb) = 'object');
CREATE DOMAIN {event_payload} AS bytea CHECK (octet_length(VALUE) <= 983040);
-- Nobody else makes functions of these types, which would come before those of Postgres.
REVOKE USAGE ON TYPE {event_id}, {event_source}, {event_type}, {event_version}, {event_key},
    {event_subject}, {point_in_time}, {event_reference}, {event_traceparent}, {event_content_type},
    {event_headers}, {event_payload} FROM PUBLIC;

-- The log. It is append-only. A producer in any language may call the function `publish`, or insert
-- (type, payload, …) with bound parameters.
CREATE TABLE {outbox} (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    txid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id {event_id} NOT NULL DEFAULT gen_random_uuid()::text,
    source {event_source},
    type {event_type} NOT NULL,
    version {event_version} NOT NULL DEFAULT 1,
    key {event_key},
    subject {event_subject},
    time {point_in_time} NOT NULL DEFAULT now(),
    correlation_id {event_reference},
    causation_id {event_reference},
    traceparent {event_traceparent},
    content_type {event_content_type} NOT NULL DEFAULT 'application/json',
    headers {event_headers},
    payload {event_payload} NOT NULL
);
-- For the late committers and the newcomers of a window.
CREATE INDEX outbox_txid_position ON {outbox} (txid, position);
-- For looking a message up by its event id, which operators do. It says which pages may have the id, once
-- they are vacuumed, and costs a publisher next to nothing. A tree costs it a twentieth. 800 messages of
-- the least size fit in a range. A search reads the entry of every range, and one in 2,000 for nothing.
CREATE INDEX outbox_id
    ON {outbox} USING brin (id text_bloom_ops (n_distinct_per_range = 800, false_positive_rate = 0.0005))
    WITH (pages_per_range = 16);
-- For finding a time in the log. A block range index costs a publisher next to nothing.
CREATE INDEX outbox_time ON {outbox} USING brin (time) WITH (pages_per_range = 32, autosummarize = on);

-- Refuses a position or a transaction id that the producer chose. A message with an invented transaction id
-- would be delivered years later, or never. No CHECK: Postgres would parse it anew in each INSERT.
CREATE FUNCTION {refuse_position}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'TB002',
        MESSAGE = 'twinbox: leave position and txid out of the INSERT; '
            || 'the log numbers its messages, and txid is the id of the inserting transaction';
END $$;
CREATE TRIGGER refuse_position BEFORE INSERT ON {outbox}
    FOR EACH ROW WHEN (NEW.txid IS DISTINCT FROM pg_current_xact_id() OR NEW.position <= 0)
    EXECUTE FUNCTION {refuse_position}();

-- A stored message may be blanked, and may get no other content: who blanks messages must not forge one.
CREATE FUNCTION {refuse_content}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'TB003',
        MESSAGE = 'twinbox: what is stored is only blanked: no other content takes its place';
END $$;
CREATE TRIGGER refuse_content BEFORE UPDATE OF payload, headers ON {outbox}
    FOR EACH ROW WHEN (octet_length(NEW.payload) > 0
        OR NEW.headers IS DISTINCT FROM chr(123) || '"twinbox-redacted":"true"' || chr(125))
    EXECUTE FUNCTION {refuse_content}();

-- Publishes from any language. The payload is text: a literal into bytea loses backslashes without an error,
-- and jsonb would change the bytes, and so the hash of the payload. It runs with the rights of its caller,
-- who needs those of the INSERT. It returns the id, which a producer has no right to read back.
CREATE FUNCTION {publish}(
    type text,
    key text,
    payload text,
    id text DEFAULT NULL,
    version bigint DEFAULT 1,
    subject text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    causation_id text DEFAULT NULL,
    traceparent text DEFAULT NULL,
    event_time timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY INVOKER AS $$
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
        RAISE EXCEPTION 'twinbox: the payload is not JSON'
            USING ERRCODE = 'invalid_text_representation', DETAIL = problem,
                HINT = 'publish_bytes(type, key, payload, content_type) takes anything else.';
    END;
    INSERT INTO {outbox} (id, type, version, key, subject, time, correlation_id, causation_id, traceparent,
        content_type, headers, payload)
    VALUES (event_id, type, version, key, subject, COALESCE(event_time, clock_timestamp()), correlation_id,
        causation_id, traceparent, 'application/json', headers::text, convert_to(payload, 'UTF8'::name));
    RETURN event_id;
END $$;

-- The same for a payload that is not JSON.
CREATE FUNCTION {publish_bytes}(
    type text,
    key text,
    payload bytea,
    content_type text,
    id text DEFAULT NULL,
    version bigint DEFAULT 1,
    subject text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    causation_id text DEFAULT NULL,
    traceparent text DEFAULT NULL,
    event_time timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    event_id text := COALESCE(id, gen_random_uuid()::text);
BEGIN
    INSERT INTO {outbox} (id, type, version, key, subject, time, correlation_id, causation_id, traceparent,
        content_type, headers, payload)
    VALUES (event_id, type, version, key, subject, COALESCE(event_time, clock_timestamp()), correlation_id,
        causation_id, traceparent, content_type, headers::text, payload);
    RETURN event_id;
END $$;

-- Snapshots that cut the log. A window holds the messages that became visible between two of them.
CREATE TABLE {ticks} (
    id bigint PRIMARY KEY,
    snapshot pg_snapshot NOT NULL,
    taken_at {point_in_time} NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO {ticks} (id, snapshot, taken_at) VALUES (0, '1:1:', 'epoch');

-- How far each reader has settled the log, and which process owns it. Rows are rewritten often, so each page
-- keeps room for that.
CREATE TABLE {cursors} (
    destination text PRIMARY KEY,
    -- The window, by the ids of its ticks. All messages before it are settled, and those inside it up to
    -- `position`.
    p bigint NOT NULL,
    w bigint NOT NULL,
    position bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL DEFAULT 0,
    owner uuid,
    lease_until {point_in_time} NOT NULL DEFAULT 'epoch',
    partitions bigint,
    -- The duration of the lease, in microseconds.
    lease bigint NOT NULL DEFAULT 0,
    -- The ticks of the window that is being read or searched. The settled window moves towards it.
    ahead_p bigint NOT NULL DEFAULT 0,
    ahead_w bigint NOT NULL DEFAULT 0,
    -- How many destinations the process of the owner owned when it wrote the row.
    owned bigint NOT NULL DEFAULT 0,
    -- The process with a smaller share that wishes for the lease, how many destinations it owns, and until
    -- when the wish counts. NULL: the owner has seen the end of the last wish.
    wished_by uuid,
    wisher_owned bigint,
    wished_until {point_in_time} NOT NULL DEFAULT 'epoch',
    -- Why an operator paused the destination. NULL: it is not paused.
    pause_reason text,
    -- When the destination was new.
    started_at {point_in_time},
    -- Where at its broker the destination has its messages, in a format of that broker.
    address text,
    CHECK (p <= w)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The secrets of destinations. A relay makes names for the broker with one, which nobody else can make.
CREATE TABLE {destination_secrets} (
    destination text PRIMARY KEY,
    secret bytea NOT NULL CHECK (length(secret) = 32)
);

-- The current run of the database server. Crash recovery and a promotion empty an unlogged table. Commits may
-- be lost then, so a process that relies on its memory must compare the run first.
CREATE UNLOGGED TABLE {server_run} (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
-- The start time counts as well: a clean stop keeps the row, and the data folder may be an older copy. NULL
-- before the first reader of a run has written the row, and on a standby, which cannot read it.
CREATE FUNCTION {server_run_id}() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT hashtextextended(id::text || extract(epoch FROM pg_postmaster_start_time())::text, 0::bigint)
        FROM {server_run}
    );
END $$;

-- Messages that a destination refused, and the later messages of their keys. The messages themselves stay in
-- the log. Waiting rows are tried again, those of one key in the order of their positions.
CREATE TABLE {parked_messages} (
    destination text NOT NULL,
    position bigint NOT NULL,
    key text,
    type text NOT NULL,
    state text NOT NULL CHECK (state IN ('waiting', 'dead', 'blocking')),
    -- Whether later messages of the key wait behind this one.
    blocks_key boolean NOT NULL,
    attempts bigint NOT NULL,
    next_attempt_at {point_in_time} NOT NULL,
    first_error text NOT NULL,
    last_error text NOT NULL,
    -- Groups messages that were given up for one cause.
    fingerprint text NOT NULL,
    parked_at {point_in_time} NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (destination, position)
);
CREATE INDEX parked_messages_waiting ON {parked_messages} (destination, position) WHERE state = 'waiting';
-- For messages without a key, which have no order.
CREATE INDEX parked_messages_keyless ON {parked_messages} (destination, next_attempt_at)
    WHERE state = 'waiting' AND key IS NULL;
-- For the lowest position of a key.
CREATE INDEX parked_messages_key ON {parked_messages} (destination, key, position) WHERE blocks_key = true;
CREATE INDEX parked_messages_blocking ON {parked_messages} (destination) WHERE state = 'blocking';
-- For dead letters and their groups: in order, and by time.
CREATE INDEX parked_messages_group ON {parked_messages} (destination, fingerprint, position)
    WHERE state <> 'waiting';
CREATE INDEX parked_messages_group_time ON {parked_messages} (destination, fingerprint, parked_at)
    WHERE state <> 'waiting';
-- For the purge, which keeps parked messages in the log.
CREATE INDEX parked_messages_position ON {parked_messages} (position);

-- Messages that enter the log later. They have the bounds of the log, so that none is refused then.
CREATE TABLE {delayed_messages} (
    insert_order bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    not_before {point_in_time} NOT NULL,
    -- For cancelling. A message without it cannot be cancelled.
    message_id uuid,
    id {event_id} NOT NULL DEFAULT gen_random_uuid()::text,
    type {event_type} NOT NULL,
    version {event_version} NOT NULL DEFAULT 1,
    key {event_key},
    subject {event_subject},
    -- NULL: the time at which it enters the log.
    time {point_in_time},
    correlation_id {event_reference},
    causation_id {event_reference},
    traceparent {event_traceparent},
    content_type {event_content_type} NOT NULL DEFAULT 'application/json',
    headers {event_headers},
    payload {event_payload} NOT NULL
);
CREATE INDEX delayed_messages_due ON {delayed_messages} (not_before, insert_order);
CREATE INDEX delayed_messages_message_id ON {delayed_messages} (message_id);
CREATE TRIGGER refuse_content BEFORE UPDATE OF payload, headers ON {delayed_messages}
    FOR EACH ROW WHEN (octet_length(NEW.payload) > 0
        OR NEW.headers IS DISTINCT FROM chr(123) || '"twinbox-redacted":"true"' || chr(125))
    EXECUTE FUNCTION {refuse_content}();

-- Replays: a range of the log again, to a destination that has settled it. Each has a cursor `replay:ID`.
CREATE TABLE {replays} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The name of the replay for brokers and inboxes. Ids start over in a restored database, tokens do not.
    token uuid NOT NULL UNIQUE,
    destination text NOT NULL,
    -- The one consumer that reprocesses the messages. NULL: a resend, and inboxes remove duplicates.
    consumer text,
    selection text NOT NULL CHECK (jsonb_typeof(selection::jsonb) = 'object'),
    -- How far the destination had settled the log when the replay was made. Later messages come by
    -- themselves.
    p bigint NOT NULL,
    w bigint NOT NULL,
    position bigint NOT NULL,
    -- The positions of the first and the last selected message, and the number of selected messages.
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    selected bigint NOT NULL,
    -- The most messages a second.
    rate bigint CHECK (rate > 0),
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    made_by text NOT NULL,
    reason text,
    made_at {point_in_time} NOT NULL DEFAULT now(),
    ended_at {point_in_time}
);
CREATE INDEX replays_running ON {replays} (destination, id) WHERE state = 'running';
