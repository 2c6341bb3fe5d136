-- Messages that wait for their time, with what will be written to the log. They are bounded as the log is, so
-- that none is refused when its time comes.
CREATE TABLE {delayed} (
    nth bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    not_before timestamptz NOT NULL CHECK (isfinite(not_before)),
    -- For cancelling. Without it a message waits like any other.
    message_id uuid,
    id text NOT NULL DEFAULT gen_random_uuid()::text CHECK (octet_length(id) BETWEEN 1 AND 255),
    type text NOT NULL CHECK (octet_length(type) <= 128 AND type ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$'),
    version bigint NOT NULL DEFAULT 1 CHECK (version BETWEEN 1 AND 4294967295),
    key text CHECK (octet_length(key) <= 255),
    subject text CHECK (octet_length(subject) <= 1024),
    -- None: when it is moved to the log.
    time timestamptz CHECK (isfinite(time)),
    correlation_id text CHECK (octet_length(correlation_id) <= 255),
    causation_id text CHECK (octet_length(causation_id) <= 255),
    traceparent text CHECK (octet_length(traceparent) <= 55),
    content_type text NOT NULL DEFAULT 'application/json' CHECK (octet_length(content_type) <= 255),
    headers text CHECK (octet_length(headers) <= 65536 AND jsonb_typeof(headers::jsonb) = 'object'),
    payload bytea NOT NULL CHECK (octet_length(payload) <= 983040)
);
CREATE INDEX delayed_due ON {delayed} (not_before, nth);
CREATE INDEX delayed_message_id ON {delayed} (message_id);
