//! Ticks and holes.
//!
//! A join of holes and the log names the holes first, in so many words: for an order and a limit MySQL would
//! read the log, and all holes for each message.
use crate::texts::Holes;

pub(super) const HOLES: Holes = Holes {
    last_tick: "
        SELECT id, newest
        FROM {ticks}
        ORDER BY id DESC
        LIMIT 1",
    open: "
        SELECT id, first, last
        FROM {holes}
        WHERE closed_by = 9223372036854775807
        ORDER BY first",
    filled: "
        SELECT o.position
        FROM {holes} h
        STRAIGHT_JOIN {outbox} o ON o.position BETWEEN h.first AND h.last
        WHERE h.closed_by = 9223372036854775807
        ORDER BY o.position
        LIMIT ?",
    newcomers: "
        SELECT previous, position, rows_seen
        FROM (
            SELECT position, COALESCE(LAG(position) OVER (ORDER BY position), ?) AS previous,
                LEAD(position) OVER (ORDER BY position) AS next_one,
                CAST(row_number() OVER (ORDER BY position) AS SIGNED) AS rows_seen
            FROM (
                SELECT position
                FROM {outbox}
                WHERE position > ?
                ORDER BY position
                LIMIT ?
            ) page
        ) numbered
        WHERE position > previous + 1 OR next_one IS NULL
        ORDER BY position",
    insert_tick: "
        INSERT INTO {ticks} (id, newest, taken_at)
        SELECT ?, ?, GREATEST({now}, taken_at)
        FROM {ticks}
        WHERE id = ?",
    flush: "
        UPDATE {flushes}
        SET number = number + 1",
    close: "
        UPDATE {holes}
        SET closed_by = ?
        WHERE id IN",
    insert: "
        INSERT INTO {holes} (first, last, opened_by, probe_at)
        VALUES",
    due: "
        SELECT id, first, last
        FROM {holes}
        WHERE closed_by = 9223372036854775807 AND probe_at <= {now}
        ORDER BY probe_at
        LIMIT 1000",
    postpone: "
        UPDATE {holes}
        SET probe_at = {after 5000000}
        WHERE id = ? AND probe_at <= {now}",
    occupied: "
        SELECT position
        FROM {outbox}
        WHERE position IN",
    bury: "
        INSERT INTO {outbox} (position, type, id, payload)
        VALUES",
    // The positions of late committers are compared with a sum, because a server would read the log from
    // there on instead of the holes. It sorts all positions that it finds in holes, so a hole of a large
    // transaction, with more than 2,000 positions, is read by itself.
    positions: "
        (
            SELECT 0 AS kind, o.position AS first, o.position AS last
            FROM {holes} l
            STRAIGHT_JOIN {outbox} o ON o.position BETWEEN l.first AND l.last
            WHERE l.closed_by > ? AND l.opened_by <= ? AND l.closed_by <= ? AND l.last - l.first < 2000
                AND o.position + 0 > ? AND o.type <> ''
            ORDER BY o.position
            LIMIT ?
        )
        UNION ALL
        (
            SELECT 1, o.position, o.position
            FROM {outbox} o FORCE INDEX (PRIMARY)
            WHERE o.position > GREATEST(?, ?, (SELECT newest FROM {ticks} WHERE id = ?)) AND o.position <= ?
                AND o.position <= (SELECT newest FROM {ticks} WHERE id = ?) AND o.type <> ''
            ORDER BY o.position
            LIMIT ?
        )
        UNION ALL
        (
            SELECT 2, first, last
            FROM {holes}
            WHERE closed_by > ? AND opened_by <= ? AND last > ?
        )
        UNION ALL
        (
            SELECT 3, first, last
            FROM {holes} FORCE INDEX (holes_closed_by)
            WHERE closed_by > ? AND opened_by <= ? AND closed_by <= ? AND last - first >= 2000 AND last > ?
            ORDER BY first
            LIMIT 1
        )",
    late_of_wide_hole: "
        SELECT position
        FROM {outbox} FORCE INDEX (PRIMARY)
        WHERE position > ? AND position <= ? AND type <> ''
        ORDER BY position
        LIMIT ?",
    lock_first_tick: "
        SELECT id
        FROM {ticks} FORCE INDEX (PRIMARY)
        WHERE id = 0
        FOR UPDATE",
    purgeable_ticks: "
        SELECT (
                SELECT id
                FROM {ticks}
                WHERE taken_at <= {after -?}
                ORDER BY taken_at DESC, id DESC
                LIMIT 1
            ) AS aged, (
                SELECT min(CASE WHEN lease_until < {never} THEN p ELSE 9223372036854775807 END)
                FROM {cursors}
            ) AS settled, COALESCE((SELECT max(position) FROM {outbox}), 0) AS newest",
    tick_up_to: "
        SELECT id, newest
        FROM {ticks}
        WHERE id <= ?
        ORDER BY id DESC
        LIMIT 1",
    holes_of_tick: "
        SELECT first, last
        FROM {holes}
        WHERE closed_by > ? AND opened_by <= ? AND last > ?
        ORDER BY first",
    // A tombstone stays for an hour at least: its producer may be slow.
    purgeable: "
        SELECT o.position
        FROM {outbox} o FORCE INDEX (PRIMARY)
        WHERE o.position > ? AND o.position <= ? AND (o.type <> '' OR o.time <= {after -3600000000})
            AND NOT EXISTS (SELECT 1 FROM {parked_messages} p WHERE p.position = o.position)
        ORDER BY o.position
        LIMIT ?",
    // One that names the table first takes the name of an index. It would read a short log as a whole, up to
    // rows that a producer holds.
    purge: "
        DELETE d
        FROM {outbox} d FORCE INDEX (PRIMARY)
        WHERE d.position IN",
    purge_ticks: "
        DELETE FROM {ticks}
        WHERE id > 0 AND id < ?
        ORDER BY id
        LIMIT ?",
    forget: "
        DELETE FROM {holes}
        WHERE closed_by <= (SELECT min(id) FROM {ticks} WHERE id > 0)",
};
