//! Times that no program can read, as another program may leave them in a row.
use super::{
    databases::{MySql, Postgres},
    stores::{TestDb, World, sql_of},
};
use sqlx::{AssertSqlSafe, Sqlite};

/// A database whose rules for times the owner of the tables takes away.
pub(crate) trait BrokenTimes: TestDb {
    /// Takes the rules away from the log, delayed messages, effects and vendors.
    const UNCHECKED: &str;
    /// Makes a session write what is no time.
    const SESSION: &str;
    /// Times of messages that nobody can read.
    const BROKEN: &[&str];
    /// Such times, each of which is past.
    const PAST: &[&str];
    /// The bytes `{}`.
    const PAYLOAD: &str;
}

#[cfg(feature = "postgres")]
impl BrokenTimes for Postgres {
    const UNCHECKED: &str = "
        ALTER DOMAIN twinbox.point_in_time DROP CONSTRAINT point_in_time_check;
        ALTER TABLE twinbox.outbox ALTER time DROP NOT NULL";
    const SESSION: &str = "SELECT 1";
    const BROKEN: &[&str] = &["'-infinity'", "'infinity'", "'20000-01-01'", "'0044-03-15 BC'", "NULL"];
    const PAST: &[&str] = &["'-infinity'", "'0044-03-15 BC'"];
    const PAYLOAD: &str = "'{}'";
}

#[cfg(feature = "mysql")]
impl BrokenTimes for MySql {
    const UNCHECKED: &str = "
        ALTER TABLE twinbox_outbox DROP CONSTRAINT twinbox_outbox_time,
            MODIFY time DATETIME(6) DEFAULT (UTC_TIMESTAMP(6));
        ALTER TABLE twinbox_delayed_messages DROP CONSTRAINT twinbox_delayed_not_before,
            DROP CONSTRAINT twinbox_delayed_time;
        ALTER TABLE twinbox_side_effects DROP CONSTRAINT twinbox_effects_next_attempt_at;
        ALTER TABLE twinbox_vendors DROP CONSTRAINT twinbox_vendors_closed_until";
    const SESSION: &str = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'";
    const BROKEN: &[&str] = &["'0000-00-00'", "'2026-00-10'", "'2026-01-00'", "'2026-02-30'", "NULL"];
    const PAST: &[&str] = &["'0000-00-00'", "'2020-00-10'", "'2020-01-00'", "'2020-02-30'"];
    const PAYLOAD: &str = "'{}'";
}

impl BrokenTimes for Sqlite {
    const UNCHECKED: &str = "SELECT 1";
    const SESSION: &str = "PRAGMA ignore_check_constraints = 1";
    const BROKEN: &[&str] = &["-9223372036854775808", "9223372036854775807", "253402300800000000"];
    const PAST: &[&str] = &["-9223372036854775808", "-62167219200000001"];
    const PAYLOAD: &str = "x'7B7D'";
}

/// Takes the rules for times away.
pub(crate) async fn drop_rules<DB: BrokenTimes>(world: &World<DB>) {
    world.execute(DB::UNCHECKED).await;
}

/// Runs statements as the owner of the tables, in a session that refuses no time.
pub(crate) async fn run_unchecked<DB: BrokenTimes>(world: &World<DB>, sql: &str) {
    let mut conn = world.pool().acquire().await.unwrap();
    let AssertSqlSafe(sql) = sql_of::<DB>(sql);
    let sql = AssertSqlSafe(format!("{}; {sql}", DB::SESSION));
    sqlx::raw_sql(sql).execute(&mut *conn).await.unwrap();
    conn.close().await.unwrap();
}

/// Inserts messages into the log as another program may: one for each broken time, with the ids `broken-0`
/// and so on.
pub(crate) async fn insert_broken<DB: BrokenTimes>(world: &World<DB>, event_type: &str, key: &str) {
    let (outbox, payload) = (DB::table_of("outbox"), DB::PAYLOAD);
    for (n, time) in DB::BROKEN.iter().enumerate() {
        let insert = format!(
            "INSERT INTO {outbox} (id, type, key, time, payload)
            VALUES ('broken-{n}', '{event_type}', '{key}', {time}, {payload})"
        );
        run_unchecked(world, &insert).await;
    }
}
