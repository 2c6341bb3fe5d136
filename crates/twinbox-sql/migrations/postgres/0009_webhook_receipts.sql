-- Webhooks that have come in, so that one that comes again does nothing again. Not with the keys of requests: a sender's id
-- must not meet a caller's key.
CREATE TABLE {webhook_receipts} (
    provider text NOT NULL,
    endpoint text NOT NULL,
    dedup_id text NOT NULL,
    -- What the sender signed it in.
    dedup_basis text NOT NULL CHECK (dedup_basis IN ('header', 'body', 'digest')),
    payload_hash bytea NOT NULL,
    -- Which of the secrets it was signed with, by their order.
    secret bigint NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (provider, endpoint, dedup_id)
);
-- For the purge.
CREATE INDEX webhook_receipts_expires_at ON {webhook_receipts} (expires_at);
CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT OR UPDATE OF received_at ON {webhook_receipts}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {refuse_commit}();
