-- Idempotency keys that a client has made for its calls of vendors, one for each business action.
CREATE TABLE {client_keys} (
    -- What is called, such as `charges.create`, and for which business action, such as `order-7`.
    operation text NOT NULL CHECK (octet_length(operation) BETWEEN 1 AND 120),
    business_id text NOT NULL CHECK (octet_length(business_id) BETWEEN 1 AND 255),
    key uuid NOT NULL,
    -- 'sent': a call without a key of the vendor is under way, or may have acted.
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'done')),
    -- What the vendor calls the thing that it made.
    provider_ref text CHECK (octet_length(provider_ref) <= 255),
    created_at {point_in_time} NOT NULL DEFAULT now(),
    ended_at {point_in_time},
    PRIMARY KEY (operation, business_id)
);
-- For the purge.
CREATE INDEX client_keys_ended_at ON {client_keys} (ended_at) WHERE ended_at IS NOT NULL;
