//! MySQL 8.4 or newer, and MariaDB 10.11 or newer.
mod claims;
mod cursors;
mod drift;
mod effects;
mod endpoint;
mod fragments;
mod holes;
mod inbox;
mod jobs;
mod log;
mod operations;
mod page;
mod parking;
mod publishing;
mod purge;
mod rights;
mod setup;
mod ticks;
mod waits;

use super::{
    Capabilities, Claim, ClaimTerms, Claims, Dialect, Fragments, Migration, OperationClaim, OperationClaimed,
    PageBinds, Purged,
    migrations::migrations,
    portable,
    server::check_mysql,
    transaction::{exactly_one, unwind},
};
use crate::{
    Error, ErrorKind,
    catalog::Catalog,
    statement::{Query, query, query_of, raw},
    texts::Texts,
};
use fragments::FRAGMENTS;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, MySqlPool, mysql::MySqlConnectOptions};
use std::{path::PathBuf, time::Duration};
use twinbox_core::{
    Message,
    draft::Fields,
    endpoint::{PlainRefused, Protection},
};
use uuid::Uuid;
use waits::{
    begin, begin_next, bound_handler, bounded_idle, end, own_idle, own_lock_wait, own_statement,
    remember_waits, usual_waits,
};

/// ProxySQL answers the same without the comment by itself, with a version of its own.
const VERSION: &str = "SELECT /* of the server */ version()";

