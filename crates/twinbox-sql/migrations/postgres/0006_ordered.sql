-- How far a consumer that keeps the order of keys has settled each partition of a broker's log, and who reads it.
-- Rewritten often, so rows get room to stay in place.
CREATE TABLE {places} (
    consumer text NOT NULL,
    partition bigint NOT NULL,
    -- What is read of it. A place says nothing of other types.
    types text NOT NULL,
    -- Which log the sequence is of: another one of the same name begins anew.
    log text NOT NULL DEFAULT '',
    sequence bigint NOT NULL DEFAULT 0,
    -- Which message is there. Another one: the log has lost its end since.
    message text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,
    owner uuid,
    lease_until timestamptz NOT NULL DEFAULT 'epoch',
    -- How long that is, in microseconds.
    lease bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, partition)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The processes that share the partitions of a consumer.
CREATE TABLE {members} (
    consumer text NOT NULL,
    member uuid NOT NULL,
    lease_until timestamptz NOT NULL,
    -- How long that is, in microseconds.
    lease bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, member)
);

-- Whether a partition is still this owner's, until the transaction ends: a takeover waits for those who hold the lock,
-- and whoever gets it later sees the new epoch, because each statement in here sees what is committed by then. A
-- process that stands still must not hold the lock for long. An owner from before the server forgot is none.
CREATE FUNCTION {fence}(of_consumer text, of_partition bigint, of_epoch bigint, of_run bigint, idle_ms bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', idle_ms::text, true);
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('{places} ' || of_consumer, of_partition));
    RETURN {run_id}() IS NOT DISTINCT FROM of_run AND EXISTS (
        SELECT FROM {places} WHERE consumer = of_consumer AND partition = of_partition AND epoch = of_epoch);
END $$;

-- Deliveries that were put aside so that other keys go on, whole, because the broker is told that they are done.
CREATE TABLE {parked_deliveries} (
    -- In the order of delivery, within a key.
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer text NOT NULL,
    partition bigint NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT now(),
    message_id uuid NOT NULL,
    message_sequence bigint,
    event_id text NOT NULL,
    source text NOT NULL,
    type text NOT NULL,
    version bigint NOT NULL,
    key text,
    subject text,
    time timestamptz NOT NULL,
    correlation_id text,
    causation_id text,
    traceparent text,
    content_type text NOT NULL,
    headers text,
    payload bytea NOT NULL,
    UNIQUE (consumer, message_id)
);
-- For the first of a key, and for the keys of a partition.
CREATE INDEX parked_deliveries_key ON {parked_deliveries} (consumer, partition, key, id);
CREATE INDEX parked_deliveries_keyless ON {parked_deliveries} (consumer, partition, next_attempt_at) WHERE key IS NULL;
