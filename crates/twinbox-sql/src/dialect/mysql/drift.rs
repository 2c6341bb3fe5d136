//! Drift between the application's rows and their side effects.
use super::{super::portable, effects::due_vendors};
use crate::texts::Drift;

pub(super) const DRIFT: Drift = Drift {
    // The assignments run in order.
    write: "
        INSERT INTO {drift_findings} (check_id, object_id, expected, actual, detail, run_id)
        VALUES (?, ?, ?, ?, ?, ?)
        ON DUPLICATE KEY UPDATE
            first_seen = CASE WHEN resolved_at IS NULL THEN first_seen ELSE {now} END,
            expected = VALUES(expected), actual = VALUES(actual), detail = VALUES(detail),
            run_id = VALUES(run_id), last_seen = {now}, resolved_at = NULL",
    purge: "
        DELETE FROM {drift_findings}
        WHERE {bounded_wait} AND resolved_at <= {after -?}
        ORDER BY resolved_at
        LIMIT ?",
    due_vendors: concat!(
        due_vendors!(),
        "
        ORDER BY vendor
        LIMIT ?"
    ),
    ..portable::DRIFT
};
