//! How long a session waits for locks, and how long it may be idle.
//!
//! MySQL has these bounds for sessions alone, and a session is a connection of the application's pool. Its
//! own values are remembered in variables of the session, and set again by the statement that ends or begins
//! a transaction. One whose transaction is dropped is closed.
use crate::{Error, dialect::fence::session_bound, statement::raw};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};
use std::time::Duration;

/// Remembers the values of the session, once.
macro_rules! remember_waits {
    () => {
        "SET @twinbox_lock_wait = CAST(COALESCE(@twinbox_lock_wait, @@SESSION.innodb_lock_wait_timeout)
                AS SIGNED),
            @twinbox_idle = CAST(COALESCE(@twinbox_idle, @@SESSION.wait_timeout) AS SIGNED)
            /*M! , @twinbox_statement =
                CAST(COALESCE(@twinbox_statement, @@SESSION.max_statement_time) AS DECIMAL(20, 6)) */"
    };
}
/// Sets the values of the session again, if they were remembered.
macro_rules! usual_waits {
    () => {
        "SET SESSION innodb_lock_wait_timeout =
            CAST(COALESCE(@twinbox_lock_wait, @@SESSION.innodb_lock_wait_timeout) AS SIGNED),
            wait_timeout = CAST(COALESCE(@twinbox_idle, @@SESSION.wait_timeout) AS SIGNED)
            /*M! , max_statement_time =
                CAST(COALESCE(@twinbox_statement, @@SESSION.max_statement_time) AS DECIMAL(20, 6)) */"
    };
}
/// For a transaction of Twinbox itself, and for a handler's until its claim says how long it may be idle.
macro_rules! bounded_idle {
    () => {
        "wait_timeout = CAST(LEAST(@twinbox_idle, 30) AS SIGNED)"
    };
}
/// Begins a transaction. Without `autocommit`, what a handler writes after the end of its transaction is
/// rolled back with the next.
macro_rules! begin {
    () => {
        "SET SESSION autocommit = 0; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION;
        SAVEPOINT twinbox"
    };
}
/// Gives the session its own values back, after the transaction.
macro_rules! end {
    () => {
        concat!("SET SESSION autocommit = 1;\n        ", usual_waits!())
    };
}
pub(super) use {begin, bounded_idle, end, remember_waits, usual_waits};

/// Bounds the wait for locks, in whole seconds.
pub(super) async fn bound_lock_wait(conn: &mut MySqlConnection, wait: Duration) -> Result<(), Error> {
    let seconds = wait.as_secs().clamp(1, 1_000_000);
    let bound = format!("{}; SET SESSION innodb_lock_wait_timeout = {seconds}", remember_waits!());
    raw::<MySql>(AssertSqlSafe(bound)).execute(conn).await?;
    Ok(())
}

/// Ends the bound of the wait for locks. `idle_max`: how long the transaction may be idle from here on, and
/// on MariaDB how long a statement may take. A smaller bound of the session stays.
pub(super) async fn unbound_lock_wait(
    conn: &mut MySqlConnection,
    idle_max: Option<Duration>,
) -> Result<(), Error> {
    raw::<MySql>(AssertSqlSafe(unbound(idle_max))).execute(conn).await?;
    Ok(())
}

/// Ends the bound that a claim begins with. The smaller one of a short transaction stays.
const UNBOUND_IDLE: &str = ",
    wait_timeout = CAST(IF(@@SESSION.wait_timeout < LEAST(@twinbox_idle, 30), @@SESSION.wait_timeout,
        @twinbox_idle) AS SIGNED)";

/// The statements of [`unbound_lock_wait`].
pub(super) fn unbound(idle_max: Option<Duration>) -> String {
    let bounds = idle_max.map(|idle_max| {
        // Whole seconds: the server counts nothing finer.
        let seconds = session_bound(idle_max).saturating_add(999) / 1000;
        let seconds = seconds.min(1_000_000);
        format!(
            ", wait_timeout = CAST(LEAST(@twinbox_idle, {seconds}) AS SIGNED)
            /*M! , max_statement_time = LEAST(IF(@twinbox_statement = 0, {seconds}, @twinbox_statement), \
             {seconds}) */"
        )
    });
    format!(
        "{}; SET SESSION innodb_lock_wait_timeout = @twinbox_lock_wait{}",
        remember_waits!(),
        bounds.unwrap_or_else(|| UNBOUND_IDLE.to_owned())
    )
}
