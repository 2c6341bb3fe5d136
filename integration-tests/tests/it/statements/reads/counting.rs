//! Counts what a statement reads.
use super::{
    super::{Repeats, hostile::types_of_binds},
    long_tables::VALUE,
};
use crate::support::databases::{MySql, PgConnection, Postgres};
use sqlx::{AssertSqlSafe, Executor as _, Sqlite, SqliteConnection};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The value that is bound to a limit.
const LIMIT: i64 = 5;

/// A database that says what a session has read.
pub(super) trait Counting: Repeats {
    /// How it is to plan a statement.
    const MODES: &[&str] = &[""];
    /// Its counts for a row of a short statement.
    const COUNTS_OF_A_ROW: i64 = 1;

    async fn begin_counting(_: &mut Self::Connection) {}

    /// Runs a statement in a transaction, which is rolled back.
    async fn count(conn: &mut Self::Connection, mode: &str, sql: &str) -> Counted;
}

/// The outcome of a statement.
pub(super) struct Counted {
    pub(super) read: i64,
    /// Rows that it returned or changed.
    pub(super) changed: i64,
    pub(super) error: Option<sqlx::Error>,
}

/// The purpose of a bind.
enum Bind {
    Limit,
    Json,
    Other,
}

/// The text before the bind `n`, from 0, of a statement whose binds have numbers.
fn before_place(sql: &str, mark: char, n: usize) -> Option<&str> {
    let place = format!("{mark}{}", n + 1);
    let ends = |at: &usize| !sql[at + place.len()..].starts_with(|c: char| c.is_ascii_digit());
    sql.match_indices(&place).map(|(at, _)| at).find(ends).map(|at| sql[..at].trim_end())
}

fn is_limit(before: &str) -> bool {
    before.ends_with("LIMIT")
}

/// The bind `n`, from 0, of a statement.
fn bind_of(sql: &str, n: usize) -> Bind {
    let before = before_place(sql, '?', n);
    let before = before.unwrap_or_else(|| sql.split('?').nth(n).unwrap_or_default().trim_end());
    match before {
        _ if is_limit(before) => Bind::Limit,
        _ if before.ends_with("JSON_TABLE(") || before.ends_with("json_each(") => Bind::Json,
        _ => Bind::Other,
    }
}

/// A list with one row, whose columns are in an object or which is a number.
fn json(sql: &str) -> String {
    let has_columns = ["position bigint", "'$.position'", "->> 'position'"].iter().any(|of| sql.contains(of));
    let row = format!(
        r#"{{"position": {VALUE}, "attempt": 1, "state": "pending", "delay": 1, "lease": 1, "failures": 1}}"#
    );
    if has_columns { format!("[{row}]") } else { format!("[{VALUE}]") }
}

#[cfg(feature = "postgres")]
impl Counting for Postgres {
    const MODES: &[&str] = &["force_generic_plan", "force_custom_plan"];

    async fn count(conn: &mut PgConnection, mode: &str, sql: &str) -> Counted {
        let types = types_of_binds(conn, sql).await;
        let values = types.iter().enumerate().map(|(n, of)| match &**of {
            _ if before_place(sql, '$', n).is_some_and(is_limit) => LIMIT.to_string(),
            "uuid" => format!("'{VALUE}-0000-7000-8000-000000000000'"),
            "bytea" => format!("'\\x{VALUE}'"),
            "boolean" => "true".to_owned(),
            "jsonb" | "json" => format!("'{}'", json(sql)),
            of if of.ends_with("[]") => "'{}'".to_owned(),
            of if of.starts_with("timestamp") => "'2026-01-01 00:00:00Z'".to_owned(),
            _ => format!("'{VALUE}'"),
        });
        let values = Vec::from_iter(values).join(", ");
        let list = |of: String| if of.is_empty() { of } else { format!("({of})") };
        let begin = format!("BEGIN; SET LOCAL plan_cache_mode = {mode}; SAVEPOINT probe");
        let prepare = format!("PREPARE probe {} AS {sql}", list(types.join(", ")));
        let execute = format!("EXECUTE probe {}", list(values));
        for part in [begin, prepare] {
            sqlx::raw_sql(AssertSqlSafe(part)).execute(&mut *conn).await.unwrap();
        }
        let before = rows_read(conn).await;
        let rows = sqlx::raw_sql(AssertSqlSafe(execute.clone())).fetch_all(&mut *conn).await;
        let (returned, error) = match rows {
            Ok(rows) => (rows.len() as u64, None),
            Err(error) => (0, Some(error)),
        };
        sqlx::raw_sql("ROLLBACK TO probe").execute(&mut *conn).await.unwrap();
        let read = rows_read(conn).await - before;
        let changed = sqlx::raw_sql(AssertSqlSafe(execute)).execute(&mut *conn).await;
        let changed = changed.map_or(0, |done| done.rows_affected());
        sqlx::raw_sql("ROLLBACK; DEALLOCATE probe").execute(&mut *conn).await.unwrap();
        Counted { read, changed: i64::try_from(changed.max(returned)).unwrap(), error }
    }
}

