//! The codes of errors.
use std::borrow::Cow;

/// Returns SQLSTATE, or SQLite's extended result code. MySQL has one SQLSTATE for most errors, so those that
/// matter here get the one of Postgres.
pub(crate) fn sqlstate(error: &sqlx::Error) -> Option<String> {
    #[cfg(feature = "mysql")]
    if let Some(sqlstate) = mysql_number(error).and_then(of_mysql) {
        return Some(sqlstate.to_owned());
    }
    error.as_database_error()?.code().map(Cow::into_owned)
}

/// Returns the number of an error of MySQL or MariaDB.
#[cfg(feature = "mysql")]
pub(crate) fn mysql_number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?;
    Some(error.number())
}

/// Whether a savepoint is gone, and with it the transaction that began with it.
#[cfg(feature = "mysql")]
pub(crate) fn is_unknown_savepoint(error: &sqlx::Error) -> bool {
    mysql_number(error) == Some(1305)
}

/// Returns where the database shows who holds a lock, if the error is that a lock was not free in time.
pub(crate) fn views_of_lock(error: &sqlx::Error) -> Option<&'static str> {
    #[cfg(feature = "mysql")]
    if let Some(number) = mysql_number(error) {
        return [1205, 3572].contains(&number).then_some(
            "SHOW FULL PROCESSLIST, information_schema.innodb_trx and performance_schema.metadata_locks",
        );
    }
    (sqlstate(error)? == "55P03").then_some("pg_locks, pg_stat_activity and pg_blocking_pids")
}

#[cfg(feature = "mysql")]
fn of_mysql(number: u16) -> Option<&'static str> {
    Some(match number {
        // A deadlock, a lock wait that took too long, a lock that is held, a row that changed since the
        // snapshot, a commit that another node of the group was faster than.
        1213 | 1205 | 3572 | 1020 | 3101 => "55P03",
        // Shutting down, offline, out of its group, killed, or gone because the session was idle.
        1053 | 1079 | 1152 | 1159 | 1160 | 1161 | 1184 | 1927 | 3032 | 3100 | 3169 | 4031 => "57P01",
        // Too many connections, or prepared statements on all of them.
        1040 | 1203 | 1226 | 1461 => "53300",
        1021 | 1114 => "53100",
        1037 | 1038 | 1041 | 1135 => "53200",
        1290 | 1792 | 1836 => "25006",
        // Cancelled, or it took too long, or its tables changed meanwhile.
        1317 | 1615 | 1969 | 3024 => "57014",
        // A statement of more bytes than the server takes. It hangs up then.
        1153 => "54000",
        1022 | 1062 | 1169 | 1586 => "23505",
        1048 | 1364 => "23502",
        1216 | 1217 | 1451 | 1452 => "23503",
        3819 | 4025 => "23514",
        1406 => "22001",
        1264 => "22003",
        1044 | 1142 | 1143 | 1227 | 1370 | 1419 => "42501",
        // No such user, another password, one that has expired, an account that is locked or blocked after
        // wrong passwords.
        1045 | 1698 | 1862 | 3118 | 3955 | 4150 | 4151 => "28000",
        _ => return None,
    })
}
