//! Side effects and their vendors, and the keys of clients that call vendors.
use super::{
    super::portable::{self, vendors},
    fragments::numbers,
};
use crate::texts::{ClientKeys, EffectActs, Effects};

/// Vendors with effects that a dispatcher looks at. No index of this server has the open effects alone: from
/// vendor to vendor it reads the last entry, which has a time if there is one.
#[rustfmt::skip]
macro_rules! due_vendors {
    () => {"
        SELECT vendor
        FROM {side_effects} FORCE INDEX (side_effects_due)
        GROUP BY vendor
        HAVING max(next_attempt_at) IS NOT NULL"
    };
}
pub(super) use due_vendors;

pub(super) const EFFECTS: Effects = Effects {
    // Effects that have ended come first in the index. From vendor to vendor the server reads the first entry
    // with a time. For a vendor that a row names it would read all entries.
    look: "
        SELECT r.vendor, {until d.next_attempt_at} AS due_in,
            COALESCE({until v.closed_until}, 0) AS closed_for, v.pause_reason IS NOT NULL AS is_paused
        FROM {vendor_rows}
        LEFT JOIN (
            SELECT vendor, min(next_attempt_at) AS next_attempt_at
            FROM {side_effects} FORCE INDEX (side_effects_due)
            GROUP BY vendor
        ) d ON d.vendor = r.vendor
        LEFT JOIN {vendors} v ON v.vendor = r.vendor",
    // The assignments run in order: each uses columns that are not assigned yet.
    take: "
        UPDATE (SELECT CAST(? AS BINARY(16)) AS owner) b
        JOIN {taken_rows}
        JOIN {side_effects} e ON e.position = r.position
        SET e.first_fired_at = CASE WHEN r.fires AND e.first_fired_at IS NULL THEN {now}
                ELSE e.first_fired_at END,
            e.fired_at = CASE WHEN r.fires THEN {now} ELSE e.fired_at END,
            e.owner = b.owner, e.next_attempt_at = {after r.lease}, e.failures = e.failures + r.failures,
            e.state = CASE WHEN r.fires THEN 'fired' ELSE e.state END,
            e.attempts = CASE WHEN r.fires THEN e.attempts + 1 ELSE e.attempts END,
            e.idempotency_key = COALESCE(e.idempotency_key, r.token),
            e.provider_key_expires_at = CASE WHEN r.key_window IS NULL THEN e.provider_key_expires_at
                ELSE COALESCE(e.provider_key_expires_at, {after r.key_window}) END",
    settle: "
        UPDATE {settled_rows}
        JOIN {side_effects} e ON e.position = r.position
        SET e.first_fired_at = CASE WHEN r.unsent AND e.attempts = 1 THEN NULL ELSE e.first_fired_at END,
            e.idempotency_key = CASE WHEN r.renewed OR r.unsent AND e.attempts = 1 THEN NULL
                ELSE e.idempotency_key END,
            e.provider_key_expires_at = CASE WHEN r.renewed OR r.unsent AND e.attempts = 1 THEN NULL
                ELSE e.provider_key_expires_at END,
            e.state = r.state, e.owner = NULL, e.failures = e.failures + r.failures,
            e.next_attempt_at = CASE WHEN r.delay IS NOT NULL THEN {after r.delay} END,
            e.ended_at = CASE WHEN r.state IN ('confirmed', 'failed', 'compensated') THEN {now} END,
            e.attempts = CASE WHEN r.unsent THEN e.attempts - 1 ELSE e.attempts END,
            e.generation = CASE WHEN r.renewed THEN e.generation + 1 ELSE e.generation END,
            e.provider_ref = COALESCE(r.provider_ref, e.provider_ref),
            e.http_code = COALESCE(r.http_code, e.http_code),
            e.error_code = CASE WHEN r.state = 'confirmed' THEN r.error_code
                ELSE COALESCE(r.error_code, e.error_code) END,
            e.last_error = CASE WHEN r.state = 'confirmed' THEN r.error ELSE COALESCE(r.error, e.last_error)
                END
        WHERE r.attempt IS NULL OR e.owner = ? AND e.attempts = r.attempt",
    // From the list to the effects: MySQL would read all effects first.
    wake: concat!(
        "
        UPDATE (
            SELECT DISTINCT (
                SELECT n.position
                FROM {side_effects} n
                WHERE n.vendor = e.vendor AND n.key = e.key AND n.ended_at IS NULL
                ORDER BY n.position
                LIMIT 1) AS position
            FROM ",
        numbers!(),
        " u
            STRAIGHT_JOIN {side_effects} e ON e.position = u.n
            WHERE e.key IS NOT NULL
        ) first_open
        STRAIGHT_JOIN {side_effects} w ON w.position = first_open.position
        SET w.next_attempt_at = COALESCE(w.next_attempt_at, {now})
        WHERE w.owner IS NULL AND w.state <> 'unknown'"
    ),
    compensate: concat!(
        "
        UPDATE (
            SELECT DISTINCT e.compensates AS position
            FROM ",
        numbers!(),
        " u
            STRAIGHT_JOIN {side_effects} e ON e.position = u.n
            WHERE e.state = 'confirmed'
        ) compensated
        STRAIGHT_JOIN {side_effects} c ON c.position = compensated.position
        SET c.state = 'compensated', c.ended_at = {now}, c.next_attempt_at = NULL, c.owner = NULL"
    ),
    close_vendor: "
        INSERT INTO {vendors} (vendor, closed_until)
        VALUES (?, {after})
        ON DUPLICATE KEY UPDATE closed_until = GREATEST(closed_until, VALUES(closed_until))",
    purge: "
        DELETE FROM {side_effects}
        WHERE {bounded_wait} AND ended_at <= {after -?} AND (state <> 'failed' OR ended_at <= {after -?})
        ORDER BY ended_at
        LIMIT ?",
    ..portable::EFFECTS
};

pub(super) const EFFECT_ACTS: EffectActs = EffectActs {
    vendors: vendors! { "due AS (", due_vendors!(), ")" },
    pause: "
        INSERT INTO {vendors} (vendor, pause_reason)
        VALUES (?, ?)
        ON DUPLICATE KEY UPDATE pause_reason = VALUES(pause_reason)",
    ..portable::EFFECT_ACTS
};

pub(super) const CLIENT_KEYS: ClientKeys = ClientKeys {
    purge: "
        DELETE FROM {client_keys}
        WHERE {bounded_wait} AND ended_at <= {after -?}
        ORDER BY ended_at
        LIMIT ?",
    ..portable::CLIENT_KEYS
};
