-- Acts of operators on all dead letters that match a filter. Relays and consumers carry them out, in small
-- transactions, each of which also moves the place of its row.
CREATE TABLE {bulk_actions} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action text NOT NULL CHECK (action IN ('redrive', 'discard')),
    -- The dead letters, as a filter in JSON. It names one consumer or one destination.
    filter text NOT NULL CHECK (jsonb_typeof(filter::jsonb) = 'object'),
    -- The time between two redriven dead letters, in microseconds.
    spacing bigint NOT NULL CHECK (spacing >= 0),
    -- How many dead letters matched when it was planned, counted up to a limit.
    planned bigint NOT NULL,
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled')),
    -- The last dead letter that was looked at: its time, and its number or position.
    after_time timestamptz NOT NULL DEFAULT 'epoch',
    after_number bigint NOT NULL DEFAULT 0,
    looked_at bigint NOT NULL DEFAULT 0,
    changed bigint NOT NULL DEFAULT 0,
    -- Its entry in the audit, which gets the number of changed dead letters at the end.
    audit_id bigint NOT NULL,
    made_by text NOT NULL,
    reason text,
    -- Later dead letters are left alone.
    made_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    owner uuid,
    lease_until timestamptz NOT NULL DEFAULT 'epoch'
);
CREATE INDEX bulk_actions_running ON {bulk_actions} (id) WHERE state = 'running';
