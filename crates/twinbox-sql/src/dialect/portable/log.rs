//! The log, its cursors and its retention, and replays.
use crate::texts::{Cursors, Holes, Log, Replays, Retention};

/// A dialect brings its own log: the texts that are empty here, unless the database needs none.
pub(in crate::dialect) const LOG: Log = Log {
    any: "
        SELECT 1
        FROM {outbox}
        LIMIT 1",
    messages_of_event: "
        SELECT position, {message}
        FROM {outbox}
        WHERE id = ?
        ORDER BY position
        LIMIT ?",
    // Not in the order of positions: a server would read the whole log backwards for a rare key.
    messages_of_key: "
        WITH found AS MATERIALIZED (
            SELECT position
            FROM {outbox}
            WHERE key = ? AND time >= ?
        )
        SELECT position, {message}
        FROM {outbox}
        WHERE position IN (SELECT position FROM found ORDER BY position DESC LIMIT ?)
        ORDER BY position DESC",
    page_end: "
        SELECT min(position) AS first, min(time) AS oldest
        FROM (
            SELECT position, time
            FROM {outbox}
            WHERE position < ?
            ORDER BY position DESC
            LIMIT ?
        ) page",
    messages_of_key_between: "
        SELECT position, {message}
        FROM {outbox}
        WHERE key = ? AND position >= ? AND position < ?
        ORDER BY position DESC
        LIMIT ?",
    is_settled: "{with_cursor}
        SELECT 1
        FROM {outbox} o, s
        WHERE {is_settled} AND o.position = ?",
    newest_tick: "",
    window_bounds: "",
    page: "",
    thin_ticks: "",
    tick_now: "",
    tick_at: "",
    tick_before: "",
    lock_ticks: "",
    backlog: "",
};

/// Positions follow the order of commits, or snapshots of the server cut the log.
pub(in crate::dialect) const HOLES: Holes = Holes {
    last_tick: "",
    open: "",
    filled: "",
    newcomers: "",
    insert_tick: "",
    flush: "",
    close: "",
    insert: "",
    due: "",
    postpone: "",
    occupied: "",
    bury: "",
    forget: "",
    positions: "",
    late_of_wide_hole: "",
    lock_first_tick: "",
    purgeable_ticks: "",
    tick_up_to: "",
    holes_of_tick: "",
    purgeable: "",
    purge: "",
    purge_ticks: "",
};

pub(in crate::dialect) const CURSORS: Cursors = Cursors {
    create: "
        INSERT INTO {cursors} (destination, p, w, partitions, started_at)
        VALUES (?, ?, ?, ?, {now})
        ON CONFLICT DO NOTHING",
    settings: "
        SELECT partitions, lease_until = {never} AS is_detached
        FROM {cursors}
        WHERE destination = ?",
    take: "
        UPDATE {cursors}
        SET epoch = epoch + 1, owner = ?, lease_until = {after}, lease = ?, owned = 0, wished_until = {now},
            address = ?
        WHERE destination = ? AND (owner = ? OR {expired} AND (NOT {is_wished} OR wished_by = ?))",
    read: "
        SELECT p, w, position, epoch, pause_reason,
            (SELECT max(id) FROM {ticks} WHERE id <= p) AS kept_p,
            (SELECT max(id) FROM {ticks} WHERE id <= w) AS kept_w
        FROM {cursors}
        WHERE destination = ? AND owner = ?",
    advance: "
        UPDATE {cursors}
        SET p = ?, w = ?, position = ?, ahead_p = ?, ahead_w = ?, owned = ?, lease_until = {after},
            wisher_owned = CASE WHEN {is_wished} THEN wisher_owned END
        WHERE destination = ? AND epoch = ? AND owner = ?
            AND p = ? AND w = ? AND position = ? AND {is_server_run}
        {returning pause_reason, wisher_owned}",
    release: "
        UPDATE {cursors}
        SET lease_until = {now}, owner = NULL
        WHERE destination = ? AND epoch = ? AND owner = ?",
    standby: "
        SELECT owned, wisher_owned, wished_by IS NOT NULL AND wished_by = ? AS is_own_wish,
            CASE WHEN lease_until < {never} THEN {until lease_until} ELSE 0 END AS lease_left,
            CASE WHEN {is_wished} THEN {until wished_until} ELSE 0 END AS wish_left
        FROM {cursors}
        WHERE destination = ?",
    wish: "
        UPDATE {cursors}
        SET wished_by = ?, wisher_owned = ?, wished_until = {after lease}
        WHERE destination = ? AND (NOT {is_wished} OR wished_by = ?)",
    lock: "
        SELECT 1
        FROM {cursors}
        WHERE destination = ? AND epoch = ? AND owner = ? AND {is_server_run}
        {lock_row}",
    set_pause: "
        UPDATE {cursors}
        SET pause_reason = ?
        WHERE destination = ?",
    asked: "
        SELECT pause_reason, wisher_owned
        FROM {cursors}
        WHERE destination = ?",
    position: "
        SELECT p, w, position, lease_until = {never} AS is_detached
        FROM {cursors}
        WHERE destination = ?",
    list: "
        SELECT destination, CASE WHEN lease_until < {never} THEN {until lease_until} ELSE 0 END AS lease_left,
            pause_reason, lease_until = {never} AS is_detached, started_at, position, address
        FROM {cursors}
        WHERE {not_replay destination}
        ORDER BY destination",
    live_names: "
        SELECT destination
        FROM {cursors}
        WHERE lease_until < {never} AND {not_replay destination}
        ORDER BY destination",
    secret: "
        SELECT secret
        FROM {destination_secrets}
        WHERE destination = ?",
    create_secret: "
        INSERT INTO {destination_secrets} (destination, secret)
        VALUES (?, ?)
        ON CONFLICT DO NOTHING",
};

