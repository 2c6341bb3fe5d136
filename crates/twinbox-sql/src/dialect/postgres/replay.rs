//! Which messages a cursor has settled, and where a replay of them begins.

pub(super) const SETTLED: [&str; 4] = [
    "WITH s AS MATERIALIZED (
        SELECT (SELECT snapshot FROM {ticks} WHERE id = ?) p, (SELECT snapshot FROM {ticks} WHERE id = ?) w
    ) ",
    "(pg_visible_in_snapshot(o.txid, s.p) OR pg_visible_in_snapshot(o.txid, s.w) AND o.position <= ?)",
    "min(o.txid::text::bigint)",
    // What is older than the snapshot is in it.
    "o.txid >= COALESCE(pg_snapshot_xmin(s.p), '0'::xid8) AND NOT COALESCE(
        pg_visible_in_snapshot(o.txid, s.p) OR pg_visible_in_snapshot(o.txid, s.w) AND o.position <= ?, false)",
];

pub(super) const START_BEHIND: &str = "SELECT max(id) FROM {ticks}
    WHERE pg_snapshot_xmax(snapshot) <= $1::bigint::text::xid8 AND id <= $2
        AND EXISTS (SELECT FROM {ticks} WHERE id = $2) AND EXISTS (SELECT FROM {ticks} WHERE id = $3)";
