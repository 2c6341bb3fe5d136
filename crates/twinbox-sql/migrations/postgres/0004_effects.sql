-- Side effects: acts outside the database. A row is planned in the transaction that wants the act. A
-- dispatcher sends its request later.
CREATE TABLE {side_effects} (
    -- The order of effects with one key.
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Derived from source_id and kind. NULL until a dispatcher has seen a row that was planned in SQL.
    id uuid UNIQUE,
    -- What wants the act: a message, an operation, a row of the application.
    source_id uuid NOT NULL,
    -- `base` or `base:qualifier`, such as `email.welcome` or `webhook.paid:ep_42`.
    kind text NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 255 AND kind NOT LIKE ':%'),
    vendor text NOT NULL CHECK (octet_length(vendor) BETWEEN 1 AND 120),
    -- Effects of one vendor and key are sent one after another. NULL: in no order.
    key text CHECK (octet_length(key) BETWEEN 1 AND 255),
    -- 'pending': the vendor has done nothing. 'fired': it was sent, and no answer is known yet.
    state text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'fired', 'confirmed', 'unknown', 'failed', 'compensated')),
    -- The request as it was planned. Credentials are not part of it.
    method text NOT NULL DEFAULT 'POST' CHECK (octet_length(method) BETWEEN 1 AND 16),
    target text NOT NULL DEFAULT '' CHECK (octet_length(target) <= 2048),
    content_type text NOT NULL DEFAULT 'application/json' CHECK (octet_length(content_type) <= 255),
    headers text CHECK (octet_length(headers) <= 65536 AND jsonb_typeof(headers::jsonb) = 'object'),
    request bytea NOT NULL CHECK (octet_length(request) <= 983040),
    -- The headers of the codec that encoded the request, as a JSON object. NULL: it is not encoded.
    codec_headers text,
    correlation_id text CHECK (octet_length(correlation_id) <= 255),
    traceparent text CHECK (octet_length(traceparent) <= 55),
    -- The effect that this one compensates.
    compensates bigint,
    -- Counts up only after it is known that the vendor did nothing. Each generation has a key of its own.
    generation bigint NOT NULL DEFAULT 0,
    -- The key for the vendor. NULL: this generation was never sent.
    idempotency_key text,
    -- How long the vendor surely remembers the key. NULL: it was never sent, or the vendor knows no keys.
    provider_key_expires_at {point_in_time},
    -- How often the request was sent, and how many of these sends failed.
    attempts bigint NOT NULL DEFAULT 0,
    failures bigint NOT NULL DEFAULT 0,
    -- The process that sends it. `next_attempt_at` is the end of its lease.
    owner uuid,
    -- When a dispatcher looks at the row next. NULL: it has ended, or waits for an earlier one of its key.
    next_attempt_at {point_in_time} DEFAULT now(),
    first_fired_at {point_in_time},
    fired_at {point_in_time},
    -- NULL while it is open. An unknown effect is open until a person has resolved it.
    ended_at {point_in_time},
    -- What the vendor calls the thing that it made.
    provider_ref text,
    http_code bigint,
    error_code text,
    last_error text,
    created_at {point_in_time} NOT NULL DEFAULT now(),
    UNIQUE (source_id, kind)
) WITH (fillfactor = 70);
CREATE INDEX side_effects_due ON {side_effects} (vendor, next_attempt_at, position)
    WHERE next_attempt_at IS NOT NULL;
-- For the first open effect of a key.
CREATE INDEX side_effects_key ON {side_effects} (vendor, key, position)
    WHERE key IS NOT NULL AND ended_at IS NULL;
-- For operators.
CREATE INDEX side_effects_problem ON {side_effects} (state, position) WHERE state IN ('unknown', 'failed');
-- For the purge.
CREATE INDEX side_effects_ended_at ON {side_effects} (ended_at) WHERE ended_at IS NOT NULL;

-- Plans a side effect from any language. It returns false if the source has an effect of this kind, and fails
-- if that one has another request. The request is text: a literal into bytea loses backslashes without an
-- error. It runs with the rights of its caller, who needs those of the INSERT.
CREATE FUNCTION {plan_effect}(
    source_id uuid,
    kind text,
    vendor text,
    request text,
    target text DEFAULT '',
    key text DEFAULT NULL,
    method text DEFAULT 'POST',
    content_type text DEFAULT 'application/json',
    headers jsonb DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    traceparent text DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY INVOKER AS $$
DECLARE
    is_another boolean;
BEGIN
    INSERT INTO {side_effects} (source_id, kind, vendor, request, target, key, method, content_type, headers,
        correlation_id, traceparent)
    VALUES (source_id, kind, vendor, convert_to(request, 'UTF8'::name), target, key, method, content_type,
        headers::text, correlation_id, traceparent)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    -- Who may only insert cannot compare, and nobody can compare with a request that is encoded.
    BEGIN
        is_another := EXISTS (
            SELECT
            FROM {side_effects} e
            WHERE e.source_id = plan_effect.source_id
                AND e.kind = plan_effect.kind
                AND e.codec_headers IS NULL
                AND (
                    e.vendor <> plan_effect.vendor
                    OR e.request <> convert_to(plan_effect.request, 'UTF8'::name)
                    OR e.target <> plan_effect.target
                    OR e.key IS DISTINCT FROM plan_effect.key
                    OR e.method <> plan_effect.method
                    OR e.content_type <> plan_effect.content_type
                    OR e.headers::jsonb IS DISTINCT FROM plan_effect.headers
                )
        );
    EXCEPTION WHEN insufficient_privilege THEN
        RETURN false;
    END;
    IF is_another THEN
        RAISE EXCEPTION 'twinbox: the source % has an effect % with another request, which stays',
            source_id, kind USING ERRCODE = 'TB005';
    END IF;
    RETURN false;
END $$;

-- Vendors that must not be called for now.
CREATE TABLE {vendors} (
    vendor text PRIMARY KEY,
    -- The vendor asked for no call before this time.
    closed_until {point_in_time} NOT NULL DEFAULT 'epoch',
    -- Why an operator paused the vendor. NULL: it is not paused.
    pause_reason text
);