/// `purge`, `purge_ticks` and the fragment `{is_behind}` belong to the dialects.
pub(in crate::dialect) const RETENTION: Retention = Retention {
    purgeable: "",
    purge: "",
    purge_ticks: "",
    slowest_reader: "
        SELECT destination
        FROM {cursors} c
        WHERE lease_until < {never} AND {is_behind}
        ORDER BY p
        LIMIT 1",
    // A replay begins far behind.
    lagging: "
        SELECT destination
        FROM {cursors} c
        WHERE lease_until < {never} AND {not_replay destination} AND {is_behind}
        ORDER BY destination",
    detach: "
        UPDATE {cursors} AS c
        SET epoch = epoch + 1, owner = NULL, lease_until = {never}
        WHERE destination = ? AND lease_until < {never} AND {is_behind}",
    retire_cursor: "
        DELETE FROM {cursors}
        WHERE destination = ? AND (owner IS NULL OR {expired})",
    retire_parked: "
        DELETE FROM {parked_messages}
        WHERE destination = ?",
};

/// A replay with its cursor, if it still has one.
#[rustfmt::skip]
macro_rules! select_replay {
    ($($rest:literal),* $(,)?) => {
        concat!("
        SELECT r.id, r.token, r.destination, r.consumer, r.selection, r.p, r.w, r.position,
            r.first_position, r.last_position, r.selected, r.rate,
            r.state, r.made_by, r.reason, r.made_at, r.ended_at,
            c.p AS cursor_p, c.w AS cursor_w, c.position AS cursor_position, c.pause_reason,
            c.owner IS NOT NULL AND c.lease_until > {now} AS is_alive,
            (
                SELECT count(*)
                FROM {parked_messages} k
                WHERE k.destination = {replay_cursor r.id} AND k.state <> 'waiting'
            ) AS refused
        FROM {replays} r
        LEFT JOIN {cursors} c ON c.destination = {replay_cursor r.id}", $("
        ", $rest), *)
    };
}

pub(in crate::dialect) const REPLAYS: Replays = Replays {
    create: "
        INSERT INTO {replays} (token, destination, consumer, selection, p, w, position, first_position,
            last_position, selected, rate, made_by, reason)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        {returning id}",
    create_cursor: "
        INSERT INTO {cursors} (destination, p, w)
        VALUES (?, ?, ?)",
    find: select_replay!("WHERE r.id = ?"),
    list: select_replay!("ORDER BY r.id DESC", "LIMIT ?"),
    running_destinations: "
        SELECT DISTINCT destination
        FROM {replays}
        WHERE state = 'running'",
    next: select_replay!(
        "WHERE r.destination = ? AND r.state = 'running' AND c.pause_reason IS NULL",
        "    AND NOT EXISTS (",
        "        SELECT 1",
        "        FROM {cursors} d",
        "        WHERE d.destination = r.destination AND d.pause_reason IS NOT NULL)",
        "ORDER BY r.id",
        "LIMIT 1",
    ),
    finish: "
        UPDATE {replays}
        SET state = ?, ended_at = {now}
        WHERE id = ? AND state = 'running'",
    detach_cursor: "
        UPDATE {cursors}
        SET epoch = epoch + 1, owner = NULL, lease_until = {never}
        WHERE destination = ?",
    cancel_all: "
        UPDATE {replays}
        SET state = 'cancelled', ended_at = {now}
        WHERE destination = COALESCE(?, destination) AND state = 'running'",
    detach_ended: "
        UPDATE {cursors}
        SET epoch = epoch + 1, owner = NULL, lease_until = {never}
        WHERE lease_until < {never} AND destination IN (
            SELECT {replay_cursor id}
            FROM {replays}
            WHERE destination = COALESCE(?, destination) AND state <> 'running')",
    ended_before: "
        SELECT 1
        FROM {replays}
        WHERE id = ? AND state <> 'running' AND ended_at < (SELECT {after})",
    delete_cursors: "
        DELETE FROM {cursors}
        WHERE lease_until = {never} AND destination IN (
            SELECT {replay_cursor id}
            FROM {replays}
            WHERE state <> 'running')",
};
