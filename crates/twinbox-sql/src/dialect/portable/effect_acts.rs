//! Side effects and vendors for operators.
use crate::texts::EffectActs;

/// Effects without their requests.
#[rustfmt::skip]
macro_rules! page {
    ($condition:literal) => {
        concat!("
        SELECT position, id, source_id, kind, vendor, key, state, compensates, generation, attempts, failures,
            next_attempt_at, fired_at, ended_at, provider_ref, http_code, error_code, last_error, created_at
        FROM {side_effects}
        WHERE ", $condition, "
        ORDER BY position DESC
        LIMIT ?")
    };
}

/// Vendors with open effects, those with a row, and those of the newest effects. `due`: the first of them, as
/// a table of a `WITH`.
#[rustfmt::skip]
macro_rules! vendors {
    ($($due:tt)+) => {
        concat!("
        WITH ", $($due)+, ", known (vendor) AS (
            SELECT vendor
            FROM due
            WHERE vendor IS NOT NULL
            UNION
            SELECT vendor
            FROM {vendors}
            UNION
            SELECT vendor
            FROM (
                SELECT vendor
                FROM {side_effects}
                ORDER BY position DESC
                LIMIT ?
            ) newest
        )
        SELECT k.vendor, v.pause_reason, COALESCE({until v.closed_until}, 0) AS closed_for
        FROM known k
        LEFT JOIN {vendors} v ON v.vendor = k.vendor
        ORDER BY k.vendor
        LIMIT ?")
    };
}
#[cfg(feature = "mysql")]
pub(in crate::dialect) use vendors;

pub(in crate::dialect) const EFFECT_ACTS: EffectActs = EffectActs {
    page: page!("position < ?"),
    of_source: page!("source_id = ?"),
    // The condition of the index, which SQLite would not use without it.
    unknown_page: page!("state = 'unknown' AND state IN ('unknown', 'failed') AND position < ?"),
    failed_page: page!("state = 'failed' AND state IN ('unknown', 'failed') AND position < ?"),
    count_failed_since: "
        SELECT count(*)
        FROM (
            SELECT 1
            FROM {side_effects}
            WHERE ended_at >= (SELECT {after -?}) AND state = 'failed'
            LIMIT ?
        ) failed",
    renew: "
        UPDATE {side_effects}
        SET state = 'pending', generation = generation + 1, idempotency_key = NULL,
            provider_key_expires_at = NULL, failures = 0, next_attempt_at = {now}, ended_at = NULL,
            http_code = NULL, error_code = NULL, last_error = ?
        WHERE position = ? AND state IN ('unknown', 'failed')",
    confirm: "
        UPDATE {side_effects}
        SET state = 'confirmed', next_attempt_at = NULL, ended_at = {now}, error_code = NULL, last_error = ?
        WHERE position = ? AND state IN ('unknown', 'failed')",
    vendors: vendors! {"RECURSIVE due (vendor) AS (
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
        )"},
    waiting: "
        SELECT (
                SELECT {until next_attempt_at}
                FROM {side_effects}
                WHERE vendor = ? AND next_attempt_at IS NOT NULL
                ORDER BY next_attempt_at
                LIMIT 1
            ) AS due_in,
            (
                SELECT count(*)
                FROM (
                    SELECT 1
                    FROM {side_effects}
                    WHERE vendor = ? AND next_attempt_at IS NOT NULL
                    LIMIT ?
                ) open_ones
            ) AS open_effects",
    pause: "
        INSERT INTO {vendors} (vendor, pause_reason)
        VALUES (?, ?)
        ON CONFLICT (vendor) DO UPDATE
        SET pause_reason = excluded.pause_reason",
    resume: "
        UPDATE {vendors}
        SET pause_reason = NULL, closed_until = {now}
        WHERE vendor = ? AND (pause_reason IS NOT NULL OR closed_until > {now})",
};
