//! What the fragments of statements are on Postgres.
use crate::{dialect::Fragments, reader_name};

/// Only this transaction, and only from a weaker setting: `local` flushes here and waits for no standby.
macro_rules! flushed {
    () => {
        "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
            THEN set_config('synchronous_commit', 'on', true) END"
    };
}
pub(super) use flushed;

pub(super) const FRAGMENTS: Fragments = Fragments {
    now: "clock_timestamp()",
    after: "(clock_timestamp() + (?)::float8 * interval '1 microsecond')",
    // No server computes with an infinite time.
    until: "(EXTRACT(epoch FROM CASE WHEN ? < '0001-01-01' THEN '0001-01-01' WHEN ? > '9999-12-31'
            THEN '9999-12-31' ELSE ? END - clock_timestamp()) * 1000000::numeric)::bigint",
    readable: "CASE WHEN ? BETWEEN '0001-01-01 00:00:00+00 BC' AND '9999-12-31 23:59:59.999999+00' THEN ?
            ELSE clock_timestamp() END",
    never: "'9999-12-31 23:59:59.999999+00'",
    bounded_wait: "(SELECT set_config('lock_timeout', '2s', true)) IS NOT NULL",
    takes_turns: "(SELECT lockable FROM {locks} WHERE name = 'change messages' FOR UPDATE)",
    lock_number: "?::bigint",
    flushed: flushed!(),
    returning: "RETURNING ?",
    returning_flushed: "RETURNING {flushed}",
    unless_there: "ON CONFLICT (?) DO NOTHING",
    unflushed: "(SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL",
    lock_row: "FOR UPDATE",
    skip_locked: "FOR UPDATE SKIP LOCKED",
    current_server_run: "{server_run_id}()",
    is_server_run: "(SELECT {server_run_id}()) = ?",
    // An array, because a join could be planned over the whole table.
    by_index: "",
    among: "= ANY(ARRAY(SELECT n::bigint FROM jsonb_array_elements_text(?::jsonb) n))",
    parked_rows: "jsonb_to_recordset(?::jsonb) AS r (position bigint, key text, type text, state text,
            blocks_key boolean, attempts bigint, delay bigint, error text, fingerprint text, again boolean)",
    vendor_rows: "jsonb_array_elements_text(?::jsonb) AS r (vendor)",
    taken_rows: "jsonb_to_recordset(?::jsonb) AS r (position bigint, fires boolean, lease bigint, token text,
            key_window bigint, failures bigint)",
    settled_rows: "jsonb_to_recordset(?::jsonb) AS r (position bigint, attempt bigint, state text,
            unsent boolean, renewed boolean, failures bigint, delay bigint, provider_ref text,
            http_code bigint, error_code text, error text)",
    job_rows: "jsonb_array_elements_text(?::jsonb) AS r (job)",
    uuid: "uuid",
    big_integer: "bigint",
    text: "text",
    // Postgres makes no text of a NUL, which a foreign header may hold.
    header: "CAST(CAST(replace(o.headers, '\\u0000', '\\ufffd') AS jsonb) ->> '?'::text AS text)",
    kind_and_colon: "? || ':'",
    replay_cursor: reader_name::REPLAY_CURSOR,
    log_reader: reader_name::LOG_READER,
    unfinished: "unfinished",
    // By outbox_txid_position: newcomers since the cursor's tick, and late committers. Not from that tick's
    // xmin on, which a long transaction anywhere in the cluster holds far behind.
    is_behind: "(
            SELECT (
                SELECT o.position
                FROM {outbox} o
                WHERE o.txid >= pg_snapshot_xmax(s.p) AND o.txid < pg_snapshot_xmax(s.old)
                    AND pg_visible_in_snapshot(o.txid, s.old)
                    AND (o.position > c.position OR NOT pg_visible_in_snapshot(o.txid, s.w))
                ORDER BY o.txid, o.position
                LIMIT 1
            ) IS NOT NULL OR EXISTS (
                SELECT
                FROM pg_snapshot_xip(s.p) late
                WHERE pg_visible_in_snapshot(late, s.old) AND (
                    SELECT o.position
                    FROM {outbox} o
                    WHERE o.txid >= late AND o.txid <= late
                        AND (o.position > c.position OR NOT pg_visible_in_snapshot(late, s.w))
                    ORDER BY o.txid, o.position
                    LIMIT 1
                ) IS NOT NULL
            )
            FROM (
                SELECT (SELECT snapshot FROM {ticks} WHERE id <= c.p ORDER BY id DESC LIMIT 1) AS p,
                    (SELECT snapshot FROM {ticks} WHERE id <= c.w ORDER BY id DESC LIMIT 1) AS w,
                    (
                        SELECT snapshot
                        FROM {ticks}
                        WHERE taken_at <= clock_timestamp() - ?::float8 * interval '1 microsecond'
                        ORDER BY id DESC
                        LIMIT 1
                    ) AS old
            ) s)",
    with_cursor: "
        WITH s AS MATERIALIZED (
            SELECT (SELECT snapshot FROM {ticks} WHERE id <= ? ORDER BY id DESC LIMIT 1) p,
                (SELECT snapshot FROM {ticks} WHERE id <= ? ORDER BY id DESC LIMIT 1) w
        )",
    is_settled: "(pg_visible_in_snapshot(o.txid, s.p)
            OR pg_visible_in_snapshot(o.txid, s.w) AND o.position <= ?)",
    // A transaction that is older than the snapshot is in it.
    is_unsettled: "o.txid >= COALESCE(pg_snapshot_xmin(s.p), '0'::xid8)
            AND NOT COALESCE(
                pg_visible_in_snapshot(o.txid, s.p)
                    OR pg_visible_in_snapshot(o.txid, s.w) AND o.position <= ?,
                false)",
    replay_start: "min(o.txid::text::bigint)",
};
