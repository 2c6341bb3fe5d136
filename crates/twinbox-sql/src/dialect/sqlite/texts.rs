//! Statements that SQLite has otherwise. Positions follow the order of commits, so a tick is a position.
use super::super::portable;
use crate::{
    dialect::Fragments,
    reader_name,
    texts::{Cursors, Inbox, Log, Retention, Setup},
};

pub(super) const FRAGMENTS: Fragments = Fragments {
    now: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
    after: "({now} + ?)",
    // A number that is too large for an integer would be a floating one.
    until: "(max(min(?, 253402300799999999), -62167219200000000) - {now})",
    readable: "CASE WHEN ? BETWEEN -62167219200000000 AND 253402300799999999 THEN ? ELSE {now} END",
    never: "9223372036854775807",
    bounded_wait: "true",
    takes_turns: "true",
    lock_number: "",
    flushed: "NULL",
    returning: "RETURNING ?",
    returning_flushed: "RETURNING {flushed}",
    unless_there: "ON CONFLICT (?) DO NOTHING",
    unflushed: "true",
    lock_row: "",
    skip_locked: "",
    // A file forgets nothing while a process has it open.
    current_server_run: "0",
    is_server_run: "? IS NOT NULL",
    by_index: "INDEXED BY {?}",
    among: "IN (SELECT value FROM json_each(?))",
    parked_rows: "(
            SELECT value ->> 'position' AS position, value ->> 'key' AS key, value ->> 'type' AS type,
                value ->> 'state' AS state, value ->> 'blocks_key' AS blocks_key,
                value ->> 'attempts' AS attempts, value ->> 'delay' AS delay, value ->> 'error' AS error,
                value ->> 'fingerprint' AS fingerprint, value ->> 'again' AS again
            FROM json_each(?)) AS r",
    vendor_rows: "(SELECT value AS vendor FROM json_each(?)) AS r",
    taken_rows: "(
            SELECT value ->> 'position' AS position, value ->> 'fires' AS fires, value ->> 'lease' AS lease,
                value ->> 'token' AS token, value ->> 'key_window' AS key_window,
                value ->> 'failures' AS failures
            FROM json_each(?)) AS r",
    settled_rows: "(
            SELECT value ->> 'position' AS position, value ->> 'attempt' AS attempt,
                value ->> 'state' AS state, value ->> 'unsent' AS unsent, value ->> 'renewed' AS renewed,
                value ->> 'failures' AS failures, value ->> 'delay' AS delay,
                value ->> 'provider_ref' AS provider_ref, value ->> 'http_code' AS http_code,
                value ->> 'error_code' AS error_code, value ->> 'error' AS error
            FROM json_each(?)) AS r",
    job_rows: "(SELECT value AS job FROM json_each(?)) AS r",
    uuid: "BLOB",
    big_integer: "INTEGER",
    text: "TEXT",
    header: "CAST(o.headers ->> '?' AS TEXT)",
    kind_and_colon: "? || ':'",
    replay_cursor: reader_name::REPLAY_CURSOR,
    log_reader: reader_name::LOG_READER,
    unfinished: "unfinished",
    is_behind: "EXISTS (
            SELECT 1
            FROM {outbox} o
            WHERE o.position > max(c.p, c.position) AND o.time <= {now} - ?)",
    with_cursor: "
        WITH s AS (SELECT ? AS p, ? AS w)",
    is_settled: "o.position <= max(s.p, ?)",
    is_unsettled: "o.position > max(s.p, ?)",
    replay_start: "min(o.position) - 1",
};

macro_rules! claim {
    ($begin:literal) => {
        concat!(
            "\n",
            $begin,
            "
        INSERT INTO {inbox} (consumer, message_id, source, event_id, payload_hash, state, time, claimed_at)
        VALUES (?1, ?2, ?3, ?4, ?5, 'processed', ?6, max({now}, ?6))
        ON CONFLICT DO NOTHING
        RETURNING (SELECT m.time FROM {purge_marks} m WHERE m.consumer = ?1) AS purge_mark"
        )
    };
}

pub(super) const INBOX: Inbox =
    Inbox { claim: claim!(""), begin_and_claim: claim!("        BEGIN IMMEDIATE;"), ..portable::INBOX };

pub(super) const SETUP: Setup = Setup {
    settings: "
        SELECT 'journal_mode' AS name, journal_mode AS value
        FROM pragma_journal_mode
        UNION ALL
        SELECT 'server_version', sqlite_version()",
    guards: "
        SELECT 'trigger' AS kind, m.tbl_name AS object, m.name AS name, '' AS state
        FROM sqlite_master m
        CROSS JOIN (SELECT ? AS namespace) b
        WHERE m.type = 'trigger' AND substr(m.tbl_name, 1, length(b.namespace) + 1) = b.namespace || '_'
        ORDER BY m.tbl_name, m.name",
    ..portable::SETUP
};

pub(super) const CURSORS: Cursors = Cursors {
    read: "
        SELECT p, w, position, epoch, pause_reason, p AS kept_p, w AS kept_w
        FROM {cursors}
        WHERE destination = ? AND owner = ?",
    ..portable::CURSORS
};

pub(super) const LOG: Log = Log {
    newest_tick: "SELECT COALESCE((SELECT max(position) FROM {outbox}), 0 * ?)",
    window_bounds: "
        SELECT ?1 AS floor, ?2 AS ceiling, '' AS from_snapshot, '' AS to_snapshot, true AS is_late_free,
            ?3 IS NOT NULL AS is_server_run",
    page: "
        SELECT ?7 IS NOT NULL AS is_readable, position, {message}
        FROM {outbox}
        WHERE position > max(?1, ?2, ?4) AND position <= min(?3, ?5)
        ORDER BY position
        LIMIT ?6",
    tick_now: "
        SELECT COALESCE(max(position), 0)
        FROM {outbox}",
    tick_at: "
        SELECT COALESCE(
            (SELECT min(position) - 1 FROM {outbox} WHERE time >= ?1),
            (SELECT max(position) FROM {outbox}),
            0)",
    tick_before: "
        SELECT min(?1, ?2)
        WHERE ?3 >= ?2",
    backlog: "
        SELECT count(*) AS messages, COALESCE(-{until min(time)}, 0) AS oldest_age
        FROM (
            SELECT time
            FROM {outbox}
            WHERE position > (SELECT max(p, position) FROM {cursors} WHERE destination = ?1)
            ORDER BY position
            LIMIT ?2
        ) unsettled",
    ..portable::LOG
};

pub(super) const RETENTION: Retention = Retention {
    // The newest message stays: its position is how far the log reaches.
    purgeable: "
        SELECT position
        FROM {outbox} o
        WHERE position <= (
                SELECT min(CASE WHEN lease_until < {never} THEN p ELSE {never} END)
                FROM {cursors})
            AND position < (SELECT max(position) FROM {outbox})
            AND time <= {now} - ?
            AND NOT EXISTS (SELECT 1 FROM {parked_messages} p WHERE p.position = o.position)
        ORDER BY position
        LIMIT ?",
    purge: "
        DELETE FROM {outbox}
        WHERE position {among}
            AND position <= (
                SELECT min(CASE WHEN lease_until < {never} THEN p ELSE {never} END)
                FROM {cursors})
            AND NOT EXISTS (SELECT 1 FROM {parked_messages} p WHERE p.position = {outbox}.position)",
    ..portable::RETENTION
};
