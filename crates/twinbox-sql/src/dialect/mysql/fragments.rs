//! The fragments of statements on MySQL and MariaDB.
use crate::dialect::Fragments;

/// Whether no committed message had the position of `o` yet when the tick `$tick` was made.
macro_rules! is_hole {
    ($tick:literal) => {
        concat!(
            "EXISTS (
                SELECT 1
                FROM {holes} h
                WHERE h.closed_by > ",
            $tick,
            " AND h.opened_by <= ",
            $tick,
            "
                    AND h.first <= o.position AND h.last >= o.position)"
        )
    };
}

/// A table with the numbers `n` of the JSON array `?`.
macro_rules! numbers {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$'))"
    };
}
pub(super) use numbers;

/// The newest position of the tick `$tick`, or of the one before if that is gone.
macro_rules! newest_of {
    ($tick:literal) => {
        concat!(
            "COALESCE(
                (SELECT t.newest FROM {ticks} t WHERE t.id = ",
            $tick,
            "),
                (SELECT t.newest FROM {ticks} t WHERE t.id <= ",
            $tick,
            " ORDER BY t.id DESC LIMIT 1))"
        )
    };
}
pub(super) use newest_of;

pub(super) const FRAGMENTS: Fragments = Fragments {
    now: "UTC_TIMESTAMP(6)",
    after: "TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6))",
    // The server computes NULL with a month 0 or a day 0. Of any time it knows the year.
    until: "COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), ?),
            CASE WHEN YEAR(?) >= 0 THEN -64000000000000000 END)",
    // Only a session that allows invalid dates takes a 30 February.
    readable: "CASE WHEN ? >= '1000-01-01' AND MONTH(?) > 0 AND DAYOFMONTH(?) > 0
                AND DAYOFMONTH(?) <= COALESCE(DAYOFMONTH(LAST_DAY(?)), 0) THEN ?
            ELSE UTC_TIMESTAMP(6) END",
    never: "TIMESTAMP '9999-12-31 23:59:59.999999'",
    // Its transaction is at READ COMMITTED: a purge locks no gap, in which others insert.
    bounded_wait: "true",
    takes_turns: "true",
    lock_number: "",
    // The server flushes every commit: another one is refused.
    flushed: "true",
    returning: "",
    returning_flushed: "",
    unless_there: "",
    unflushed: "true",
    lock_row: "FOR UPDATE",
    skip_locked: "FOR UPDATE SKIP LOCKED",
    current_server_run: "(SELECT id FROM {server_run} WHERE server_id = @@server_id)",
    is_server_run: "(SELECT id FROM {server_run} WHERE server_id = @@server_id) <=> ?",
    by_index: "FORCE INDEX (?)",
    among: concat!("IN (SELECT n FROM ", numbers!(), " numbers)"),
    parked_rows: "JSON_TABLE(?, '$[*]' COLUMNS (
            position BIGINT PATH '$.position',
            key VARCHAR(255) PATH '$.key',
            type VARCHAR(128) PATH '$.type',
            state VARCHAR(16) PATH '$.state',
            blocks_key BOOLEAN PATH '$.blocks_key',
            attempts BIGINT PATH '$.attempts',
            delay BIGINT PATH '$.delay',
            error TEXT PATH '$.error',
            fingerprint VARCHAR(64) PATH '$.fingerprint',
            again BOOLEAN PATH '$.again')) AS r",
    vendor_rows: "JSON_TABLE(?, '$[*]' COLUMNS (vendor VARCHAR(120) PATH '$')) AS r",
    taken_rows: "JSON_TABLE(?, '$[*]' COLUMNS (
            position BIGINT PATH '$.position',
            fires BOOLEAN PATH '$.fires',
            lease BIGINT PATH '$.lease',
            token VARCHAR(255) PATH '$.token',
            key_window BIGINT PATH '$.key_window',
            failures BIGINT PATH '$.failures')) AS r",
    settled_rows: "JSON_TABLE(?, '$[*]' COLUMNS (
            position BIGINT PATH '$.position',
            attempt BIGINT PATH '$.attempt',
            state VARCHAR(16) PATH '$.state',
            unsent BOOLEAN PATH '$.unsent',
            renewed BOOLEAN PATH '$.renewed',
            failures BIGINT PATH '$.failures',
            delay BIGINT PATH '$.delay',
            provider_ref TEXT PATH '$.provider_ref',
            http_code BIGINT PATH '$.http_code',
            error_code TEXT PATH '$.error_code',
            error TEXT PATH '$.error')) AS r",
    job_rows: "JSON_TABLE(?, '$[*]' COLUMNS (job VARCHAR(120) PATH '$')) AS r",
    uuid: "BINARY(16)",
    big_integer: "SIGNED",
    text: "CHAR",
    header: "JSON_UNQUOTE(JSON_EXTRACT(o.headers, '$.\"?\"'))",
    kind_and_colon: "CONCAT(?, ':')",
    replay_cursor: "CONCAT('replay:', ?)",
    log_reader: "CONCAT('consumer:', ?)",
    // Compared, the index has them in order.
    unfinished: "unfinished = TRUE",
    // Late committers are left out: they fill holes that are younger than a transaction.
    is_behind: concat!(
        "EXISTS (
            SELECT 1
            FROM {outbox} o
            WHERE o.position > GREATEST(c.position, ",
        newest_of!("c.p"),
        ")
                AND o.time <= {after -?} AND o.type <> '')"
    ),
    // The columns of the ticks, and not of a derived table with the binds: MariaDB 10.11.19 forgets those at
    // the second execution of a prepared statement, where a subquery names them.
    with_cursor: "
        WITH s AS (
            SELECT t.id AS p, u.id AS w, t.newest AS p_newest, u.newest AS w_newest,
                COALESCE(
                    (SELECT min(h.first) FROM {holes} h WHERE h.closed_by > t.id AND h.opened_by <= t.id),
                    t.newest + 1) AS first_open
            FROM {ticks} t
            CROSS JOIN {ticks} u
            WHERE t.id = (SELECT max(id) FROM {ticks} WHERE id <= ?)
                AND u.id = (SELECT max(id) FROM {ticks} WHERE id <= ?)
        )",
    // Most messages stand before the first open hole, and are compared with no hole.
    is_settled: concat!(
        "o.type <> '' AND (o.position < s.first_open OR o.position <= s.p_newest AND NOT ",
        is_hole!("s.p"),
        "
            OR o.position <= ? AND o.position <= s.w_newest AND NOT ",
        is_hole!("s.w"),
        ")"
    ),
    is_unsettled: concat!(
        "o.type <> '' AND o.position >= s.first_open
            AND (o.position > s.p_newest OR ",
        is_hole!("s.p"),
        ")
            AND NOT (o.position <= ? AND o.position <= s.w_newest AND NOT ",
        is_hole!("s.w"),
        ")"
    ),
    replay_start: "min(o.position) - 1",
};
