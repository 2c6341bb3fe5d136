//! How long a session waits for locks, and how long it may be idle.
//!
//! MySQL has these bounds for sessions alone, and a session is a connection of the application's pool. Its
//! own values are remembered in variables of the session, and set again by the statement that ends or begins
//! a transaction. One whose transaction is dropped is closed.
use crate::{Error, dialect::fence::session_bound, statement::raw};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};
use std::time::Duration;

/// How long the session itself waits for a lock, in whole seconds.
macro_rules! own_lock_wait {
    () => {
        "CAST(COALESCE(@twinbox_lock_wait, @@SESSION.innodb_lock_wait_timeout) AS SIGNED)"
    };
}
/// How long the session itself may be idle, in whole seconds.
macro_rules! own_idle {
    () => {
        "CAST(COALESCE(@twinbox_idle, @@SESSION.wait_timeout) AS SIGNED)"
    };
}
/// How long a statement of the session itself may take, in seconds.
macro_rules! own_statement {
    () => {
        "CAST(COALESCE(@twinbox_statement, @@SESSION.max_statement_time) AS DECIMAL(20, 6))"
    };
}
/// Remembers the values of the session, once. A part of `SET`, whose values are computed before any is set.
macro_rules! remember_waits {
    () => {
        concat!(
            "@twinbox_lock_wait = ",
            own_lock_wait!(),
            ",
            @twinbox_idle = ",
            own_idle!(),
            "
            /*M! , @twinbox_statement = ",
            own_statement!(),
            " */"
        )
    };
}
/// Sets the values of the session again, if they were remembered. A part of `SET`.
macro_rules! usual_waits {
    () => {
        concat!(
            "SESSION innodb_lock_wait_timeout =
            ",
            own_lock_wait!(),
            ",
            SESSION wait_timeout = ",
            own_idle!(),
            "
            /*M! , SESSION max_statement_time =
            ",
            own_statement!(),
            " */"
        )
    };
}
/// For a transaction of Twinbox itself, and for a handler's until its claim says how long it may be idle. A
/// part of `SET`.
macro_rules! bounded_idle {
    () => {
        concat!("SESSION wait_timeout = CAST(LEAST(", own_idle!(), ", 30) AS SIGNED)")
    };
}
/// Begins a transaction with settings of the session. Without `autocommit`, what a handler writes after the
/// end of its transaction is rolled back with the next.
macro_rules! begin {
    ($($settings:expr),+ $(,)?) => {
        concat!(
            "SET ",
            $($settings, ", "),+,
            "SESSION autocommit = 0;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; SAVEPOINT twinbox"
        )
    };
}
/// Begins a transaction to claim, right after the COMMIT of one that was begun to claim: what is remembered
/// and set is not remembered and set again. Without `autocommit` the first statement begins it.
macro_rules! begin_next {
    () => {
        "SET /*M! @@tx_isolation */ /*!80400 @@transaction_isolation */ = 'READ-COMMITTED',
            SESSION innodb_lock_wait_timeout = 2, SESSION autocommit = 0,
            SESSION wait_timeout = CAST(LEAST(@twinbox_idle, 30) AS SIGNED);
        SAVEPOINT twinbox"
    };
}
/// Gives the session its own values back, after the transaction.
macro_rules! end {
    () => {
        concat!("SET SESSION autocommit = 1,\n            ", usual_waits!())
    };
}
pub(super) use {
    begin, begin_next, bounded_idle, end, own_idle, own_lock_wait, own_statement, remember_waits, usual_waits,
};

/// Bounds the wait for locks, in whole seconds.
pub(super) async fn bound_lock_wait(conn: &mut MySqlConnection, wait: Duration) -> Result<(), Error> {
    let seconds = wait.as_secs().clamp(1, 1_000_000);
    let bound = format!("SET {}, SESSION innodb_lock_wait_timeout = {seconds}", remember_waits!());
    raw::<MySql>(AssertSqlSafe(bound)).execute(conn).await?;
    Ok(())
}

/// Ends the bound of the wait for locks, after [`bound_lock_wait`]. `idle_max`: how long the transaction may
/// be idle from here on, and on MariaDB how long a statement may take. A smaller bound of the session stays.
pub(super) async fn unbound_lock_wait(
    conn: &mut MySqlConnection,
    idle_max: Option<Duration>,
) -> Result<(), Error> {
    raw::<MySql>(AssertSqlSafe(unbound(idle_max))).execute(conn).await?;
    Ok(())
}

/// Bounds a transaction of which it is not known how it was begun, as [`unbound_lock_wait`] does.
pub(super) async fn bound_handler(conn: &mut MySqlConnection, idle_max: Duration) -> Result<(), Error> {
    let bound = format!("SET {}; {}", remember_waits!(), unbound(Some(idle_max)));
    raw::<MySql>(AssertSqlSafe(bound)).execute(conn).await?;
    Ok(())
}

/// Ends the bound that a claim begins with. The smaller one of a short transaction stays.
const UNBOUND_IDLE: &str = "SESSION wait_timeout = CAST(
    IF(@@SESSION.wait_timeout < LEAST(@twinbox_idle, 30), @@SESSION.wait_timeout, @twinbox_idle) AS SIGNED)";

/// The statement of [`unbound_lock_wait`]. It needs what the session remembers: a variable that is not set
/// would be an error.
pub(super) fn unbound(idle_max: Option<Duration>) -> String {
    let bounds = idle_max.map(|idle_max| {
        // Whole seconds: the server counts nothing finer.
        let seconds = session_bound(idle_max).saturating_add(999) / 1000;
        let seconds = seconds.min(1_000_000);
        format!(
            "SESSION wait_timeout = CAST(LEAST(@twinbox_idle, {seconds}) AS SIGNED)
            /*M! , SESSION max_statement_time =
                LEAST(IF(@twinbox_statement = 0, {seconds}, @twinbox_statement), {seconds}) */"
        )
    });
    format!(
        "SET SESSION innodb_lock_wait_timeout = @twinbox_lock_wait, {}",
        bounds.unwrap_or_else(|| UNBOUND_IDLE.to_owned())
    )
}
