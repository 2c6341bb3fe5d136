//! A log of ten million messages, and a million of them given up.
use crate::failure::Failure;
use sqlx::AssertSqlSafe;
use std::time::Instant;
use twinbox::{Dialect, Store};

/// The parts of SQL that each database writes in its own way.
pub(super) struct Sql {
    /// Before the name of a table.
    tables: &'static str,
    key: &'static str,
    divided_by: &'static str,
    message_id: &'static str,
    /// The time so many tenths of a second ago: what stands before and behind the number.
    ago: (&'static str, &'static str),
    blob: &'static str,
    /// The statements behind the fill, for statistics and the disk.
    after: &'static [&'static str],
}

pub(super) const POSTGRES: Sql = Sql {
    tables: "twinbox.",
    key: "key",
    divided_by: "/",
    message_id: "gen_random_uuid()",
    ago: ("now() - interval '100 milliseconds' * ", ""),
    blob: "bytea",
    after: &["VACUUM ANALYZE twinbox.dead_letters, twinbox.parked_messages, twinbox.outbox", "CHECKPOINT"],
};
pub(super) const MARIADB: Sql = Sql {
    tables: "twinbox_",
    key: "`key`",
    divided_by: "DIV",
    message_id: "random_bytes(16)",
    ago: ("UTC_TIMESTAMP(6) - INTERVAL 100000 * ", " MICROSECOND"),
    blob: "binary",
    after: &["ANALYZE TABLE twinbox_dead_letters, twinbox_parked_messages, twinbox_outbox"],
};
pub(super) const SQLITE: Sql = Sql {
    tables: "twinbox_",
    key: "key",
    divided_by: "/",
    message_id: "randomblob(16)",
    ago: ("CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 100000 * ", ""),
    blob: "blob",
    after: &["ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"],
};

/// Fills the tables, and says how long it took.
pub(super) async fn fill<DB: Dialect>(store: &Store<DB>, sql: &Sql) -> Result<(), Failure> {
    let started = Instant::now();
    let mut conn = store.pool().acquire().await?;
    for statement in sql.fills() {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *conn).await?;
    }
    for statement in sql.after {
        sqlx::raw_sql(AssertSqlSafe(*statement)).execute(&mut *conn).await?;
    }
    println!("filled in {} s", started.elapsed().as_secs());
    Ok(())
}

impl Sql {
    fn fills(&self) -> [String; 4] {
        let Self { tables, key, divided_by, message_id, ago, blob, .. } = self;
        // A consumer and a destination have 30 groups each, of very different sizes.
        let squared = format!("((n % 1000) * (n % 1000) {divided_by} 1000)");
        let group = format!("concat('0000000000', 10 + {squared} * {squared} * 30 {divided_by} 1000000)");
        let ago = format!("{} (1000000 - n){}", ago.0, ago.1);
        let payload = "x".repeat(450);
        [
            format!("INSERT INTO {tables}consumers (consumer) VALUES ('billing.invoice')"),
            format!(
                "INSERT INTO {tables}outbox (id, type, {key}, payload)
                {}
                SELECT concat('order-', n), 'orders.placed', concat('customer-', n % 5000),
                    CAST('{{}}' AS {blob})
                FROM numbers",
                numbers(10)
            ),
            format!(
                "INSERT INTO {tables}dead_letters (consumer, message_id, reason, error, fingerprint, attempts,
                    event_id, source, type, version, {key}, time, content_type, payload, given_up_at)
                {}
                SELECT 'billing.invoice', {message_id}, 'rejected', concat('order ', n, ' has no customer'),
                    {group}, 1, concat('order-', n), 'shop', 'orders.placed', 1,
                    concat('customer-', n % 5000), {ago}, 'application/json',
                    CAST('{payload}' AS {blob}), {ago}
                FROM numbers
                WHERE n % 3 > 0",
                numbers(1)
            ),
            format!(
                "INSERT INTO {tables}parked_messages (destination, position, {key}, type, state, blocks_key,
                    attempts, next_attempt_at, first_error, last_error, fingerprint, parked_at)
                {}
                SELECT 'warehouse', n, concat('customer-', n % 5000), 'orders.placed', 'dead', false, 5,
                    {ago}, 'refused', 'refused', {group}, {ago}
                FROM numbers
                WHERE n % 3 = 0",
                numbers(1)
            ),
        ]
    }
}

/// The table `numbers`: 1 to so many millions.
fn numbers(millions: u32) -> String {
    format!(
        "WITH RECURSIVE thousand (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM thousand WHERE n < 999),
        numbers (n) AS (
            SELECT 1000000 * c.n + 1000 * b.n + a.n + 1
            FROM thousand a, thousand b, thousand c
            WHERE c.n < {millions}
        )"
    )
}