impl Dialect for MySql {
    const CAPABILITIES: Capabilities = Capabilities {
        deferred_constraints: false,
        errors_abort: false,
        refuses_commit: false,
        early_mismatch: false,
    };
    const SQL: Texts = Texts {
        audit: portable::AUDIT,
        backlog: portable::BACKLOG,
        bulk_actions: portable::BULK_ACTIONS,
        client_keys: effects::CLIENT_KEYS,
        consumers: inbox::CONSUMERS,
        cursors: cursors::CURSORS,
        dead_letters: inbox::DEAD_LETTERS,
        delayed: publishing::DELAYED,
        deliveries: parking::DELIVERIES,
        delivery_queue: parking::DELIVERY_QUEUE,
        destination_queue: parking::DESTINATION_QUEUE,
        drift: drift::DRIFT,
        effect_acts: effects::EFFECT_ACTS,
        effects: effects::EFFECTS,
        holes: holes::HOLES,
        inbox: inbox::INBOX,
        jobs: jobs::JOBS,
        log: log::LOG,
        operations: operations::OPERATIONS,
        outbox: publishing::OUTBOX,
        parked_messages: parking::PARKED_MESSAGES,
        partitions: inbox::PARTITIONS,
        redaction: portable::REDACTION,
        replays: portable::REPLAYS,
        retention: log::RETENTION,
        setup: setup::SETUP,
        webhooks: operations::WEBHOOKS,
    };
    const FRAGMENTS: Fragments = FRAGMENTS;
    const NUMBERED_BINDS: bool = false;
    const RESERVED_WORDS: &'static [&'static str] = &["key", "member", "partition"];
    const ONE_WRITER: bool = false;
    const HAS_RETURNING: bool = false;

    const MIGRATIONS: &'static [Migration] = migrations!("mysql");
    const BOOTSTRAP: &'static str = "
        CREATE TABLE IF NOT EXISTS {migrations} (
            version BIGINT PRIMARY KEY,
            name VARCHAR(64) NOT NULL,
            compatible_from BIGINT NOT NULL,
            applied_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        ) ENGINE = InnoDB;
        CREATE TABLE IF NOT EXISTS {lock_secret} (
            singleton BOOLEAN PRIMARY KEY,
            secret VARBINARY(32) NOT NULL
        ) ENGINE = InnoDB;";
    // The session may be one of an application, or of a program that waits less long. A lock by name has a
    // bound of its own.
    const MIGRATION_BEGIN: &'static str = "
        SET @twinbox_migration_table_wait = CAST(@@SESSION.lock_wait_timeout AS SIGNED),
            @twinbox_migration_row_wait = CAST(@@SESSION.innodb_lock_wait_timeout AS SIGNED),
            @twinbox_migration_idle = CAST(@@SESSION.wait_timeout AS SIGNED);
        SET SESSION lock_wait_timeout = 30, innodb_lock_wait_timeout = 30,
            wait_timeout = CAST(LEAST(@@SESSION.wait_timeout, 30) AS SIGNED)";
    // A name without the secret could be locked by any account of the server.
    const MIGRATION_LOCK: Option<&'static str> = Some(
        "SELECT GET_LOCK(CONCAT('twinbox ', LEFT(SHA2(CONCAT(DATABASE(), HEX(secret)), 256), 32)), 600)
        FROM {lock_secret}",
    );
    const MIGRATION_UNLOCK: Option<&'static str> = Some(
        "SELECT RELEASE_LOCK(CONCAT('twinbox ', LEFT(SHA2(CONCAT(DATABASE(), HEX(secret)), 256), 32)))
        FROM {lock_secret};
        SET SESSION lock_wait_timeout = @twinbox_migration_table_wait,
            innodb_lock_wait_timeout = @twinbox_migration_row_wait,
            wait_timeout = @twinbox_migration_idle",
    );

    const BEGIN: &'static str = begin!(usual_waits!());
    const BEGIN_BOUNDED: &'static str = begin!(remember_waits!(), usual_waits!(), bounded_idle!());
    const BEGIN_TO_CLAIM: &'static str =
        begin!(remember_waits!(), "SESSION innodb_lock_wait_timeout = 2", bounded_idle!());
    const BEGIN_NEXT_CLAIM: &'static str = begin_next!();
    const BEGIN_PLAIN: &'static str = concat!(
        "SET ",
        usual_waits!(),
        "; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION"
    );
    const END: &'static str = end!();
    // The savepoint is gone if the transaction has ended: by COMMIT or ROLLBACK, a statement that commits, or
    // the server, on a deadlock. Then the server runs nothing of what follows.
    const COMMIT: Option<&'static str> = Some(concat!("RELEASE SAVEPOINT twinbox; COMMIT; ", end!()));
    const ROLLBACK: Option<&'static str> = Some(concat!("ROLLBACK; ", end!()));
    const BEGIN_SHORT: &'static str =
        begin!(remember_waits!(), "SESSION innodb_lock_wait_timeout = 1", "SESSION wait_timeout = 2");
    const BEGIN_LONG: Option<&'static str> = None;
    const CHECK_DEFERRED: Option<&'static str> = None;

    fn table(namespace: &str, name: &str) -> String {
        format!("{namespace}_{name}")
    }

    fn file_of(_: &MySqlPool) -> Option<PathBuf> {
        None
    }

    fn protection(options: &MySqlConnectOptions, allow_plain: bool) -> Result<Protection, PlainRefused> {
        endpoint::protection(options, allow_plain)
    }

    async fn check_server(conn: &mut MySqlConnection) -> Result<(), Error> {
        let version: String = query_of::<MySql>(VERSION, false).scalar().fetch_one(conn).await?;
        check_mysql(&version)
    }

    async fn check(conn: &mut MySqlConnection, _: &str) -> Result<(), Error> {
        setup::check(conn).await
    }

    async fn is_pooled(_: &MySqlPool) -> Result<bool, Error> {
        Ok(false)
    }

    async fn rebase(_: &mut MySqlConnection, _: &str) -> Result<u64, Error> {
        Err(Error::new(
            ErrorKind::Configuration,
            "MySQL needs no rebase: a restored log has its positions, ticks and holes",
        ))
    }

    async fn newest_tick(conn: &mut MySqlConnection, catalog: &Catalog, p: i64) -> Result<i64, Error> {
        ticks::newest_tick(conn, catalog, p).await
    }

    async fn tick_now(conn: &mut MySqlConnection, catalog: &Catalog) -> Result<Option<i64>, Error> {
        ticks::tick_now(conn, catalog).await
    }

    async fn purge(
        conn: &mut MySqlConnection,
        catalog: &Catalog,
        age: i64,
        after: i64,
    ) -> Result<Purged, Error> {
        purge::purge(conn, catalog, age, after).await
    }

    async fn purge_ticks(conn: &mut MySqlConnection, catalog: &Catalog, age: i64) -> Result<bool, Error> {
        purge::purge_ticks(conn, catalog, age).await
    }

    async fn positions(
        conn: &mut MySqlConnection,
        catalog: &Catalog,
        page: PageBinds,
    ) -> Result<Option<Vec<i64>>, Error> {
        page::positions(conn, catalog, page).await.map(Some)
    }

    fn bind_page<'q>(query: Query<'q, MySql>, page: PageBinds, positions: &[i64]) -> Query<'q, MySql> {
        page::bind(query, page, positions)
    }

    async fn publish_all(
        conn: &mut MySqlConnection,
        catalog: &Catalog,
        messages: Vec<Fields>,
    ) -> Result<(), Error> {
        publishing::publish_all(conn, catalog, messages).await
    }

    async fn move_due(conn: &mut MySqlConnection, catalog: &Catalog, numbers: &str) -> Result<(), Error> {
        publishing::move_due(conn, catalog, numbers).await
    }

    async fn lock_key(conn: &mut MySqlConnection, catalog: &Catalog, key: &str) -> Result<(), Error> {
        query::<MySql>(&catalog.sql.outbox.lock_key).for_caller().bind(key).execute(conn).await?;
        Ok(())
    }

    async fn park_deliveries(
        conn: &mut MySqlConnection,
        catalog: &Catalog,
        consumer: &str,
        partition: u32,
        deliveries: &[(&Message, Duration)],
    ) -> Result<(), Error> {
        portable::park_one_by_one::<MySql>(conn, catalog, consumer, partition, deliveries).await
    }

    async fn ensure_whole(conn: &mut MySqlConnection) -> Result<(), Error> {
        let look = raw::<MySql>("RELEASE SAVEPOINT twinbox; SAVEPOINT twinbox");
        look.execute(conn).await.map_err(Error::of_last_statement)?;
        Ok(())
    }

    /// The statement that ends the claims. One that is committed without it is of a handler that has
    /// committed by itself. Empty: there is none.
    type Guard = String;

    async fn claim(
        conn: &mut MySqlConnection,
        catalog: &Catalog,
        consumer: &str,
        terms: ClaimTerms,
        claims: &[Claim<'_>],
        guard: &mut Option<String>,
    ) -> Result<Claims<Uuid>, Error> {
        let found = claims::claim(conn, catalog, consumer, terms, claims).await?;
        *guard = Some(claims::end(catalog, consumer, &found.new));
        Ok(found)
    }

    fn end_redrive(guard: &mut String, catalog: &Catalog, dead_letter: i64) {
        let delete = catalog.sql.dead_letters.delete.as_str().replacen('?', &dead_letter.to_string(), 1);
        *guard = format!("{guard}; {delete}");
    }

    async fn claim_operation(
        conn: &mut MySqlConnection,
        catalog: &Catalog,
        claim: &OperationClaim<'_>,
    ) -> Result<OperationClaimed<String>, Error> {
        claims::claim_operation(conn, catalog, claim).await
    }

    async fn guard(conn: &mut MySqlConnection, _: &Catalog, idle_max: Duration) -> Result<String, Error> {
        bound_handler(conn, idle_max).await?;
        Ok(String::new())
    }

    async fn response_guard(
        conn: &mut MySqlConnection,
        _: &Catalog,
        guard: &String,
    ) -> Result<String, Error> {
        exactly_one::<MySql>(conn)?;
        Ok(guard.clone())
    }

    async fn allow_commit(conn: &mut MySqlConnection, _: &Catalog, guard: &String) -> Result<(), Error> {
        exactly_one::<MySql>(conn)?;
        if !guard.is_empty() {
            raw::<MySql>(AssertSqlSafe(guard.clone())).execute(conn).await?;
        }
        Ok(())
    }

    async fn prepare_rollback(conn: &mut MySqlConnection, _: Option<&String>) {
        unwind::<MySql>(conn).await;
    }

    fn has_committed(_: &String) -> bool {
        true
    }

    fn rows_affected(result: &Self::QueryResult) -> u64 {
        result.rows_affected()
    }

    fn inserted_id(result: &Self::QueryResult) -> Option<i64> {
        i64::try_from(result.last_insert_id()).ok()
    }
}
