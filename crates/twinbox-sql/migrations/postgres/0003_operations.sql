-- Domains: see the rules of columns of the log.
CREATE DOMAIN {operation_slot} AS bytea CHECK (octet_length(VALUE) = 32);
CREATE DOMAIN {operation_status} AS text CHECK (VALUE IN ('pending', 'complete', 'failed'));
CREATE DOMAIN {body_kind} AS text CHECK (VALUE IN ('inline', 'ref', 'omitted'));
-- Nobody else makes functions of these types, which would come before those of Postgres.
REVOKE USAGE ON TYPE {operation_slot}, {operation_status}, {body_kind} FROM PUBLIC;

-- Responses of operations with an idempotency key. A retry gets the stored response and runs nothing.
CREATE TABLE {idempotency_keys} (
    -- SHA-256 of tenant, principal, scope and key, each with its length. So it fits an index.
    slot {operation_slot} PRIMARY KEY,
    tenant text NOT NULL,
    principal text NOT NULL,
    scope text NOT NULL,
    key text NOT NULL,
    request_hash bytea NOT NULL,
    -- The algorithm, and the members that it left out. Later releases compare requests by the same.
    hash_alg text NOT NULL,
    -- 'failed': a final failure. A retry gets it like a success.
    status {operation_status} NOT NULL DEFAULT 'pending',
    http_code bigint,
    response_headers bytea,
    response_body bytea,
    body_kind {body_kind} NOT NULL DEFAULT 'omitted',
    result_ref text,
    -- The headers of the codec that encoded the body, as a JSON object. NULL: it is not encoded.
    codec_headers text,
    -- The lease of an operation that runs outside a transaction: its owner, its end, and how far it has come.
    owner uuid,
    lease_until {point_in_time},
    recovery_point text,
    -- The tokens for vendors and their times: a JSON object of microseconds since 1970. NULL: none was made.
    tokens text,
    -- Whether a vendor may have been called without a final response. Such a row never expires.
    unfinished boolean NOT NULL
        GENERATED ALWAYS AS (
            (status = 'pending' OR status = 'failed' AND http_code >= 500)
            AND (recovery_point IS NOT NULL OR tokens IS NOT NULL)
        ) STORED,
    attempts bigint NOT NULL DEFAULT 1,
    -- Attempts among these that ended without a failure.
    uncounted_attempts bigint NOT NULL DEFAULT 0,
    created_at {point_in_time} NOT NULL DEFAULT now(),
    updated_at {point_in_time} NOT NULL DEFAULT now(),
    expires_at {point_in_time} NOT NULL
);
-- For the purge.
CREATE INDEX idempotency_keys_expires_at ON {idempotency_keys} (expires_at);
-- For quotas.
CREATE INDEX idempotency_keys_principal ON {idempotency_keys} (tenant, principal, expires_at);
-- For operators.
CREATE INDEX idempotency_keys_key ON {idempotency_keys} (scope, key);
-- For operators too. It has a row only if a vendor may have been called. Not by the time of the last change:
-- an UPDATE of an indexed column makes the server write the row into every index again.
CREATE INDEX idempotency_keys_unfinished ON {idempotency_keys} (created_at) WHERE unfinished;

-- Refuses a COMMIT that does not come from the runtime, in the transaction in which the operation ends. No
-- WHEN clause: the server would read it anew for each statement.
CREATE FUNCTION {refuse_operation_commit}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.owner IS NULL
        AND current_setting('twinbox.commit', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
        RAISE EXCEPTION 'twinbox: a handler must not COMMIT; its runtime does' USING ERRCODE = 'TB001';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT OR UPDATE OF owner ON {idempotency_keys}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {refuse_operation_commit}();

-- Who blanks an operation has no right on its response: a retry would get what he writes. He writes the
-- principal and the key, and the trigger blanks the rest, once the operation has ended. The end itself writes
-- neither of the two, so the trigger does not run there.
CREATE FUNCTION {blank_response}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.principal = '' AND NEW.key = '' AND NEW.status <> 'pending' THEN
        NEW.response_headers := NULL;
        NEW.response_body := NULL;
        NEW.body_kind := 'omitted';
        NEW.result_ref := NULL;
        NEW.codec_headers := NULL;
        NEW.recovery_point := NULL;
    -- Who takes a key may write all of it.
    ELSIF NOT has_column_privilege(TG_RELID, 'status'::text, 'UPDATE'::text) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'TB003',
            MESSAGE = 'twinbox: what is stored is only blanked, after its operation has ended';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER blank_response BEFORE UPDATE OF principal, key ON {idempotency_keys}
    FOR EACH ROW EXECUTE FUNCTION {blank_response}();

-- What operators may read: no key and no response.
CREATE VIEW {idempotency_audit} AS
    SELECT
        left(encode(slot, 'hex'), 8) AS slot,
        tenant,
        principal,
        scope,
        hash_alg,
        status,
        http_code,
        body_kind,
        octet_length(response_body) AS body_bytes,
        result_ref,
        owner,
        lease_until,
        recovery_point,
        tokens,
        unfinished,
        attempts,
        created_at,
        updated_at,
        expires_at
    FROM {idempotency_keys};

-- Webhooks that were received, so that a repeated one runs nothing. They are not among the idempotency keys:
-- the id of a sender must not meet the key of a caller.
CREATE TABLE {webhook_receipts} (
    provider text NOT NULL,
    endpoint text NOT NULL,
    dedup_id text NOT NULL,
    -- The signed part of the request that the id is from.
    dedup_basis text NOT NULL CHECK (dedup_basis IN ('header', 'body', 'digest')),
    payload_hash bytea NOT NULL,
    -- The index of the secret that verified the signature.
    secret_index bigint NOT NULL,
    received_at {point_in_time} NOT NULL DEFAULT now(),
    expires_at {point_in_time} NOT NULL,
    PRIMARY KEY (provider, endpoint, dedup_id)
);
-- For the purge.
CREATE INDEX webhook_receipts_expires_at ON {webhook_receipts} (expires_at);
CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT OR UPDATE OF received_at ON {webhook_receipts}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {refuse_commit}();

-- Changes by operators. A row is written before the change, and completed after it.
CREATE TABLE {audit} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at {point_in_time} NOT NULL DEFAULT clock_timestamp(),
    -- As the operator says, and as the database knows.
    operator text NOT NULL,
    database_user text NOT NULL DEFAULT session_user::text,
    command text NOT NULL,
    -- What the command changed: a destination, a consumer, a key.
    target text NOT NULL,
    reason text,
    -- The number of changed rows. NULL: the command has no known end.
    count bigint
);
-- The end of an act is written once, by the role that began it. The end of a bulk action is written by who
-- has carried it out or cancelled it, and is the number of its row. The path is fixed, so that no session
-- puts an operator of its own in the place of ours.
CREATE FUNCTION {refuse_audit_count}() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF OLD.count IS NULL AND COALESCE(
        (
            SELECT b.state <> 'running' AND b.changed = NEW.count
            FROM {bulk_actions} b
            WHERE b.audit_id = OLD.id
        ),
        OLD.database_user = session_user::text
    ) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'TB006',
        MESSAGE = 'twinbox: the count of an audit entry is written once, by the role that made it';
END $$;
CREATE TRIGGER refuse_audit_count BEFORE UPDATE OF count ON {audit}
    FOR EACH ROW EXECUTE FUNCTION {refuse_audit_count}();
