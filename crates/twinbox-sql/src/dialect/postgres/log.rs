//! Reading the log through snapshot windows, and deleting what every reader has settled.
use super::super::portable;
use crate::{
    Dialect as _, Error, ErrorKind,
    statement::query_of,
    texts::{Log, Retention},
};
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _};

pub(super) const LOG: Log = Log {
    // By outbox_txid_position in both branches. ORDER BY keeps the planner on it: to find "some" row it would
    // take a table scan, and read the whole table when there is none. A range in the place of `txid = late`,
    // because the primary key has the order of positions too. Once a second a tick is made even without
    // messages, so that the rows of a long open transaction fall behind the last tick's xmax, and not every
    // look reads them again.
    newest_tick: "
        WITH last AS MATERIALIZED (
            SELECT id, snapshot, taken_at
            FROM {ticks}
            ORDER BY id DESC
            LIMIT 1
        ), made AS (
            INSERT INTO {ticks} (id, snapshot, taken_at)
            SELECT id + 1, pg_current_snapshot(), greatest(clock_timestamp(), taken_at)
            FROM last
            WHERE id <= ? AND (
                taken_at < clock_timestamp() - interval '1 second'
                OR (
                    SELECT position
                    FROM {outbox}
                    WHERE txid >= pg_snapshot_xmax((SELECT snapshot FROM last))
                    ORDER BY txid, position
                    LIMIT 1
                ) IS NOT NULL
                OR EXISTS (
                    SELECT 1
                    FROM pg_snapshot_xip((SELECT snapshot FROM last)) late
                    WHERE pg_visible_in_snapshot(late, pg_current_snapshot()) AND (
                        SELECT position
                        FROM {outbox}
                        WHERE txid >= late AND txid <= late
                        ORDER BY txid, position
                        LIMIT 1
                    ) IS NOT NULL))
            ON CONFLICT DO NOTHING
            RETURNING id
        )
        SELECT COALESCE((SELECT id FROM made), (SELECT id FROM last)), {flushed}",

    // By outbox_txid_position; OFFSET 0 keeps the planner from walking the primary key for min and max. The
    // run and late committers are looked for only without newcomers: otherwise a page is read, which compares
    // the run.
    window_bounds: "
        SELECT min(position) - 1 AS floor, max(position) AS ceiling,
            (SELECT snapshot::text FROM {ticks} WHERE id = $1) AS from_snapshot,
            (SELECT snapshot::text FROM {ticks} WHERE id = $2) AS to_snapshot,
            min(position) IS NULL AND NOT EXISTS (
                SELECT
                FROM {ticks} t, pg_snapshot_xip(t.snapshot) late
                WHERE t.id = $1
                    AND pg_visible_in_snapshot(late, (SELECT snapshot FROM {ticks} WHERE id = $2))
            ) AS is_late_free,
            min(position) IS NOT NULL OR ({server_run_id}() = $3) IS TRUE AS is_server_run
        FROM (
            SELECT position
            FROM {outbox}
            WHERE txid >= (SELECT pg_snapshot_xmax(snapshot) FROM {ticks} WHERE id = $1)
                AND txid < (SELECT pg_snapshot_xmax(snapshot) FROM {ticks} WHERE id = $2)
            OFFSET 0
        ) newcomers",

    // Late committers by outbox_txid_position, newcomers by the primary key. `IS TRUE` keeps the planner off
    // the other index, where it would sort. A range of one txid keeps it off the primary key, which it would
    // walk from end to end once a bulk transaction has made one txid common. The join keeps the order in
    // practice, and the reader sorts in case it does not: a second sort here cost a quarter of the statement.
    // A standby can lack rows that the tick promises, and so can a server that forgot commits: neither is the
    // run.
    page: "
        WITH s AS MATERIALIZED (
            SELECT (SELECT snapshot FROM {ticks} WHERE id = $2) p,
                (SELECT snapshot FROM {ticks} WHERE id = $3) w, ({server_run_id}() = $7) IS TRUE is_run
        )
        SELECT (s.p IS NOT NULL AND s.w IS NOT NULL AND s.is_run) AS is_readable, u.*
        FROM s
        LEFT JOIN (
            SELECT *
            FROM (
                (
                    SELECT l.*
                    FROM (
                        SELECT x
                        FROM s, pg_snapshot_xip(s.p) x
                        WHERE pg_visible_in_snapshot(x, s.w)
                    ) late
                    CROSS JOIN LATERAL (
                        SELECT position, {message}
                        FROM {outbox}
                        WHERE (txid, position) > (late.x, $1) AND txid <= late.x
                        ORDER BY txid, position
                        LIMIT $6
                    ) l
                )
                UNION ALL
                (
                    SELECT position, {message}
                    FROM {outbox}
                    WHERE position > greatest($1, $4) AND position <= $5
                        AND (txid >= (SELECT pg_snapshot_xmax(p) FROM s)) IS TRUE
                        AND pg_visible_in_snapshot(txid, (SELECT w FROM s))
                    ORDER BY position
                    LIMIT $6
                )
            ) both_branches
            ORDER BY position
            LIMIT $6
        ) u ON true",

    // A reader uses the ticks from its first unsettled window to the newest one. Of a reader that is stuck
    // for an hour only those that its row names are kept, and one a minute. A reader may take a tick for the
    // newest until the next is made, and ten seconds later its row names it. The newest tick stays: its id,
    // made again, would be another snapshot. One process at a time, so that no two wait for each other. The
    // clock is outside of NOT EXISTS, which the server would execute for each tick otherwise.
    thin_ticks: "
        DELETE FROM {ticks}
        WHERE (SELECT lockable FROM {locks} WHERE name = 'thin ticks' FOR UPDATE SKIP LOCKED)
            AND id = ANY(ARRAY(
                SELECT id
                FROM (
                    SELECT id, row_number() OVER (
                        PARTITION BY date_trunc(CASE WHEN is_old THEN 'minute' ELSE 'second' END, taken_at)
                        ORDER BY id) AS nth
                    FROM (
                        SELECT id, taken_at, taken_at < clock_timestamp() - interval '1 hour' AS is_old
                        FROM {ticks}
                        WHERE id > 0
                            AND id < (
                                SELECT max(id)
                                FROM {ticks}
                                WHERE taken_at < clock_timestamp() - interval '10 seconds')
                    ) t
                    WHERE NOT EXISTS (
                            SELECT
                            FROM {cursors} c
                            WHERE t.id IN (c.p, c.w, c.ahead_p, c.ahead_w)
                                OR NOT t.is_old AND t.id BETWEEN c.p AND c.ahead_w)
                        AND NOT EXISTS (
                            SELECT
                            FROM {replays} r
                            WHERE r.state = 'running' AND t.id IN (r.p, r.w))
                ) old
                WHERE nth > 1
                LIMIT 100000))",
    tick_now: "
        INSERT INTO {ticks} (id, snapshot, taken_at)
        SELECT id + 1, pg_current_snapshot(), greatest(clock_timestamp(), taken_at)
        FROM (SELECT id, taken_at FROM {ticks} ORDER BY id DESC LIMIT 1) last
        ON CONFLICT DO NOTHING
        RETURNING id, {flushed}",
    tick_at: "
        SELECT max(id)
        FROM {ticks}
        WHERE taken_at <= $1 OR id = 0",
    tick_before: "
        SELECT max(id)
        FROM {ticks}
        WHERE pg_snapshot_xmax(snapshot) <= $1::bigint::text::xid8 AND id <= $2
            AND EXISTS (SELECT FROM {ticks} WHERE id = $2)
            AND EXISTS (SELECT FROM {ticks} WHERE id = $3)",
    lock_ticks: "LOCK TABLE {ticks} IN SHARE MODE",

    // Before the first position of its window a reader is at the end of the tick p, and beyond it at a
    // position.
    backlog: "
        WITH c AS MATERIALIZED (
            SELECT position, (
                SELECT pg_snapshot_xmax(snapshot)
                FROM {ticks}
                WHERE id <= p
                ORDER BY id DESC
                LIMIT 1
            ) AS x
            FROM {cursors}
            WHERE destination = $1
        )
        SELECT count(*) AS messages, COALESCE(-{until min(time)}, 0) AS oldest_age
        FROM (
            (
                SELECT time
                FROM {outbox}
                WHERE (SELECT position FROM c) = 0 AND txid >= (SELECT x FROM c)
                ORDER BY txid, position
                LIMIT $2
            )
            UNION ALL
            (
                SELECT time
                FROM {outbox}
                WHERE (SELECT position FROM c) > 0 AND position > (SELECT position FROM c)
                    AND (txid >= (SELECT x FROM c)) IS TRUE
                ORDER BY position
                LIMIT $2
            )
        ) unsettled",
    ..portable::LOG
};

