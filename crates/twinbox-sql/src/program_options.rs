//! How Twinbox's own programs connect.
#[cfg(feature = "mysql")]
use crate::statement::raw;
#[cfg(feature = "postgres")]
use sqlx::postgres::PgConnectOptions;
#[cfg(feature = "mysql")]
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};

/// How many seconds a statement of a program waits for a lock. A role that may change or delete rows of a
/// table may lock all of it, for as long as it likes. A migration has bounds of its own.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const LOCK_WAIT_SECONDS_MAX: u64 = 10;

/// Functions and operators are those of Postgres alone. In the usual path, whoever may create in `public`
/// could put a function of his own before one that is called with another type, and it would run with the
/// rights of the program.
#[cfg(feature = "postgres")]
const SEARCH_PATH: (&str, &str) = ("search_path", "pg_catalog,pg_temp");

/// The setting of Postgres that bounds the wait for each lock. A URL may have a value of its own.
#[cfg(feature = "postgres")]
const LOCK_TIMEOUT: &str = "lock_timeout";

/// Returns the options for the URL of a program that runs no SQL of an application. Behind a pooler in
/// transaction mode sessions have the search path and the lock time-out of their role: `ALTER ROLE … SET`
/// sets them.
///
/// # Errors
/// The URL cannot be parsed.
#[cfg(feature = "postgres")]
pub fn program_options(url: &str, has_pooler: bool) -> sqlx::Result<PgConnectOptions> {
    let mut options: PgConnectOptions = url.parse()?;
    if has_pooler {
        // PgBouncer refuses startup parameters that it does not know.
        return Ok(options.extra_float_digits(None));
    }
    if options.get_options().is_none_or(|given| !sets_lock_timeout(given)) {
        options = options.options([(LOCK_TIMEOUT, format!("{LOCK_WAIT_SECONDS_MAX}s"))]);
    }
    Ok(options.options([SEARCH_PATH]))
}

/// Whether options such as `-c lock_timeout=1s` and `--lock-timeout=1s` say how long to wait.
#[cfg(feature = "postgres")]
fn sets_lock_timeout(options: &str) -> bool {
    options.split_whitespace().any(|word| {
        let setting = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")).unwrap_or(word);
        let name = setting.split('=').next().unwrap_or_default();
        name.replace('-', "_").eq_ignore_ascii_case(LOCK_TIMEOUT)
    })
}

/// Bounds how long the statements of a session of MySQL or MariaDB wait for locks of tables and of rows, in
/// whole seconds, unless the server bounds them more. For the connections of a program's own pool.
///
/// # Errors
/// The database refused or is away.
#[cfg(feature = "mysql")]
pub async fn bound_lock_waits(conn: &mut MySqlConnection) -> sqlx::Result<()> {
    let bounds = ["lock_wait_timeout", "innodb_lock_wait_timeout"]
        .map(|name| format!("{name} = CAST(LEAST(@@SESSION.{name}, {LOCK_WAIT_SECONDS_MAX}) AS SIGNED)"));
    let bound = AssertSqlSafe(format!("SET SESSION {}", bounds.join(", ")));
    raw::<MySql>(bound).execute(conn).await.map(drop)
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_for_locks_as_long_as_its_url_says_or_ten_seconds() {
        let options = |url: &str, has_pooler| {
            let options = program_options(url, has_pooler).unwrap();
            options.get_options().unwrap_or_default().to_owned()
        };
        let path = "-c search_path=pg_catalog,pg_temp";
        assert_eq!(options("postgres://me@host/shop", false), format!("-c lock_timeout=10s {path}"));
        let own = options("postgres://me@host/shop?options[lock_timeout]=1s", false);
        assert_eq!(own, format!("-c lock_timeout=1s {path}"));
        assert_eq!(options("postgres://me@host/shop", true), "");
    }

    #[test]
    fn only_the_setting_of_that_name_says_how_long_a_program_waits_for_locks() {
        let own = ["-c lock_timeout=1s", "-clock_timeout=1", "--lock-timeout=1s", "-c a=b -c Lock_Timeout=1"];
        assert_eq!(own.map(sets_lock_timeout), [true; 4]);
        let others = ["", "-c deadlock_timeout=1s", "--deadlock-timeout=1s", "-c a=lock_timeout"];
        assert_eq!(others.map(sets_lock_timeout), [false; 4]);
        let url = "postgres://me@host/shop?options[deadlock_timeout]=1s";
        let options = program_options(url, false).unwrap();
        let given = options.get_options().unwrap_or_default();
        assert!(given.starts_with("-c deadlock_timeout=1s -c lock_timeout=10s "), "{given}");
    }
}
