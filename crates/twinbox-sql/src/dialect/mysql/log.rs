//! Reading the log by ticks and holes, and deleting what every reader has settled.
//!
//! Positions do not follow the order of commits. A tick therefore names the newest position that a snapshot
//! of the server showed, and the holes below it: positions without a committed row. A window holds the rows
//! that came between two ticks. Some have filled holes of the first tick, the others are above it.
use super::{
    super::portable,
    fragments::{is_hole, newest_of},
};
use crate::texts::{Log, Retention};

/// The condition of a sub-select: the cursor names the tick `t`, or may name it next. Of a reader that is
/// stuck for an hour only those that its row names are kept, and one a minute.
macro_rules! named_by_cursor {
    () => {
        "
                SELECT 1
                FROM {cursors} c
                WHERE t.id IN (c.p, c.w, c.ahead_p, c.ahead_w)
                    OR t.taken_at >= {after -3600000000} AND t.id BETWEEN c.p AND c.ahead_w"
    };
}

pub(super) const LOG: Log = Log {
    // By `outbox_time`: a server would read the whole log backwards for a rare key.
    messages_of_key: "
        SELECT o.position, {message}
        FROM (
            SELECT position
            FROM {outbox} FORCE INDEX (outbox_time)
            WHERE key = ? AND time >= ?
            ORDER BY position DESC
            LIMIT ?
        ) found
        JOIN {outbox} o ON o.position = found.position
        ORDER BY o.position DESC",
    // A hole that is filled is seen with the next newcomer, or when the holes are looked at.
    newest_tick: "
        SELECT t.id, @@GLOBAL.innodb_flush_log_at_trx_commit = 1 AS is_flushed, EXISTS (
                SELECT 1
                FROM {outbox} o
                WHERE o.position > t.newest
            ) AS has_newcomers, EXISTS (
                SELECT 1
                FROM {holes} h
                JOIN {outbox} o ON o.position BETWEEN h.first AND h.last
                WHERE h.closed_by = 9223372036854775807
            ) AS has_late, EXISTS (
                SELECT 1
                FROM {holes} h
                WHERE h.closed_by = 9223372036854775807 AND h.probe_at <= {now}
            ) AS has_old_holes
        FROM {ticks} t
        ORDER BY t.id DESC
        LIMIT 1",
    window_bounds: "
        SELECT p.newest AS floor, w.newest AS ceiling, CAST(p.newest AS CHAR) AS from_snapshot,
            CAST(w.newest AS CHAR) AS to_snapshot, NOT EXISTS (
                SELECT 1
                FROM {holes} h
                WHERE h.closed_by > b.p AND h.opened_by <= b.p AND h.closed_by <= b.w
            ) AS is_late_free, {is_server_run b.run} AS is_server_run
        FROM (SELECT ? AS p, ? AS w, ? AS run) b
        LEFT JOIN {ticks} p ON p.id = b.p
        LEFT JOIN {ticks} w ON w.id = b.w",
    // First the positions, then the rows, so that no payload is copied into a temporary table. Holes by
    // `holes_closed_by`, positions by the primary key.
    page: concat!(
        "
        SELECT r.is_readable, o.position, {message}
        FROM (
            SELECT {is_server_run}
                AND (SELECT count(*) FROM {ticks} WHERE id IN (?, ?)) = 1 + (? <> ?) AS is_readable
        ) r
        LEFT JOIN (
            SELECT position
            FROM (
                (
                    SELECT o.position
                    FROM {holes} l
                    JOIN {outbox} o ON o.position BETWEEN l.first AND l.last
                    JOIN (SELECT ? AS w) s
                    WHERE l.closed_by > ? AND l.opened_by <= ? AND l.closed_by <= s.w
                        AND o.position > ? AND o.type <> '' AND NOT ",
        is_hole!("s.w"),
        "
                    ORDER BY o.position
                    LIMIT ?
                )
                UNION ALL
                (
                    SELECT o.position
                    FROM {outbox} o
                    JOIN (SELECT ? AS w) s
                    WHERE o.position > GREATEST(?, ?) AND o.position <= ?
                        AND o.position <= (SELECT newest FROM {ticks} WHERE id = ?)
                        AND o.type <> '' AND NOT ",
        is_hole!("s.w"),
        "
                    ORDER BY o.position
                    LIMIT ?
                )
            ) both_branches
            ORDER BY position
            LIMIT ?
        ) u ON true
        LEFT JOIN {outbox} o ON o.position = u.position
        ORDER BY u.position"
    ),
    // Ticks that a cursor names are left out before the limit, and once more under a lock.
    thin_ticks: concat!(
        "
        DELETE t
        FROM {ticks} t
        JOIN (
            SELECT id
            FROM (
                SELECT id, row_number() OVER (
                    PARTITION BY date_format(taken_at,
                        CASE WHEN taken_at < {after -3600000000} THEN '%Y%m%d%H%i' ELSE '%Y%m%d%H%i%s' END)
                    ORDER BY id) AS nth
                FROM {ticks} t
                WHERE id > 0 AND taken_at < {after -10000000}
                    AND NOT EXISTS (",
        named_by_cursor!(),
        ")
            ) old
            WHERE nth > 1
            LIMIT 100000
        ) thinned ON thinned.id = t.id
        WHERE t.id < (
                SELECT id
                FROM (SELECT max(id) AS id FROM {ticks} WHERE taken_at < {after -10000000}) old
            )
            AND NOT EXISTS (SELECT 1 FROM {replays} r WHERE r.state = 'running' AND t.id IN (r.p, r.w))
            AND NOT EXISTS (",
        named_by_cursor!(),
        "
                LOCK IN SHARE MODE)"
    ),
    tick_at: "
        SELECT max(id)
        FROM {ticks}
        WHERE taken_at <= ? OR id = 0",
    tick_before: "
        SELECT max(t.id)
        FROM {ticks} t
        JOIN (SELECT ? AS start, ? AS p, ? AS w) b
        WHERE t.newest <= b.start AND t.id <= b.p
            AND EXISTS (SELECT 1 FROM {ticks} x WHERE x.id = b.w)
            AND EXISTS (SELECT 1 FROM {ticks} x WHERE x.id = b.p)",
    lock_ticks: "
        SELECT id
        FROM {ticks}
        LOCK IN SHARE MODE",
    backlog: concat!(
        "
        SELECT count(*) AS messages,
            COALESCE(-{until min(time)}, 0) AS oldest_age
        FROM (
            SELECT o.time
            FROM {outbox} o
            WHERE o.type <> '' AND o.position > (
                SELECT GREATEST(c.position, ",
        newest_of!("c.p"),
        ")
                FROM {cursors} c
                WHERE c.destination = ?)
            ORDER BY o.position
            LIMIT ?
        ) unsettled"
    ),
    ..portable::LOG
};

pub(super) const RETENTION: Retention = Retention {
    // The newest row stays: an empty table could give its positions again. A tombstone stays for an hour at
    // least: its producer may be slow.
    purge: concat!(
        "
        DELETE d
        FROM {outbox} d
        JOIN (
            SELECT o.position
            FROM {outbox} o
            JOIN (
                SELECT t.id, t.newest
                FROM {ticks} t
                WHERE t.id <= (
                        SELECT min(CASE WHEN lease_until < {never} THEN p ELSE 9223372036854775807 END)
                        FROM {cursors})
                    AND t.taken_at <= {after -?}
                ORDER BY t.id DESC
                LIMIT 1
            ) s
            WHERE o.position <= s.newest AND NOT ",
        is_hole!("s.id"),
        "
                AND (o.type <> '' OR o.time <= {after -3600000000})
                AND o.position < (SELECT max(position) FROM {outbox})
                AND NOT EXISTS (SELECT 1 FROM {parked_messages} p WHERE p.position = o.position)
            ORDER BY o.position
            LIMIT ?
        ) old ON old.position = d.position"
    ),
    purge_ticks: "
        DELETE t
        FROM {ticks} t
        JOIN (
            SELECT max(id) AS id
            FROM {ticks}
            WHERE taken_at <= {after -?}
        ) old
        WHERE t.id > 0 AND t.id < old.id
            AND t.id < (
                SELECT id
                FROM (
                    SELECT max(id) AS id
                    FROM {ticks}
                    WHERE id <= (SELECT min(p) FROM {cursors} WHERE lease_until < {never})
                ) first
            )",
    ..portable::RETENTION
};
