//! The store itself, and what the server must be like.
use super::{super::portable, rights, ticks};
use crate::{Error, ErrorKind, statement::raw, texts::Setup};
use sqlx::{MySql, MySqlConnection, Row as _};

pub(super) const SETUP: Setup = Setup {
    record_server_run: "
        INSERT IGNORE INTO {server_run} (server_id, id)
        VALUES (@@server_id, CAST(CONV(LEFT(SHA2(UUID(), 256), 15), 16, 10) AS SIGNED))",
    create_lock_secret: "
        INSERT IGNORE INTO {lock_secret} (singleton, secret)
        VALUES (true, ?)",
    set_service: "
        INSERT IGNORE INTO {meta} (singleton, service)
        VALUES (true, ?)",
    // MariaDB alone reads the comments with an M.
    settings: "
        SELECT 'server_version' AS name, version() AS value
        UNION ALL
        SELECT 'innodb_flush_log_at_trx_commit', CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS CHAR)
        UNION ALL
        SELECT 'innodb_doublewrite', CAST(@@GLOBAL.innodb_doublewrite AS CHAR)
        UNION ALL
        SELECT 'log_bin', CAST(@@GLOBAL.log_bin AS CHAR)
        UNION ALL
        SELECT 'sync_binlog', CAST(@@GLOBAL.sync_binlog AS CHAR)
        FROM (SELECT 1) one
        WHERE @@GLOBAL.log_bin <> 0
        UNION ALL
        SELECT 'binlog_format', CAST(@@GLOBAL.binlog_format AS CHAR)
        FROM (SELECT 1) one
        WHERE @@GLOBAL.log_bin <> 0
        UNION ALL
        SELECT 'wait_timeout', CAST(@@GLOBAL.wait_timeout AS CHAR)
        /*M!100600
        UNION ALL
        SELECT 'wsrep_on', CAST(@@GLOBAL.wsrep_on AS CHAR)
        UNION ALL
        SELECT 'idle_transaction_timeout', CAST(GREATEST(
            @@GLOBAL.idle_transaction_timeout,
            @@GLOBAL.idle_write_transaction_timeout,
            @@GLOBAL.idle_readonly_transaction_timeout) AS CHAR)
        */
        UNION ALL
        SELECT 'replicas', CAST(count(*) AS CHAR)
        FROM /*!80400 performance_schema.processlist */ /*M! information_schema.processlist */
        WHERE command LIKE 'Binlog Dump%'
        UNION ALL
        SELECT 'open_holes', CAST(count(*) AS CHAR)
        FROM {holes}
        WHERE closed_by = 9223372036854775807",
    // A role of MariaDB is seen by its rights alone.
    has_right: concat!(
        "
        SELECT CASE
            WHEN b.object = '' THEN b.role = ''
                OR EXISTS (SELECT 1 FROM information_schema.user_privileges WHERE grantee = b.grantee)
                OR EXISTS (SELECT 1 FROM information_schema.table_privileges WHERE grantee = b.grantee)
            ELSE EXISTS (
                    SELECT 1
                    FROM information_schema.user_privileges
                    WHERE grantee = b.grantee AND privilege_type = b.privilege)
                OR EXISTS (
                    SELECT 1
                    FROM information_schema.schema_privileges
                    WHERE grantee = b.grantee AND privilege_type = b.privilege AND table_schema = DATABASE())
                OR EXISTS (
                    SELECT 1
                    FROM information_schema.table_privileges
                    WHERE grantee = b.grantee AND privilege_type = b.privilege AND table_schema = DATABASE()
                        AND table_name = b.object)
                OR EXISTS (
                    SELECT 1
                    FROM information_schema.column_privileges
                    WHERE grantee = b.grantee AND privilege_type = b.privilege AND table_schema = DATABASE()
                        AND table_name = b.object AND column_name = b.of_column) END
        FROM (
            SELECT role, object, privilege, of_column,
                CONCAT(QUOTE(SUBSTRING_INDEX(account, '@', 1)), '@', QUOTE(SUBSTRING_INDEX(account, '@', -1)))
                    AS grantee
            FROM (
                SELECT role, object, privilege, of_column, ",
        rights::account_of_role!(),
        "
                FROM (SELECT ? AS role, ? AS object, ? AS privilege, ? AS of_column) binds
                ",
        rights::accounts!(),
        "
            ) named
        ) b"
    ),
    role: "SELECT CURRENT_USER()",
    rights_held: rights::RIGHTS_HELD,
    more_rights_held: rights::MORE_RIGHTS_HELD,
    guards: rights::GUARDS,
    ..portable::SETUP
};

/// Refuses a server on which messages would be lost or reversed.
pub(super) async fn check(conn: &mut MySqlConnection) -> Result<(), Error> {
    let facts = raw::<MySql>(
        "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit = 1 AS is_flushed,
            @@GLOBAL.auto_increment_increment = 1 AND @@SESSION.auto_increment_increment = 1 AS is_dense,
            FIND_IN_SET('STRICT_TRANS_TABLES', @@SESSION.sql_mode) > 0
                OR FIND_IN_SET('STRICT_ALL_TABLES', @@SESSION.sql_mode) > 0 AS is_strict,
            @@GLOBAL.read_only <> 0 AS is_standby, @@SESSION.max_allowed_packet >= 8388608 AS takes_batches,
            @@GLOBAL.autocommit = 1 AND @@SESSION.autocommit = 1 AS commits_at_once",
    );
    let facts = facts.fetch_one(conn).await?;
    if facts.try_get("is_standby")? {
        return Err(Error::new(
            ErrorKind::Standby,
            "this server is read-only: connect to the primary, messages are never read from a replica",
        ));
    }
    if !facts.try_get::<bool, _>("is_flushed")? {
        return Err(ticks::unflushed());
    }
    if !facts.try_get::<bool, _>("is_dense")? {
        return Err(Error::new(
            ErrorKind::Configuration,
            "auto_increment_increment is not 1, so most positions of the log would be holes: \
             SET GLOBAL auto_increment_increment = 1, and set it in the server's configuration",
        ));
    }
    if !facts.try_get::<bool, _>("commits_at_once")? {
        return Err(Error::new(
            ErrorKind::Configuration,
            "autocommit is off, so statements outside of a transaction would never be committed: set it to 1 \
             in the server's configuration, and nowhere to 0, as by init_connect",
        ));
    }
    if !facts.try_get::<bool, _>("takes_batches")? {
        return Err(Error::new(
            ErrorKind::Configuration,
            "max_allowed_packet is below 8 MiB, so the server would refuse statements of Twinbox: SET GLOBAL \
             max_allowed_packet = 16777216, and set it in the server's configuration",
        ));
    }
    if !facts.try_get::<bool, _>("is_strict")? {
        return Err(Error::new(
            ErrorKind::Configuration,
            "sql_mode is not strict, so the server would cut values that are too long: add \
             STRICT_TRANS_TABLES to sql_mode",
        ));
    }
    Ok(())
}
