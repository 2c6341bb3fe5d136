//! The statements that both tables of parked messages share.
use crate::Dialect;

/// A table of parked messages, by what differs.
pub(crate) struct Table {
    name: &'static str,
    /// The number of a row: of two rows of a key the later one has the larger.
    row: &'static str,
    /// Whose rows, with binds.
    owner: &'static str,
    /// Which rows later ones of their key wait behind.
    holds: &'static str,
    /// Which rows are to be tried again.
    waits: &'static str,
    /// Which rows block all.
    blocks: &'static str,
    attempts: &'static str,
    /// The message of a row.
    payload: &'static str,
    joined: &'static str,
}

/// What destinations did not take. The messages are in the log.
pub(crate) const LOG: Table = Table {
    name: "{parked}",
    row: "position",
    owner: "p.destination = ?",
    holds: "p.holds = true",
    waits: "p.state = 'waiting'",
    blocks: "p.state = 'blocking'",
    attempts: "p.attempts",
    payload: "o",
    joined: "JOIN {outbox} o ON o.position = p.position",
};

/// What consumers could not handle yet. The messages are in the rows.
pub(crate) const DELIVERIES: Table = Table {
    name: "{parked_deliveries}",
    row: "id",
    owner: "p.consumer = ? AND p.partition = ?",
    holds: "true",
    waits: "true",
    blocks: "false",
    attempts: "CAST(0 AS BIGINT)",
    payload: "p",
    joined: "",
};

impl Table {
    /// Of each key that others wait behind: the key, its first row, in how many microseconds that is to be tried again if
    /// it is, and after how many attempts. By parked_key or parked_deliveries_key, and the primary key: subqueries, because
    /// a join may be planned over the rows of all owners. Binds: the owner, three times.
    pub(crate) fn heads<DB: Dialect>(&self) -> String {
        let Self { name, row, owner, holds, waits, attempts, .. } = self;
        let left = DB::LEASE_LEFT.replace("lease_until", "p.next_attempt_at");
        let nth = format!("FROM {name} p WHERE {owner} AND p.{row} = first.nth");
        format!(
            "SELECT first.key, first.nth, (SELECT CASE WHEN {waits} THEN {left} END {nth}), (SELECT {attempts} {nth}) \
            FROM (SELECT p.key, min(p.{row}) AS nth FROM {name} p \
                WHERE {owner} AND {holds} AND p.key IS NOT NULL GROUP BY p.key) first"
        )
    }

    /// Rows without a key that are due. By parked_keyless or parked_deliveries_keyless. Binds: the owner, how many.
    pub(crate) fn keyless(&self) -> String {
        let Self { name, row, owner, waits, attempts, .. } = self;
        format!(
            "SELECT p.{row}, {attempts} FROM {name} p WHERE {owner} AND {waits} AND p.key IS NULL \
            AND p.next_attempt_at <= (SELECT {{now}}) ORDER BY p.next_attempt_at LIMIT ?"
        )
    }

    /// When the first row without a key is due, in microseconds. By the same. Binds: the owner.
    pub(crate) fn next_keyless<DB: Dialect>(&self) -> String {
        let Self { name, owner, waits, .. } = self;
        let left = DB::LEASE_LEFT.replace("lease_until", "p.next_attempt_at");
        format!(
            "SELECT {left} FROM {name} p WHERE {owner} AND {waits} AND p.key IS NULL \
            ORDER BY p.next_attempt_at LIMIT 1"
        )
    }

    /// Rows of a key from one on, in order: whether each is to be tried again now, and after how many attempts. By
    /// parked_key or parked_deliveries_key. Binds: the owner, the key, the row, how many.
    pub(crate) fn run(&self) -> String {
        let Self { name, row, owner, holds, waits, attempts, .. } = self;
        format!(
            "SELECT p.{row}, {waits} AND p.next_attempt_at <= (SELECT {{now}}), {attempts} FROM {name} p \
            WHERE {owner} AND {holds} AND p.key = ? AND p.{row} >= ? ORDER BY p.{row} LIMIT ?"
        )
    }

    /// How many bytes the messages of rows take, by primary key. Binds: the owner, the rows as JSON.
    pub(crate) fn sizes(&self) -> String {
        let Self { name, row, owner, payload, joined, .. } = self;
        format!(
            "SELECT p.{row}, CAST(length({payload}.payload) + COALESCE(length({payload}.headers), 0) AS BIGINT) \
            FROM {name} p {joined} WHERE {owner} AND p.{row} {{among}}"
        )
    }

    /// Deletes rows, by primary key. Binds: the owner, the rows as JSON.
    pub(crate) fn delete(&self) -> String {
        let Self { name, row, owner, .. } = self;
        format!("DELETE FROM {name} AS p WHERE {owner} AND p.{row} {{among}}")
    }

    /// How many rows wait, at most so many; whether others wait behind any row; whether one blocks all; whether it is the
    /// run of the server that the owner knows. By parked_waiting, parked_key and parked_blocking, or
    /// parked_deliveries_key. Binds: the owner, how many, the owner twice more, and the run.
    pub(crate) fn count(&self) -> String {
        let Self { name, owner, waits, holds, blocks, .. } = self;
        format!(
            "SELECT (SELECT count(*) FROM (SELECT 1 FROM {name} p WHERE {owner} AND {waits} LIMIT ?) AS waiting), \
            EXISTS (SELECT 1 FROM {name} p WHERE {owner} AND {holds} AND p.key IS NOT NULL), \
            EXISTS (SELECT 1 FROM {name} p WHERE {owner} AND {blocks}), {{is_run}}"
        )
    }
}

/// Parks messages of a destination, or parks them again, by primary key. What an operator has decided stays decided: a row
/// that is not waiting any more, and one that was parked before and is gone. Binds: the destination, the rows as JSON, the
/// destination.
pub(crate) fn park<DB: Dialect>() -> String {
    format!(
        "INSERT INTO {{parked}} AS p (destination, position, key, type, state, holds, attempts, next_attempt_at, \
            first_error, last_error) \
        SELECT ?, r.position, r.key, r.type, r.state, r.holds, r.attempts, {}, r.error, r.error FROM {} \
        WHERE NOT r.again OR EXISTS ( \
            SELECT 1 FROM {{parked}} k WHERE k.destination = ? AND k.position = r.position) \
        ON CONFLICT (destination, position) DO UPDATE SET state = excluded.state, holds = excluded.holds, \
            attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at, last_error = excluded.last_error \
        WHERE p.state = 'waiting'",
        DB::AFTER.replace('?', "r.delay"),
        DB::PARKED_ROWS
    )
}
