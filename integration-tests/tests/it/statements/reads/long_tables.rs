//! Long tables, in which all rows are of one owner.
use super::{
    columns::{Columns, columns},
    counting::Counting,
};
use crate::support::{
    databases::{MySql, Postgres},
    long,
    stores::{TestDb, World, sql_of},
};
use sqlx::{AssertSqlSafe, Sqlite};
use std::time::{SystemTime, UNIX_EPOCH};

/// The owner of all rows, and what is bound. It is a number, a text, and on MySQL a day.
pub(super) const VALUE: i64 = 20_260_101;

/// A database whose tables can be filled.
pub(super) trait LongTables: Counting {
    /// The rows of each table.
    fn rows() -> i64 {
        long::or(200_000, 10_000)
    }
    /// SQL of a new id of 16 bytes.
    const ID: &str;
    /// SQL of 32 bytes of row `n`.
    const HASH: &str;
    /// SQL of a small payload.
    const BYTES: &str;
    /// SQL that makes the tables take any rows.
    const BEFORE: &str;

    /// SQL of a time, so many seconds or microseconds after the one that is bound.
    fn after(units: &str) -> String;
    /// SQL of a text of row `n`.
    fn text() -> String;
    /// Fills the log, with positions and ticks after the one that is bound.
    fn log(numbers: &str, at: &str) -> Vec<String>;

    /// Fills each table that grows with the messages. `is_due`: half of the rows have a time that has
    /// passed; else none has.
    async fn fill(world: &World<Self>, is_due: bool) {
        let rows = Self::rows();
        let now = Self::since_bind(
            i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap(),
        );
        let middle = if is_due { now } else { now * 2 };
        let at = Self::after(&format!("n - {rows} / 2 + {middle}"));
        let (thousands, ones) = (usize::try_from(rows / 1_000).unwrap(), 1_000);
        let numbers = format!(
            "(SELECT (thousands.n - 1) * 1000 + numbers.n AS n FROM {} CROSS JOIN {}) numbers",
            Self::numbers(thousands).replace("numbers", "thousands"),
            Self::numbers(ones)
        );
        let mut fill = vec![Self::BEFORE.to_owned()];
        fill.extend(Self::inserts(&at).into_iter().map(|insert| format!("{insert} FROM {numbers}")));
        fill.extend(Self::log(&numbers, &at));
        let mut conn = world.pool().acquire().await.unwrap();
        for sql in fill {
            let ran = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *conn).await;
            ran.unwrap_or_else(|error| panic!("{error}: {sql}"));
        }
    }

    /// Statements that insert rows `n` into each table but the log, up to the `FROM`.
    fn inserts(at: &str) -> Vec<String> {
        let quote = if Self::NAME == "MySQL" { "`" } else { "" };
        let insert = |(table, columns): (&str, Columns)| {
            let names = columns.iter().map(|(name, _)| format!("{quote}{name}{quote}"));
            let values = columns.iter().map(|(_, value)| value.as_str());
            let (names, values) = (Vec::from_iter(names).join(", "), Vec::from_iter(values).join(", "));
            format!("INSERT INTO {} ({names}) SELECT {values}", Self::table_of(table))
        };
        columns::<Self>(at).into_iter().map(insert).collect()
    }

    /// The units from the time that is bound to another.
    fn since_bind(micros: i64) -> i64 {
        const BIND: i64 = 1_767_225_600;
        micros / 1_000_000 - BIND
    }
}

/// A cursor that has settled the beginning of the log.
fn cursor<DB: TestDb>() -> String {
    let table = DB::table_of("cursors");
    format!("INSERT INTO {table} (destination, p, w) VALUES ('{VALUE}', {VALUE} + 1, {VALUE} + 2)")
}

#[cfg(feature = "postgres")]
impl LongTables for Postgres {
    const ID: &str = "gen_random_uuid()";
    const HASH: &str = "sha256(n::text::bytea)";
    const BYTES: &str = "'{}'";
    const BEFORE: &str = "ALTER TABLE twinbox.inbox DISABLE TRIGGER USER;
        ALTER TABLE twinbox.idempotency_keys DISABLE TRIGGER USER;
        ALTER TABLE twinbox.webhook_receipts DISABLE TRIGGER USER;
        ALTER TABLE twinbox.bulk_actions DISABLE TRIGGER USER";

