//! Reading the log by ticks and holes, and deleting what every reader has settled.
//!
//! Positions do not follow the order of commits. A tick therefore names the newest position that a snapshot
//! of the server showed, and the holes below it: positions without a committed row. A window holds the rows
//! that came between two ticks. Some have filled holes of the first tick, the others are above it.
use super::{
    super::portable,
    fragments::{newest_of, numbers},
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
        SELECT t.id, @@GLOBAL.innodb_flush_log_at_trx_commit = 1 AS is_flushed,
            {current_server_run} AS server_run,
            COALESCE((SELECT max(position) FROM {outbox}), 0) > t.newest AS has_newcomers, EXISTS (
                SELECT 1
                FROM {holes} h
                STRAIGHT_JOIN {outbox} o ON o.position BETWEEN h.first AND h.last
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
    // By primary key. Without an order, so that no payload is copied into a temporary table.
    page: concat!(
        "
        SELECT r.is_readable, o.position, {message}
        FROM (
            SELECT {is_server_run}
                AND (SELECT count(*) FROM {ticks} WHERE id IN (?, ?)) = 1 + (? <> ?) AS is_readable
        ) r
        LEFT JOIN (
            ",
        numbers!(),
        " u
            JOIN {outbox} o ON o.position = u.n
        ) ON true"
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
    // Times grow with the ids.
    tick_at: "
        SELECT COALESCE((
            SELECT id
            FROM {ticks}
            WHERE taken_at <= ?
            ORDER BY taken_at DESC, id DESC
            LIMIT 1), 0)",
    tick_before: "
        SELECT max(t.id)
        FROM {ticks} t
        JOIN (SELECT ? AS start, ? AS p, ? AS w) b
        WHERE t.newest <= b.start AND t.id <= b.p
            AND EXISTS (SELECT 1 FROM {ticks} x WHERE x.id = b.w)
            AND EXISTS (SELECT 1 FROM {ticks} x WHERE x.id = b.p)",
    // By the rows themselves: an index that has their ids would be locked alone.
    lock_ticks: "
        SELECT id
        FROM {ticks} FORCE INDEX (PRIMARY)
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
    retire_parked: "
        DELETE FROM {parked_messages}
        WHERE {bounded_wait} AND destination = ?",
    ..portable::RETENTION
};
