-- What a comparison of the application's rows with their side effects has found, and other things that stay
-- undone for too long.
CREATE TABLE {drift_findings} (
    -- What was compared, such as `missing webhook.payment_captured per payments`.
    check_id text NOT NULL CHECK (octet_length(check_id) BETWEEN 1 AND 512),
    -- The row, effect, operation or reader that it is about.
    object_id text NOT NULL CHECK (octet_length(object_id) BETWEEN 1 AND 255),
    expected bigint,
    actual bigint,
    detail text,
    -- The run that saw it last.
    run_id uuid NOT NULL,
    first_seen {point_in_time} NOT NULL DEFAULT now(),
    last_seen {point_in_time} NOT NULL DEFAULT now(),
    -- When it no longer held. NULL: it holds.
    resolved_at {point_in_time},
    PRIMARY KEY (check_id, object_id)
);
CREATE INDEX drift_findings_open ON {drift_findings} (check_id, object_id) WHERE resolved_at IS NULL;
-- For the purge.
CREATE INDEX drift_findings_resolved_at ON {drift_findings} (resolved_at) WHERE resolved_at IS NOT NULL;
