//! Statements that delete what nobody needs, and that tell who is behind.

// Whatever a reader's memory names that is older than a second, its row names too. Never the newest: an id that were made
// anew would be another snapshot under the same name. One process at a time, so that no two wait for each other.
pub(super) const THIN: &str = "DELETE FROM {ticks}
    WHERE (SELECT pg_try_advisory_xact_lock(hashtextextended('thin {ticks}', 0))) AND id = ANY(ARRAY(
        SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY date_trunc(
                CASE WHEN at < clock_timestamp() - interval '1 hour' THEN 'minute' ELSE 'second' END, at) ORDER BY id) AS nth
            FROM {ticks} t WHERE id > 0 AND at < clock_timestamp() - interval '10 seconds'
                AND id < (SELECT max(id) FROM {ticks})
                AND NOT EXISTS (SELECT FROM {cursors} c WHERE t.id IN (c.p, c.w, c.ahead_p, c.ahead_w))
        ) old WHERE nth > 1 LIMIT 100000))";

// By age alone would lose what a reader has yet to see, so the bound is a tick: the newest that is old enough,
// or that of the reader furthest behind. Without a reader there is none. (txid, position) is walked no
// further than that tick reaches. In turn with who redacts, for each locks many rows and in another order.
pub(super) const PURGE: &str = "WITH bound AS MATERIALIZED (
        SELECT snapshot FROM {ticks} WHERE id = (
            SELECT CASE WHEN min(p) FILTER (WHERE lease_until < {never}) < old.id
                THEN min(p) FILTER (WHERE lease_until < {never}) ELSE old.id END FROM {cursors},
                (SELECT max(id) AS id FROM {ticks} WHERE at <= clock_timestamp() - ? * interval '1 microsecond') old
            GROUP BY old.id))
    DELETE FROM {outbox} WHERE {turn} AND position = ANY(ARRAY(
        SELECT o.position FROM {outbox} o
        WHERE o.txid < (SELECT pg_snapshot_xmax(snapshot) FROM bound)
            AND pg_visible_in_snapshot(o.txid, (SELECT snapshot FROM bound))
            AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.position = o.position)
        ORDER BY o.txid, o.position LIMIT ?))";
pub(super) const PURGE_TICKS: &str =
    "DELETE FROM {ticks} WHERE id > 0 AND id < (SELECT min(p) FROM {cursors} WHERE lease_until < {never})
        AND id < (SELECT max(id) FROM {ticks} WHERE at <= clock_timestamp() - ? * interval '1 microsecond')";
// By outbox_txid_position: newcomers since the cursor's tick, and those that committed late. Not from that tick's
// xmin on, which a long transaction anywhere in the cluster holds far behind.
pub(super) const BEHIND: &str = "(SELECT (
        SELECT o.position FROM {outbox} o
        WHERE o.txid >= pg_snapshot_xmax(s.p) AND o.txid < pg_snapshot_xmax(s.old)
            AND pg_visible_in_snapshot(o.txid, s.old)
            AND (o.position > c.position OR NOT pg_visible_in_snapshot(o.txid, s.w))
        ORDER BY o.txid, o.position LIMIT 1
    ) IS NOT NULL OR EXISTS (SELECT FROM pg_snapshot_xip(s.p) late
        WHERE pg_visible_in_snapshot(late, s.old) AND (
            SELECT o.position FROM {outbox} o WHERE o.txid >= late AND o.txid <= late
                AND (o.position > c.position OR NOT pg_visible_in_snapshot(late, s.w))
            ORDER BY o.txid, o.position LIMIT 1) IS NOT NULL
    ) FROM (SELECT
        (SELECT snapshot FROM {ticks} WHERE id = c.p) AS p, (SELECT snapshot FROM {ticks} WHERE id = c.w) AS w,
        (SELECT snapshot FROM {ticks} WHERE at <= clock_timestamp() - ? * interval '1 microsecond'
            ORDER BY id DESC LIMIT 1) AS old
    ) s)";

// Before the first position of its window a reader is at the end of the tick p, and beyond it at a position.
pub(super) const BACKLOG: &str = "WITH c AS MATERIALIZED (
        SELECT position, (SELECT pg_snapshot_xmax(snapshot) FROM {ticks} WHERE id = p) AS x
        FROM {cursors} WHERE destination = $1
    ) SELECT count(*), COALESCE((EXTRACT(epoch FROM clock_timestamp() - min(time)) * 1000000)::bigint, 0) FROM (
        (SELECT time FROM {outbox} WHERE (SELECT position FROM c) = 0 AND txid >= (SELECT x FROM c)
            ORDER BY txid, position LIMIT $2)
        UNION ALL
        (SELECT time FROM {outbox} WHERE (SELECT position FROM c) > 0 AND position > (SELECT position FROM c)
            AND (txid >= (SELECT x FROM c)) IS TRUE ORDER BY position LIMIT $2)
    ) unsettled";