pub(super) const RETENTION: Retention = Retention {
    // By age alone it would lose messages that a reader has yet to see, so the bound is a tick: the newest
    // that is old enough, or that of the reader furthest behind. Without a reader there is none. (txid,
    // position) is walked no further than that tick reaches. It takes turns with the redaction, because both
    // lock many rows in different orders.
    purge: "
        WITH bound AS MATERIALIZED (
            SELECT snapshot
            FROM {ticks}
            WHERE id <= (
                SELECT CASE WHEN min(p) FILTER (WHERE lease_until < {never}) < old.id
                    THEN min(p) FILTER (WHERE lease_until < {never}) ELSE old.id END
                FROM {cursors}, (
                    SELECT max(id) AS id
                    FROM {ticks}
                    WHERE taken_at <= clock_timestamp() - ?::float8 * interval '1 microsecond'
                ) old
                GROUP BY old.id)
            ORDER BY id DESC
            LIMIT 1
        )
        DELETE FROM {outbox}
        WHERE {takes_turns} AND position = ANY(ARRAY(
            SELECT o.position
            FROM {outbox} o
            WHERE o.txid < (SELECT pg_snapshot_xmax(snapshot) FROM bound)
                AND pg_visible_in_snapshot(o.txid, (SELECT snapshot FROM bound))
                AND NOT EXISTS (SELECT 1 FROM {parked_messages} p WHERE p.position = o.position)
            ORDER BY o.txid, o.position
            LIMIT ?))",
    purge_ticks: "
        DELETE FROM {ticks}
        WHERE id > 0
            AND id < (
                SELECT max(id)
                FROM {ticks}
                WHERE id <= (SELECT min(p) FROM {cursors} WHERE lease_until < {never}))
            AND id < (
                SELECT max(id)
                FROM {ticks}
                WHERE taken_at <= clock_timestamp() - ?::float8 * interval '1 microsecond')",
    ..portable::RETENTION
};

