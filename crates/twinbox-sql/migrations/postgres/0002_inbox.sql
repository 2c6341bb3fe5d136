-- A domain: see the rules of columns of the log.
CREATE DOMAIN {inbox_state} AS text CHECK (VALUE IN ('processed', 'rejected', 'dead'));
-- Nobody else makes functions of these types, which would come before those of Postgres.
REVOKE USAGE ON TYPE {inbox_state} FROM PUBLIC;

-- One row for each message that a consumer has handled or given up.
CREATE TABLE {inbox} (
    consumer text NOT NULL,
    message_id uuid NOT NULL,
    source text NOT NULL,
    event_id text NOT NULL,
    payload_hash bytea NOT NULL,
    state {inbox_state} NOT NULL,
    -- No earlier than `time`, whatever the clock of the producer shows.
    claimed_at {point_in_time} NOT NULL DEFAULT now(),
    -- The time of the message.
    time {point_in_time},
    PRIMARY KEY (consumer, message_id)
);
-- For the oldest claims of a consumer.
CREATE INDEX inbox_claimed_at ON {inbox} (consumer, claimed_at);

-- Refuses a COMMIT that does not come from the runtime. Without it a raw COMMIT inside a handler would keep
-- the claim, and the redelivery of the half-handled message would be a duplicate.
CREATE FUNCTION {refuse_commit}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('twinbox.commit', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
        RAISE EXCEPTION 'twinbox: a handler must not COMMIT; its runtime does' USING ERRCODE = 'TB001';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT ON {inbox}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {refuse_commit}();

-- Failures of messages that may be handled yet.
CREATE TABLE {attempts} (
    consumer text NOT NULL,
    message_id uuid NOT NULL,
    failures bigint NOT NULL,
    last_error text NOT NULL,
    first_failed_at {point_in_time} NOT NULL DEFAULT now(),
    last_failed_at {point_in_time} NOT NULL DEFAULT now(),
    -- Starts of the handler without a known end. The first may have run beside other messages, each later one
    -- ran alone.
    starts bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, message_id)
);

-- Messages that a consumer gave up, in full.
CREATE TABLE {dead_letters} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer text NOT NULL,
    message_id uuid NOT NULL,
    reason text NOT NULL,
    error text NOT NULL,
    -- Groups dead letters of one cause: a hash of their type, their reason and their error without numbers.
    fingerprint text NOT NULL,
    attempts bigint NOT NULL,
    given_up_at {point_in_time} NOT NULL DEFAULT now(),
    event_id text NOT NULL,
    source text NOT NULL,
    type text NOT NULL,
    version bigint NOT NULL,
    key text,
    subject text,
    time {point_in_time} NOT NULL,
    sequence bigint,
    correlation_id text,
    causation_id text,
    traceparent text,
    content_type text NOT NULL,
    headers text,
    payload bytea NOT NULL,
    -- When it is redriven, and how often at most. An attempt is counted before it is made.
    redrive_at {point_in_time},
    redrive_attempts_left bigint NOT NULL DEFAULT 0
);
CREATE INDEX dead_letters_consumer ON {dead_letters} (consumer, given_up_at, id);
-- For the groups of a consumer. It holds all that their counts read.
CREATE INDEX dead_letters_group
    ON {dead_letters} (consumer, fingerprint, given_up_at, id, redrive_attempts_left);
-- For the dead letters of a message.
CREATE INDEX dead_letters_event ON {dead_letters} (event_id);
CREATE INDEX dead_letters_redrive ON {dead_letters} (consumer, redrive_at) WHERE redrive_attempts_left > 0;

-- How far a consumer with `order = "key"` has settled each partition of a broker's log, and which process
-- owns it. Rows are rewritten often, so each page keeps room for that.
CREATE TABLE {partition_leases} (
    consumer text NOT NULL,
    partition bigint NOT NULL,
    -- The types that the consumer reads. The sequence means nothing for other types.
    types text NOT NULL,
    -- The log of the sequence. Another log of the same name is read from its beginning.
    log text NOT NULL DEFAULT '',
    sequence bigint NOT NULL DEFAULT 0,
    -- The message at this sequence. If the log has another one there, it has lost its end.
    last_message text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,
    owner uuid,
    lease_until {point_in_time} NOT NULL DEFAULT 'epoch',
    -- The duration of the lease, in microseconds.
    lease bigint NOT NULL DEFAULT 0,
    -- The number of the advisory lock of the partition: random, so that nobody makes it who may not read it.
    lock_number bigint NOT NULL DEFAULT
        ('x' || left(encode(sha256(uuid_send(gen_random_uuid())), 'hex'), 16))::bit(64)::bigint,
    PRIMARY KEY (consumer, partition)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The processes that share the partitions of a consumer.
CREATE TABLE {partition_members} (
    consumer text NOT NULL,
    member uuid NOT NULL,
    lease_until {point_in_time} NOT NULL,
    -- The duration of the lease, in microseconds.
    lease bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, member)
);

