-- Idempotency keys that a client has made for its calls of vendors, one for each business action.
CREATE TABLE {client_keys} (
    -- What is called, such as `charges.create`, and for which business action, such as `order-7`.
    operation TEXT NOT NULL CHECK (length(CAST(operation AS BLOB)) BETWEEN 1 AND 120),
    business_id TEXT NOT NULL CHECK (length(CAST(business_id AS BLOB)) BETWEEN 1 AND 255),
    key BLOB NOT NULL CHECK (length(key) = 16),
    -- 'sent': a call without a key of the vendor is under way, or may have acted.
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'done')),
    -- What the vendor calls the thing that it made.
    provider_ref TEXT CHECK (length(CAST(provider_ref AS BLOB)) <= 255),
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    ended_at INTEGER,
    PRIMARY KEY (operation, business_id)
) STRICT;
-- For the purge.
CREATE INDEX {client_keys_ended_at} ON {client_keys} (ended_at) WHERE ended_at IS NOT NULL;