    /// With fewer it reads a table as a whole for a hundred rows.
    fn rows() -> i64 {
        long::or(200_000, 50_000)
    }

    fn after(units: &str) -> String {
        format!("(timestamptz '2026-01-01 00:00:00Z' + ({units}) * interval '1 second')")
    }

    fn text() -> String {
        "'k' || n".to_owned()
    }

    fn log(numbers: &str, at: &str) -> Vec<String> {
        vec![
            format!("SELECT setval(pg_get_serial_sequence('twinbox.outbox', 'position'), {VALUE})"),
            format!(
                "INSERT INTO twinbox.outbox (type, key, id, time, payload)
                SELECT 't', 'k', 'x' || n, {at}, '' FROM {numbers} ORDER BY n"
            ),
            format!(
                "INSERT INTO twinbox.ticks (id, snapshot, taken_at)
                SELECT {VALUE} + n, '1:1:', {at} FROM {numbers}"
            ),
            cursor::<Self>(),
            "VACUUM ANALYZE".to_owned(),
        ]
    }
}

#[cfg(feature = "mysql")]
impl LongTables for MySql {
    const ID: &str = "UNHEX(REPLACE(UUID(), '-', ''))";
    const HASH: &str = "UNHEX(SHA2(CONCAT(n), 256))";
    const BYTES: &str = "'{}'";
    const BEFORE: &str = "DROP TRIGGER twinbox_refuse_bulk_action; DROP TRIGGER twinbox_refuse_position";

    fn after(units: &str) -> String {
        format!("TIMESTAMPADD(SECOND, {units}, '2026-01-01')")
    }

    fn text() -> String {
        "CONCAT('k', n)".to_owned()
    }

    fn log(numbers: &str, at: &str) -> Vec<String> {
        let hole = "INSERT INTO twinbox_holes (first, last, opened_by, closed_by, probe_at)";
        let outbox = format!(
            "INSERT INTO twinbox_outbox (position, type, key, id, time, payload)
            SELECT {VALUE} + n, 't', 'k', CONCAT('x', n), {at}, '' FROM {numbers}"
        );
        vec![
            sql_of::<Self>(&outbox).0,
            format!(
                "INSERT INTO twinbox_ticks (id, newest, taken_at)
                SELECT {VALUE} + n, {VALUE} + n, {at} FROM {numbers}"
            ),
            format!(
                "{hole} SELECT {VALUE} + n * 3, {VALUE} + n * 3, {VALUE} + n * 3, {VALUE} + n * 3 + 2, {at}
                FROM {numbers} WHERE n <= 3000"
            ),
            format!(
                "{hole} SELECT {VALUE} * 2 + n, {VALUE} * 2 + n, {VALUE} + n, 9223372036854775807, {at}
                FROM {numbers} WHERE n <= 300"
            ),
            cursor::<Self>(),
            "ANALYZE TABLE twinbox_outbox, twinbox_ticks, twinbox_holes, twinbox_parked_messages,
                twinbox_parked_deliveries, twinbox_dead_letters, twinbox_inbox, twinbox_side_effects"
                .to_owned(),
        ]
    }
}

impl LongTables for Sqlite {
    const ID: &str = "randomblob(16)";
    const HASH: &str = "randomblob(32)";
    const BYTES: &str = "x'7b7d'";
    const BEFORE: &str = "SELECT 1";

    fn after(units: &str) -> String {
        format!("({VALUE} + ({units}))")
    }

    fn text() -> String {
        "'k' || n".to_owned()
    }

    fn log(numbers: &str, at: &str) -> Vec<String> {
        vec![
            format!(
                "INSERT INTO twinbox_outbox (position, type, key, id, time, payload)
                SELECT {VALUE} + n, 't', 'k', 'x' || n, {at}, x'' FROM {numbers}"
            ),
            cursor::<Self>(),
            "ANALYZE".to_owned(),
        ]
    }

    fn since_bind(micros: i64) -> i64 {
        micros - VALUE
    }
}
