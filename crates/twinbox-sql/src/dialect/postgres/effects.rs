//! Side effects. Arrays, because a join could be planned over the whole table.
use super::super::portable;
use crate::texts::Effects;

pub(super) const EFFECTS: Effects = Effects {
    wake: "
        UPDATE {side_effects}
        SET next_attempt_at = COALESCE(next_attempt_at, {now})
        WHERE owner IS NULL AND state <> 'unknown' AND position = ANY(ARRAY(
            SELECT (
                SELECT min(n.position)
                FROM {side_effects} n
                WHERE n.vendor = e.vendor AND n.key = e.key AND n.ended_at IS NULL)
            FROM {side_effects} e
            WHERE e.position {among} AND e.key IS NOT NULL))",
    compensate: "
        UPDATE {side_effects}
        SET state = 'compensated', ended_at = {now}, next_attempt_at = NULL, owner = NULL
        WHERE position = ANY(ARRAY(
            SELECT compensates
            FROM {side_effects}
            WHERE position {among} AND state = 'confirmed'))",
    purge: "
        DELETE FROM {side_effects}
        WHERE position = ANY(ARRAY(
            SELECT position
            FROM {side_effects}
            WHERE ended_at <= (SELECT {after -?})
                AND (state <> 'failed' OR ended_at <= (SELECT {after -?}))
            ORDER BY ended_at
            LIMIT ?
            FOR UPDATE SKIP LOCKED))",
    ..portable::EFFECTS
};
