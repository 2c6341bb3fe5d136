//! Acts of operators on many dead letters.
use crate::texts::BulkActions;

#[rustfmt::skip]
macro_rules! actions {
    ($rest:literal) => {
        concat!("
        SELECT id, action, filter, spacing, planned, state, after_time, after_number, looked_at, changed,
            audit_id, made_by, reason, error, made_at, ended_at, {until lease_until} AS lease_left
        FROM {bulk_actions}", $rest)
    };
}

pub(in crate::dialect) const BULK_ACTIONS: BulkActions = BulkActions {
    create: "
        INSERT INTO {bulk_actions} (action, filter, spacing, planned, audit_id, made_by, reason)
        VALUES (?, ?, ?, ?, ?, ?, ?)
        {returning id}",
    find: actions!(
        "
        WHERE id = ?"
    ),
    list: actions!(
        "
        ORDER BY id DESC
        LIMIT ?"
    ),
    next: actions!(
        "
        WHERE state = 'running' AND id > ? AND (owner = ? OR lease_until <= (SELECT {now}))
        ORDER BY id
        LIMIT 1"
    ),
    take: "
        UPDATE {bulk_actions}
        SET owner = ?, lease_until = {after}
        WHERE id = ? AND state = 'running' AND (owner = ? OR lease_until <= (SELECT {now}))",
    advance: "
        UPDATE {bulk_actions}
        SET after_time = ?, after_number = ?, looked_at = looked_at + ?, changed = changed + ?
        WHERE id = ?",
    finish: "
        UPDATE {bulk_actions}
        SET state = ?, ended_at = {now}
        WHERE id = ? AND state = 'running'",
    fail: "
        UPDATE {bulk_actions}
        SET state = 'failed', error = ?, ended_at = {now}
        WHERE id = ? AND state = 'running'",
    end_audit: "
        UPDATE {audit}
        SET count = (SELECT changed FROM {bulk_actions} b WHERE b.id = ?)
        WHERE id = ?",
};