-- Makes the server end a statement, or a pause between two, that takes longer, until the transaction ends: a
-- process that stands still or has lost its power ends neither. A smaller bound of the session stays.
CREATE FUNCTION {bound_session}(ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    bound text;
BEGIN
    bound := current_setting('statement_timeout');
    IF bound = '0' OR bound::interval > ms::double precision * interval '1 millisecond' THEN
        bound := set_config('statement_timeout', ms::text, true);
    END IF;
    bound := current_setting('idle_in_transaction_session_timeout');
    IF bound = '0' OR bound::interval > ms::double precision * interval '1 millisecond' THEN
        bound := set_config('idle_in_transaction_session_timeout', ms::text, true);
    END IF;
    RETURN true;
END $$;

-- Returns whether an owner still has its partition, and keeps that so until the transaction ends. A takeover
-- waits for the lock. A claim that gets the lock later sees the new epoch, because each statement in here
-- sees what is committed by then. A process that stands still must not hold the lock for long. An owner of
-- another server run has lost its partition. Without a partition only the run counts, and without a run
-- nothing.
CREATE FUNCTION {fence}(
    of_consumer text,
    of_partition bigint,
    of_epoch bigint,
    of_run bigint,
    bound_ms bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    is_bounded boolean := bound_ms IS NULL OR {bound_session}(bound_ms);
BEGIN
    IF of_partition IS NULL THEN
        RETURN of_run IS NULL OR {server_run_id}() IS NOT DISTINCT FROM of_run;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(lock_number)
    FROM {partition_leases}
    WHERE consumer = of_consumer AND partition = of_partition;
    RETURN {server_run_id}() IS NOT DISTINCT FROM of_run AND EXISTS (
        SELECT
        FROM {partition_leases}
        WHERE consumer = of_consumer AND partition = of_partition AND epoch = of_epoch
    );
END $$;

-- Deliveries that a consumer parked so that other keys continue. They are kept in full, because the broker
-- forgets them.
CREATE TABLE {parked_deliveries} (
    -- In the order of delivery, within a key.
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer text NOT NULL,
    partition bigint NOT NULL,
    next_attempt_at {point_in_time} NOT NULL,
    parked_at {point_in_time} NOT NULL DEFAULT now(),
    message_id uuid NOT NULL,
    sequence bigint,
    event_id text NOT NULL,
    source text NOT NULL,
    type text NOT NULL,
    version bigint NOT NULL,
    key text,
    subject text,
    time {point_in_time} NOT NULL,
    correlation_id text,
    causation_id text,
    traceparent text,
    content_type text NOT NULL,
    headers text,
    payload bytea NOT NULL,
    UNIQUE (consumer, message_id)
);
-- For the first delivery of a key, and for the keys of a partition.
CREATE INDEX parked_deliveries_key ON {parked_deliveries} (consumer, partition, key, id);
CREATE INDEX parked_deliveries_keyless ON {parked_deliveries} (consumer, partition, next_attempt_at)
    WHERE key IS NULL;
CREATE TRIGGER refuse_content BEFORE UPDATE OF payload, headers ON {parked_deliveries}
    FOR EACH ROW WHEN (octet_length(NEW.payload) > 0
        OR NEW.headers IS DISTINCT FROM chr(123) || '"twinbox-redacted":"true"' || chr(125))
    EXECUTE FUNCTION {refuse_content}();
CREATE TRIGGER refuse_content BEFORE UPDATE OF payload, headers ON {dead_letters}
    FOR EACH ROW WHEN (octet_length(NEW.payload) > 0
        OR NEW.headers IS DISTINCT FROM chr(123) || '"twinbox-redacted":"true"' || chr(125))
    EXECUTE FUNCTION {refuse_content}();

-- The time of the newest message whose claim was deleted. A message that is no newer and has no claim may
-- have been handled or not.
CREATE TABLE {purge_marks} (
    consumer text PRIMARY KEY,
    time {point_in_time} NOT NULL
);

-- Returns the purge mark as of now. The insert of a claim calls it, after any wait: the mark is moved before
-- the first claim is deleted, and a volatile function reads anew.
CREATE FUNCTION {purge_mark}(of_consumer text) RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT time FROM {purge_marks} WHERE consumer = of_consumer);
END $$;

-- Claims that a replay took back, so that a message runs again: once for each replay.
CREATE TABLE {superseded_claims} (
    consumer text NOT NULL,
    message_id uuid NOT NULL,
    -- The token of the replay.
    replay uuid NOT NULL,
    -- The claim, if there was one.
    state text,
    payload_hash bytea,
    claimed_at {point_in_time},
    superseded_at {point_in_time} NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id, replay)
);

-- Consumers that have run on this database.
CREATE TABLE {consumers} (
    consumer text PRIMARY KEY,
    seen_at {point_in_time} NOT NULL DEFAULT now(),
    -- Why an operator paused the consumer. NULL: it is not paused.
    pause_reason text,
    -- Where at its broker the consumer has its messages, in a format of that broker.
    address text
);
