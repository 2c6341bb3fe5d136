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
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled', 'failed')),
    -- The last dead letter that was looked at: its time, and its number or position.
    after_time {point_in_time} NOT NULL DEFAULT 'epoch',
    after_number bigint NOT NULL DEFAULT 0,
    looked_at bigint NOT NULL DEFAULT 0,
    changed bigint NOT NULL DEFAULT 0,
    -- Its entry in the audit, which gets the number of changed dead letters at the end.
    audit_id bigint NOT NULL UNIQUE,
    made_by text NOT NULL,
    reason text,
    -- Why it has failed: it cannot be read, and what it had changed stays changed.
    error text,
    -- Later dead letters are left alone.
    made_at {point_in_time} NOT NULL DEFAULT now(),
    ended_at {point_in_time},
    owner uuid,
    lease_until {point_in_time} NOT NULL DEFAULT 'epoch'
);
CREATE INDEX bulk_actions_running ON {bulk_actions} (id) WHERE state = 'running';

-- Who makes an action has just written its entry of the audit, in his own name, and it runs once: no act
-- hides behind the entry of somebody else, or behind an old one.
CREATE OR REPLACE FUNCTION {refuse_bulk_action}() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF EXISTS (
            SELECT
            FROM {audit} a
            WHERE a.id = NEW.audit_id AND a.operator = NEW.made_by AND a.database_user = session_user::text
                AND a.count IS NULL AND a.at > clock_timestamp() - interval '1 minute'
        ) THEN
            RETURN NULL;
        END IF;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'TB007',
        MESSAGE = 'twinbox: a bulk action has a new audit entry of its maker, and runs once';
END $$;
CREATE TRIGGER refuse_bulk_action AFTER INSERT ON {bulk_actions}
    FOR EACH ROW EXECUTE FUNCTION {refuse_bulk_action}();
CREATE TRIGGER refuse_second_run AFTER UPDATE OF state ON {bulk_actions}
    FOR EACH ROW WHEN (OLD.state <> 'running') EXECUTE FUNCTION {refuse_bulk_action}();