/// Refuses a server on which the log cannot be read.
pub(super) async fn check(conn: &mut PgConnection, namespace: &str) -> Result<(), Error> {
    let sentinel = Postgres::table(namespace, "sentinel");
    let facts = format!(
        "SELECT pg_is_in_recovery() AS is_standby,
            (
                SELECT bool_and(xmin::text::bigint = (txid::text::numeric % 4294967296::numeric)::bigint)
                FROM {sentinel}
            ) AS is_original,
            (
                SELECT seqcache = 1
                FROM pg_sequence
                WHERE seqrelid = pg_get_serial_sequence($1, 'position')::regclass::oid
            ) AS is_uncached"
    );
    let facts = query_of::<Postgres>(AssertSqlSafe(facts), false);
    let facts = facts.bind(Postgres::table(namespace, "outbox")).fetch_one(conn).await?;
    if facts.try_get("is_standby")? {
        return Err(Error::new(
            ErrorKind::Standby,
            "this server is a standby: connect to the primary, messages are never read from a replica",
        ));
    }
    if facts.try_get::<Option<bool>, _>("is_original")? != Some(true) {
        return Err(Error::new(
            ErrorKind::Restored,
            "this database was restored from a dump, and the log's transaction ids mean nothing here: \
             run `twinbox destinations rebase` before anything reads it",
        ));
    }
    if facts.try_get::<Option<bool>, _>("is_uncached")? != Some(true) {
        return Err(Error::new(
            ErrorKind::Configuration,
            "the outbox sequence caches values, which breaks the order of keys: \
             ALTER TABLE outbox ALTER COLUMN position SET CACHE 1",
        ));
    }
    Ok(())
}
