-- Webhooks that have come in, so that one that comes again does nothing again. Not with the keys of requests: a sender's id
-- must not meet a caller's key.
CREATE TABLE {webhook_receipts} (
    provider TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    dedup_id TEXT NOT NULL,
    -- What the sender signed it in.
    dedup_basis TEXT NOT NULL CHECK (dedup_basis IN ('header', 'body', 'digest')),
    payload_hash BLOB NOT NULL,
    -- Which of the secrets it was signed with, by their order.
    secret INTEGER NOT NULL,
    received_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (provider, endpoint, dedup_id)
) STRICT;
-- For the purge.
CREATE INDEX {webhook_receipts_expires_at} ON {webhook_receipts} (expires_at);
