//! Ticks and holes.
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
        JOIN {outbox} o ON o.position BETWEEN h.first AND h.last
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
    forget: "
        DELETE FROM {holes}
        WHERE closed_by <= (SELECT min(id) FROM {ticks} WHERE id > 0)",
};
