-- What operations with a key ended with, so that asking again does nothing again.
CREATE TABLE {idempotency_keys} (
    -- SHA-256 of tenant, principal, scope and key, each with its length: fits an index whatever they are.
    slot bytea PRIMARY KEY CHECK (octet_length(slot) = 32),
    tenant text NOT NULL,
    principal text NOT NULL,
    scope text NOT NULL,
    key text NOT NULL,
    request_hash bytea NOT NULL,
    -- The algorithm, and the members that it left out, so that later releases compare by the same.
    hash_alg text NOT NULL,
    -- 'failed': a failure that is final, and given again like a success.
    status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'complete', 'failed')),
    http_code bigint,
    response_headers bytea,
    response_body bytea,
    body_kind text NOT NULL DEFAULT 'omitted' CHECK (body_kind IN ('inline', 'ref', 'omitted')),
    result_ref text,
    -- How the body was encoded, as a JSON object of the headers of the codec. NULL: it was not.
    codec_headers text,
    -- Of one that somebody works on without a transaction: who, until when, and how far it has come.
    owner uuid,
    lease_until timestamptz,
    recovery_point text,
    -- Which tokens for vendors were given out, and when: a JSON object of microseconds since 1970. NULL: none was.
    tokens text,
    -- Something may have been done outside, and no answer tells, or one that gave up. Such a row never expires.
    unfinished boolean NOT NULL
        GENERATED ALWAYS AS ((status = 'pending' OR status = 'failed' AND http_code >= 500)
            AND (recovery_point IS NOT NULL OR tokens IS NOT NULL)) STORED,
    attempts bigint NOT NULL DEFAULT 1,
    -- Of these, those that nobody has failed in.
    uncounted bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
-- For the purge.
CREATE INDEX idempotency_keys_expires_at ON {idempotency_keys} (expires_at);
-- For quotas.
CREATE INDEX idempotency_keys_principal ON {idempotency_keys} (tenant, principal, expires_at);
-- For operators.
CREATE INDEX idempotency_keys_key ON {idempotency_keys} (scope, key);
-- Refuses a COMMIT that does not come from the runtime, in the transaction in which the operation ends. No WHEN clause: the
-- server would read it anew for each statement.
CREATE FUNCTION {refuse_commit_of_key}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.owner IS NULL
        AND current_setting('twinbox.commit', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
        RAISE EXCEPTION 'twinbox: a handler must not COMMIT; its runtime does' USING ERRCODE = 'TB001';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT OR UPDATE OF owner ON {idempotency_keys}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {refuse_commit_of_key}();
-- For operators too. Rows enter it only when a vendor may have been called.
CREATE INDEX idempotency_keys_unfinished ON {idempotency_keys} (updated_at) WHERE unfinished;
-- What operators may see: no key, no answer.
CREATE VIEW {idempotency_audit} AS
    SELECT left(encode(slot, 'hex'), 8) AS slot, tenant, principal, scope, hash_alg, status, http_code, body_kind,
        octet_length(response_body) AS body_bytes, result_ref, owner, lease_until, recovery_point, tokens, unfinished,
        attempts, created_at, updated_at, expires_at
    FROM {idempotency_keys};
