//! Each statement of the catalog, again and again on one connection: a server may plan the second execution
//! of a prepared statement in another way than the first. One has then lost columns of it.
#[cfg(feature = "mysql")]
mod ansi;
#[cfg(feature = "postgres")]
mod hostile;
mod reads;

use crate::support::{
    cases::cases,
    databases::{MySql, PgConnection, Postgres},
    stores::{TestDb, World},
};
use sqlx::{AssertSqlSafe, Database, Either, Executor as _, SqlSafeStr as _, Sqlite, Statement as _, Type};
use twinbox::Store;
use uuid::Uuid;

/// A prepared statement is parsed, executed, and executed again by what the server kept of it.
const TIMES: usize = 3;

/// The shortest list at the end of each statement to which the program adds one.
const LISTS: &[(&str, &str)] = &[
    ("holes.bury", " (1, 1, 1, 1)"),
    ("holes.close", " (1)"),
    ("holes.insert", " (1, 1, 1, 1)"),
    ("holes.occupied", " (1)"),
    ("holes.purge", " (1)"),
    ("inbox.known_claims", " (x'01')"),
    ("inbox.end_claims", " (x'01')"),
    ("inbox.purge_attempts", " (x'01')"),
    ("outbox.publish_all", " (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)"),
];

/// Several statements in one text, which no server prepares.
const SCRIPTS: &[&str] = &["inbox.commit_at_once"];

/// A database with the value that each bind gets, and the errors that such a value may have.
trait Repeats: TestDb {
    /// NULL, where the server compares types. A number elsewhere, because `LIMIT` takes nothing else.
    const BIND: Option<i64>;

    fn code(error: &sqlx::Error) -> String {
        error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned()
    }

    /// Whether the code is that of a statement that was understood, and whose values were refused.
    fn refuses_values(code: &str) -> bool;

    /// Whether a statement is for newer servers than this one.
    async fn lacks(_: &mut Self::Connection, _: &str) -> bool {
        false
    }

    /// Prepares a statement. Returns how many binds it has.
    async fn prepare(conn: &mut Self::Connection, sql: &str) -> sqlx::Result<usize> {
        let prepared = conn.prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await?;
        Ok(match prepared.parameters() {
            Some(Either::Left(types)) => types.len(),
            Some(Either::Right(binds)) => binds,
            None => 0,
        })
    }
}

#[cfg(feature = "postgres")]
fn type_of<T: Type<Postgres>>() -> <Postgres as Database>::TypeInfo {
    T::type_info()
}

#[cfg(feature = "postgres")]
impl Repeats for Postgres {
    const BIND: Option<i64> = None;

    fn refuses_values(code: &str) -> bool {
        code.starts_with("22") || code.starts_with("23")
    }

    /// Older ones than 15 have no rights on settings.
    async fn lacks(conn: &mut PgConnection, name: &str) -> bool {
        let is_old = "SELECT to_regclass('pg_catalog.pg_parameter_acl') IS NULL";
        name == "setup.more_rights_held"
            && sqlx::query_scalar::<_, bool>(is_old).fetch_one(conn).await.unwrap()
    }

    /// The server finds the types of most binds. Those that only the program knows are found by trying.
    async fn prepare(conn: &mut PgConnection, sql: &str) -> sqlx::Result<usize> {
        let binds = (1..).take_while(|n| sql.contains(&format!("${n}"))).count();
        let known = [type_of::<i64>(), type_of::<String>(), type_of::<Uuid>()];
        let mut tried = conn.prepare(AssertSqlSafe(sql.to_owned()).into_sql_str()).await.map(drop);
        for n in 0..known.len().pow(u32::try_from(binds).unwrap().min(6)) {
            if tried.is_ok() {
                break;
            }
            sqlx::raw_sql("ROLLBACK; BEGIN").execute(&mut *conn).await?;
            let digit = |place: u32| n / known.len().pow(place) % known.len();
            let types: Vec<_> = (0..).take(binds).map(|place| known[digit(place)].clone()).collect();
            let text = AssertSqlSafe(sql.to_owned()).into_sql_str();
            tried = conn.prepare_with(text, &types).await.map(drop);
        }
        tried.map(|()| binds)
    }
}

#[cfg(feature = "mysql")]
impl Repeats for MySql {
    const BIND: Option<i64> = Some(1);

    /// MySQL has no SQLSTATE of its own for a broken rule of a table.
    fn code(error: &sqlx::Error) -> String {
        let error = error.as_database_error().unwrap();
        let number = error.downcast_ref::<sqlx::mysql::MySqlDatabaseError>().number();
        if number == 3819 { "23514".to_owned() } else { error.code().unwrap_or_default().into_owned() }
    }

    /// The last are those of our triggers.
    fn refuses_values(code: &str) -> bool {
        ["22", "23", "TB"].iter().any(|class| code.starts_with(class))
    }
}

impl Repeats for Sqlite {
    const BIND: Option<i64> = Some(1);

    /// A constraint: the lowest byte of the code.
    fn refuses_values(code: &str) -> bool {
        code.parse().is_ok_and(|code: u32| code & 0xff == 19)
    }
}

/// Runs a statement in a transaction of its own, which is rolled back.
async fn run<DB: Repeats>(conn: &mut DB::Connection, sql: &str) -> sqlx::Result<()> {
    if !sql.starts_with("BEGIN") {
        sqlx::raw_sql("BEGIN").execute(&mut *conn).await?;
    }
    let binds = DB::prepare(conn, sql).await?;
    let query = sqlx::query::<DB>(AssertSqlSafe(sql.to_owned()));
    let ran = (0..binds).fold(query, |query, _| query.bind(DB::BIND)).fetch_all(&mut *conn).await;
    // A statement may have ended the transaction.
    let _ = sqlx::raw_sql("ROLLBACK").execute(conn).await;
    ran.map(drop)
}

/// Executes each statement of a store again and again.
async fn execute_each<DB: Repeats>(conn: &mut DB::Connection, store: &Store<DB>) {
    let (mut executed, mut problems) = (0, Vec::new());
    for (name, statement) in store.engine().sql().named() {
        let mut sql = statement.as_str().to_owned();
        if statement.is_absent() || SCRIPTS.contains(&&*name) {
            assert!(statement.is_absent() || sql.contains(';'), "{name} is one statement");
            continue;
        }
        if DB::lacks(conn, &name).await {
            continue;
        }
        if ["IN", "VALUES"].iter().any(|end| sql.ends_with(end)) {
            sql += LISTS.iter().find(|(listed, _)| *listed == name).expect(&name).1;
        }
        for time in 1..=TIMES {
            let Err(error) = run::<DB>(conn, &sql).await else { continue };
            if !DB::refuses_values(&DB::code(&error)) {
                problems.push(format!("{name}, execution {time}: {error}"));
            }
        }
        executed += 1;
    }
    assert!(problems.is_empty(), "{} of {executed}:\n{}", problems.len(), problems.join("\n"));
    assert!(executed > 100, "{executed} statements");
}

async fn a_statement_means_the_same_at_each_execution<DB: Repeats>() {
    let world = World::<DB>::new().await;
    execute_each(&mut *world.pool().acquire().await.unwrap(), &world).await;
}

cases! {
    all: [a_statement_means_the_same_at_each_execution]
}
