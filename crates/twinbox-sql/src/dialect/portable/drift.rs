//! Drift between the application's rows and their side effects.
use crate::texts::Drift;

/// Effects of a state that waits for a person. With the condition of the index, which SQLite would not use
/// without it.
#[rustfmt::skip]
macro_rules! stuck {
    ($state:literal) => {
        concat!("
        SELECT position, kind, vendor, state
        FROM {side_effects}
        WHERE state = '", $state, "' AND state IN ('unknown', 'failed')
            AND COALESCE(fired_at, created_at) <= (SELECT {after -?})
        ORDER BY position
        LIMIT ?")
    };
}

pub(in crate::dialect) const DRIFT: Drift = Drift {
    positions: "
        SELECT (SELECT min(position) FROM {side_effects}) AS lowest,
            (SELECT max(position) FROM {side_effects}) AS highest",
    due_vendors: "
        WITH RECURSIVE due (vendor) AS (
            SELECT min(vendor)
            FROM {side_effects}
            WHERE next_attempt_at IS NOT NULL
            UNION ALL
            SELECT (
                SELECT min(e.vendor)
                FROM {side_effects} e
                WHERE e.vendor > due.vendor AND e.next_attempt_at IS NOT NULL)
            FROM due
            WHERE due.vendor IS NOT NULL
        )
        SELECT vendor
        FROM due
        WHERE vendor IS NOT NULL
        LIMIT ?",
    overdue: "
        SELECT position, kind, vendor, state
        FROM {side_effects}
        WHERE vendor = ? AND next_attempt_at <= (SELECT {after -?})
        ORDER BY next_attempt_at, position
        LIMIT ?",
    unknown: stuck!("unknown"),
    failed: stuck!("failed"),
    unfinished: "
        SELECT slot, scope
        FROM {idempotency_keys}
        WHERE {is_unfinished} AND created_at <= (SELECT {after -?}) AND updated_at <= (SELECT {after -?})
        ORDER BY created_at
        LIMIT ?",
    first_expiry: "
        SELECT {until expires_at} AS expires_in
        FROM {idempotency_keys}
        WHERE NOT unfinished
        ORDER BY expires_at
        LIMIT 1",
    failing: "
        SELECT consumer, message_id, failures
        FROM {attempts}
        WHERE failures > 0 AND first_failed_at <= (SELECT {after -?})
        LIMIT ?",
    write: "
        INSERT INTO {drift_findings} AS f (check_id, object_id, expected, actual, detail, run_id)
        VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (check_id, object_id) DO UPDATE
        SET expected = excluded.expected, actual = excluded.actual, detail = excluded.detail,
            run_id = excluded.run_id, last_seen = {now}, resolved_at = NULL,
            first_seen = CASE WHEN f.resolved_at IS NULL THEN f.first_seen ELSE {now} END",
    open: "
        SELECT object_id, expected, actual, detail, first_seen
        FROM {drift_findings}
        WHERE check_id = ? AND resolved_at IS NULL AND object_id > ?
        ORDER BY object_id
        LIMIT ?",
    open_checks: "
        SELECT check_id, count(*) AS findings, min(object_id) AS example, min(first_seen) AS first_seen,
            max(last_seen) AS last_seen
        FROM {drift_findings}
        WHERE resolved_at IS NULL
        GROUP BY check_id
        ORDER BY check_id
        LIMIT ?",
    resolve: "
        UPDATE {drift_findings}
        SET resolved_at = {now}
        WHERE check_id = ? AND object_id = ? AND resolved_at IS NULL",
    resolve_unseen: "
        UPDATE {drift_findings}
        SET resolved_at = {now}
        WHERE check_id = ? AND run_id <> ? AND resolved_at IS NULL",
    count_open: "
        SELECT count(*)
        FROM (
            SELECT 1
            FROM {drift_findings}
            WHERE check_id = ? AND resolved_at IS NULL
            LIMIT ?
        ) open_ones",
    purge: "
        DELETE FROM {drift_findings}
        WHERE (check_id, object_id) IN (
            SELECT check_id, object_id
            FROM {drift_findings}
            WHERE resolved_at <= (SELECT {after -?})
            ORDER BY resolved_at
            LIMIT ?)",
};

/// Rows of the application with the number of their effects, by the primary key of the table and
/// `side_effects_source_id_kind_key`. It reads a page of the table, whatever the condition selects. Binds:
/// how the kind begins, twice; the least and the most age of a row in microseconds; id; limit.
pub(crate) const SOURCE_PAGE: &str = "
        SELECT p.id, p.is_expected,
            CASE WHEN p.is_expected THEN (
                SELECT count(*)
                FROM {side_effects} e
                WHERE e.source_id = p.source_id AND substr({kind_and_colon e.kind}, 1, length(?)) = ?
            ) END AS effects
        FROM (
            SELECT s.[id] AS id, [source] AS source_id,
                COALESCE(([condition])
                    AND [time] <= (SELECT {after -?}) AND [time] >= (SELECT {after -?}), false) AS is_expected
            FROM [table] AS s
            WHERE s.[id] [compared] ?
            ORDER BY s.[id]
            LIMIT ?
        ) p
        ORDER BY p.id";

/// The first and the last id of the application's table, by its primary key.
pub(crate) const SOURCE_IDS: &str = "
        SELECT (SELECT s.[id] FROM [table] AS s ORDER BY s.[id] LIMIT 1) AS lowest,
            (SELECT s.[id] FROM [table] AS s ORDER BY s.[id] DESC LIMIT 1) AS highest";

/// Effects of a range of positions whose row of the application is gone, by primary key and the index of the
/// source. Binds: position before, last position; how the kind begins, twice.
pub(crate) const SOURCE_ORPHANS: &str = "
        SELECT p.position
        FROM {side_effects} p
        WHERE p.position > ? AND p.position <= ? AND substr({kind_and_colon p.kind}, 1, length(?)) = ?
            AND NOT EXISTS (
                SELECT 1
                FROM [table] AS s
                WHERE [source] = p.source_id)
        ORDER BY p.position";
