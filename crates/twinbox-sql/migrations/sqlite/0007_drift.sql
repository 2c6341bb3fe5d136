-- What a comparison of the application's rows with their side effects has found, and other things that stay
-- undone for too long.
CREATE TABLE {drift_findings} (
    -- What was compared, such as `missing webhook.payment_captured per payments`.
    check_id TEXT NOT NULL CHECK (length(CAST(check_id AS BLOB)) BETWEEN 1 AND 512),
    -- The row, effect, operation or reader that it is about.
    object_id TEXT NOT NULL CHECK (length(CAST(object_id AS BLOB)) BETWEEN 1 AND 255),
    expected INTEGER,
    actual INTEGER,
    detail TEXT,
    -- The run that saw it last.
    run_id BLOB NOT NULL,
    first_seen INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    last_seen INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    -- When it no longer held. NULL: it holds.
    resolved_at INTEGER,
    PRIMARY KEY (check_id, object_id)
) STRICT;
CREATE INDEX {drift_findings_open} ON {drift_findings} (check_id, object_id) WHERE resolved_at IS NULL;
-- For the purge.
CREATE INDEX {drift_findings_resolved_at} ON {drift_findings} (resolved_at) WHERE resolved_at IS NOT NULL;
