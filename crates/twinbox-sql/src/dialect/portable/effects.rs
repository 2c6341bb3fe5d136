//! Side effects and their vendors.
use crate::texts::Effects;

pub(in crate::dialect) const EFFECTS: Effects = Effects {
    plan: "
        INSERT INTO {side_effects} (id, source_id, kind, vendor, key, method, target, content_type, headers,
            request, codec_headers, correlation_id, traceparent, compensates)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        {unless_there source_id, kind}",
    find: "
        SELECT {side_effect}
        FROM {side_effects}
        WHERE source_id = ? AND kind = ?",
    get: "
        SELECT {side_effect}
        FROM {side_effects}
        WHERE position = ?",
    get_by_id: "
        SELECT {side_effect}
        FROM {side_effects}
        WHERE id = ?",
    lock: "
        SELECT {side_effect}
        FROM {side_effects}
        WHERE position = ?
        {lock_row}",
    compensation: "
        SELECT {side_effect}
        FROM {side_effects}
        WHERE source_id = ? AND compensates = ?
        ORDER BY position
        LIMIT 1",
    look: "
        SELECT r.vendor, r.due_in,
            COALESCE({until v.closed_until}, 0) AS closed_for, v.pause_reason IS NOT NULL AS is_paused
        FROM (
            SELECT r.vendor, (
                SELECT {until min(e.next_attempt_at)}
                FROM {side_effects} e
                WHERE e.vendor = r.vendor AND e.next_attempt_at IS NOT NULL) AS due_in
            FROM {vendor_rows}
        ) r
        LEFT JOIN {vendors} v ON v.vendor = r.vendor",
    // The rows are locked before their bytes are summed: a window function cannot lock.
    claim: "
        SELECT {side_effect}, {until provider_key_expires_at} AS key_left, -{until fired_at} AS fired_ago
        FROM (
            SELECT locked.*, sum(length(request)) OVER (ORDER BY next_attempt_at, position)
                - length(request) AS bytes_before
            FROM (
                SELECT *
                FROM {side_effects}
                WHERE vendor = ? AND next_attempt_at <= (SELECT {now})
                    AND NOT EXISTS (
                        SELECT 1
                        FROM {vendors} v
                        WHERE v.vendor = ? AND (v.closed_until > {now} OR v.pause_reason IS NOT NULL))
                ORDER BY next_attempt_at, position
                LIMIT ?
                {skip_locked}
            ) locked
        ) due
        WHERE bytes_before <= ?
        ORDER BY next_attempt_at, position",
    blocked: "
        SELECT e.position
        FROM {side_effects} e
        WHERE e.position {among} AND EXISTS (
            SELECT 1
            FROM {side_effects} b
            WHERE b.vendor = e.vendor AND b.key = e.key AND b.ended_at IS NULL
                AND b.position < COALESCE(
                    (
                        SELECT o.position
                        FROM {side_effects} o
                        WHERE o.position = e.compensates AND o.vendor = e.vendor AND o.key = e.key
                            AND o.ended_at IS NULL),
                    e.position))",
    take: "
        UPDATE {side_effects} AS e
        SET owner = ?, next_attempt_at = {after r.lease}, failures = e.failures + r.failures,
            state = CASE WHEN r.fires THEN 'fired' ELSE e.state END,
            attempts = CASE WHEN r.fires THEN e.attempts + 1 ELSE e.attempts END,
            fired_at = CASE WHEN r.fires THEN {now} ELSE e.fired_at END,
            first_fired_at = CASE WHEN r.fires AND e.first_fired_at IS NULL THEN {now}
                ELSE e.first_fired_at END,
            idempotency_key = COALESCE(e.idempotency_key, r.token),
            provider_key_expires_at = CASE WHEN r.key_window IS NULL THEN e.provider_key_expires_at
                ELSE COALESCE(e.provider_key_expires_at, {after r.key_window}) END
        FROM {taken_rows}
        WHERE e.position = r.position",
    name: "
        UPDATE {side_effects}
        SET id = ?
        WHERE position = ?",
    settle: "
        UPDATE {side_effects} AS e
        SET state = r.state, owner = NULL, failures = e.failures + r.failures,
            next_attempt_at = CASE WHEN r.delay IS NOT NULL THEN {after r.delay} END,
            ended_at = CASE WHEN r.state IN ('confirmed', 'failed', 'compensated') THEN {now} END,
            attempts = CASE WHEN r.unsent THEN e.attempts - 1 ELSE e.attempts END,
            first_fired_at = CASE WHEN r.unsent AND e.attempts = 1 THEN NULL ELSE e.first_fired_at END,
            generation = CASE WHEN r.renewed THEN e.generation + 1 ELSE e.generation END,
            idempotency_key = CASE WHEN r.renewed OR r.unsent AND e.attempts = 1 THEN NULL
                ELSE e.idempotency_key END,
            provider_key_expires_at = CASE WHEN r.renewed OR r.unsent AND e.attempts = 1 THEN NULL
                ELSE e.provider_key_expires_at END,
            provider_ref = COALESCE(r.provider_ref, e.provider_ref),
            http_code = COALESCE(r.http_code, e.http_code),
            error_code = CASE WHEN r.state = 'confirmed' THEN r.error_code
                ELSE COALESCE(r.error_code, e.error_code) END,
            last_error = CASE WHEN r.state = 'confirmed' THEN r.error ELSE COALESCE(r.error, e.last_error) END
        FROM {settled_rows}
        WHERE e.position = r.position
            AND (r.attempt IS NULL OR e.owner = ? AND e.attempts = r.attempt)",
    wake: "
        UPDATE {side_effects}
        SET next_attempt_at = COALESCE(next_attempt_at, {now})
        WHERE owner IS NULL AND state <> 'unknown' AND position IN (
            SELECT (
                SELECT min(n.position)
                FROM {side_effects} n
                WHERE n.vendor = e.vendor AND n.key = e.key AND n.ended_at IS NULL)
            FROM {side_effects} e
            WHERE e.position {among} AND e.key IS NOT NULL)",
    compensate: "
        UPDATE {side_effects}
        SET state = 'compensated', ended_at = {now}, next_attempt_at = NULL, owner = NULL
        WHERE position IN (
            SELECT compensates
            FROM {side_effects}
            WHERE position {among} AND state = 'confirmed')",
    close_vendor: "
        INSERT INTO {vendors} AS v (vendor, closed_until)
        VALUES (?, {after})
        ON CONFLICT (vendor) DO UPDATE
        SET closed_until = CASE WHEN v.closed_until > excluded.closed_until THEN v.closed_until
            ELSE excluded.closed_until END",
    count_problems: "
        SELECT count(*)
        FROM (
            SELECT 1
            FROM {side_effects}
            WHERE state = ? AND state IN ('unknown', 'failed')
            LIMIT ?
        ) problems",
    purge: "
        DELETE FROM {side_effects}
        WHERE position IN (
            SELECT position
            FROM {side_effects}
            WHERE ended_at <= (SELECT {after -?})
                AND (state <> 'failed' OR ended_at <= (SELECT {after -?}))
            ORDER BY ended_at
            LIMIT ?)",
};