/// Rows of tables that were read as a whole, and entries of indexes. A transaction that is rolled back has
/// read them too.
#[cfg(feature = "postgres")]
async fn rows_read(conn: &mut PgConnection) -> i64 {
    let read = "SELECT sum(pg_stat_get_xact_tuples_returned(oid))::bigint
        FROM pg_class
        WHERE relnamespace = 'twinbox'::regnamespace";
    sqlx::query_scalar(read).fetch_one(conn).await.unwrap()
}

#[cfg(feature = "mysql")]
impl Counting for MySql {
    async fn count(conn: &mut sqlx::MySqlConnection, _: &str, sql: &str) -> Counted {
        sqlx::raw_sql("BEGIN").execute(&mut *conn).await.unwrap();
        let binds = Self::prepare(conn, sql).await.unwrap();
        let handlers = |rows: Vec<(String, String)>| {
            rows.iter().map(|(_, number)| number.parse::<i64>().unwrap()).sum::<i64>()
        };
        let read = "SHOW SESSION STATUS LIKE 'Handler_read%'";
        let first = handlers(sqlx::query_as(read).fetch_all(&mut *conn).await.unwrap());
        let before = handlers(sqlx::query_as(read).fetch_all(&mut *conn).await.unwrap());
        let query = with_values(sql, binds);
        let (returned, changed, error) = run(conn.fetch_many(query), |done| done.rows_affected()).await;
        let after = handlers(sqlx::query_as(read).fetch_all(&mut *conn).await.unwrap());
        let _ = sqlx::raw_sql("ROLLBACK").execute(conn).await;
        // Without what the question costs.
        Counted { read: after - before - (before - first), changed: returned + changed, error }
    }
}

/// Binds texts: a number is compared with a text as a number, and then no index has it.
#[cfg(feature = "mysql")]
pub(super) fn with_values(
    sql: &str,
    binds: usize,
) -> sqlx::query::Query<'static, MySql, sqlx::mysql::MySqlArguments> {
    let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
    (0..binds).fold(query, |query, n| match bind_of(sql, n) {
        Bind::Limit => query.bind(LIMIT),
        Bind::Json => query.bind(json(sql)),
        Bind::Other => query.bind(VALUE.to_string()),
    })
}

/// Where a loop of a program of SQLite goes on, some times for each row.
static LOOPS: AtomicI64 = AtomicI64::new(0);

impl Counting for Sqlite {
    const COUNTS_OF_A_ROW: i64 = 30;

    async fn begin_counting(conn: &mut SqliteConnection) {
        let count = || LOOPS.fetch_add(1, Relaxed) < i64::MAX;
        conn.lock_handle().await.unwrap().set_progress_handler(1, count);
        // The first statement reads the schema.
        sqlx::raw_sql("SELECT count(*) FROM sqlite_master").execute(conn).await.unwrap();
    }

    async fn count(conn: &mut SqliteConnection, _: &str, sql: &str) -> Counted {
        if !sql.starts_with("BEGIN") {
            sqlx::raw_sql("BEGIN").execute(&mut *conn).await.unwrap();
        }
        let binds = Self::prepare(conn, sql).await.unwrap();
        let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
        let query = (0..binds).fold(query, |query, n| match bind_of(sql, n) {
            Bind::Limit => query.bind(LIMIT),
            Bind::Json => query.bind(json(sql)),
            Bind::Other => query.bind(VALUE),
        });
        let (before, changed_before) = (LOOPS.load(Relaxed), total_changes(conn).await);
        // SQLite says of each statement what the last one that changes anything has changed.
        let (returned, _, error) = run(conn.fetch_many(query), |_| 0).await;
        let read = LOOPS.load(Relaxed) - before;
        let changed = total_changes(conn).await - changed_before;
        let _ = sqlx::raw_sql("ROLLBACK").execute(conn).await;
        Counted { read, changed: returned + changed, error }
    }
}

async fn total_changes(conn: &mut SqliteConnection) -> i64 {
    sqlx::query_scalar("SELECT total_changes()").fetch_one(conn).await.unwrap()
}

/// Returns how many rows a statement returned, and changed, and its error.
async fn run<Done, Row>(
    mut results: impl futures::Stream<Item = sqlx::Result<sqlx::Either<Done, Row>>> + Unpin,
    rows_affected: impl Fn(&Done) -> u64,
) -> (i64, i64, Option<sqlx::Error>) {
    let (mut returned, mut changed) = (0, 0);
    loop {
        match futures::StreamExt::next(&mut results).await {
            None => return (returned, changed, None),
            Some(Ok(sqlx::Either::Left(done))) => changed += i64::try_from(rows_affected(&done)).unwrap(),
            Some(Ok(sqlx::Either::Right(_))) => returned += 1,
            Some(Err(error)) => return (returned, changed, Some(error)),
        }
    }
}
