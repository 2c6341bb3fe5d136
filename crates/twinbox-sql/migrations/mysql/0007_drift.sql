-- What a comparison of the application's rows with their side effects has found, and other things that stay
-- undone for too long.
CREATE TABLE IF NOT EXISTS {drift_findings} (
    -- What was compared, such as `missing webhook.payment_captured per payments`.
    check_id VARBINARY(512) NOT NULL CHECK (LENGTH(check_id) >= 1),
    -- The row, effect, operation or reader that it is about.
    object_id VARBINARY(255) NOT NULL CHECK (LENGTH(object_id) >= 1),
    expected BIGINT,
    actual BIGINT,
    detail TEXT,
    -- The run that saw it last.
    run_id BINARY(16) NOT NULL,
    first_seen DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(first_seen) * DAYOFMONTH(first_seen) > 0
            AND DAYOFMONTH(first_seen) <= COALESCE(DAYOFMONTH(LAST_DAY(first_seen)), 0)),
    last_seen DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        CHECK (MONTH(last_seen) * DAYOFMONTH(last_seen) > 0
            AND DAYOFMONTH(last_seen) <= COALESCE(DAYOFMONTH(LAST_DAY(last_seen)), 0)),
    -- When it no longer held. NULL: it holds.
    resolved_at DATETIME(6) CHECK (MONTH(resolved_at) * DAYOFMONTH(resolved_at) > 0
        AND DAYOFMONTH(resolved_at) <= COALESCE(DAYOFMONTH(LAST_DAY(resolved_at)), 0)),
    PRIMARY KEY (check_id, object_id),
    -- For open findings, in the order of their objects, and for the purge.
    INDEX drift_findings_open (resolved_at, check_id, object_id)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
