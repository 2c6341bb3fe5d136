//! Postgres 14 or newer.
mod effects;
mod endpoint;
mod fragments;
mod inbox;
mod jobs;
mod lock_secret;
mod log;
mod operations;
mod parking;
mod pooler;
mod publishing;
mod rebase;
mod rights;

use super::{
    Capabilities, Claim, ClaimTerms, Claims, Dialect, Fragments, Migration, OperationClaim, OperationClaimed,
    fence::session_bound,
    migrations::migrations,
    portable,
    server::{check_postgres, other_product},
    transaction::{exactly_one, unwind},
};
use crate::{
    Error,
    catalog::Catalog,
    statement::{query, query_of, raw, scalar},
    texts::Texts,
};
use fragments::flushed;
use sqlx::{PgConnection, PgPool, Postgres, postgres::PgConnectOptions};
use std::{path::PathBuf, time::Duration};
use twinbox_core::{
    Message,
    draft::Fields,
    endpoint::{PlainRefused, Protection},
};
use uuid::Uuid;

/// The bound of a transaction of Twinbox itself. A smaller one of the session stays.
macro_rules! bounded_idle {
    () => {
        "CASE
            WHEN current_setting('idle_in_transaction_session_timeout') = '0'
                OR current_setting('idle_in_transaction_session_timeout')::interval > interval '30 seconds'
            THEN set_config('idle_in_transaction_session_timeout', '30s', true)
        END"
    };
}

impl Dialect for Postgres {
    const CAPABILITIES: Capabilities = Capabilities {
        deferred_constraints: true,
        errors_abort: true,
        refuses_commit: true,
        early_mismatch: true,
    };
    const SQL: Texts = Texts {
        audit: portable::AUDIT,
        backlog: portable::BACKLOG,
        bulk_actions: portable::BULK_ACTIONS,
        client_keys: portable::CLIENT_KEYS,
        consumers: portable::CONSUMERS,
        cursors: portable::CURSORS,
        dead_letters: portable::DEAD_LETTERS,
        delayed: publishing::DELAYED,
        deliveries: parking::DELIVERIES,
        delivery_queue: portable::DELIVERY_QUEUE,
        destination_queue: portable::DESTINATION_QUEUE,
        drift: portable::DRIFT,
        effect_acts: portable::EFFECT_ACTS,
        effects: effects::EFFECTS,
        holes: portable::HOLES,
        inbox: inbox::INBOX,
        jobs: jobs::JOBS,
        log: log::LOG,
        operations: operations::OPERATIONS,
        outbox: publishing::OUTBOX,
        parked_messages: portable::PARKED_MESSAGES,
        partitions: inbox::PARTITIONS,
        redaction: portable::REDACTION,
        replays: portable::REPLAYS,
        retention: log::RETENTION,
        setup: publishing::SETUP,
        webhooks: operations::WEBHOOKS,
    };
    const FRAGMENTS: Fragments = fragments::FRAGMENTS;
    const NUMBERED_BINDS: bool = true;
    const ONE_WRITER: bool = false;
    const TAKES_POOLER: bool = true;
    const GUARDS_FIRST: bool = true;

    const MIGRATIONS: &'static [Migration] = migrations!("postgres");
    const BOOTSTRAP: &'static str = "
        CREATE SCHEMA IF NOT EXISTS {schema};
        CREATE TABLE IF NOT EXISTS {migrations} (
            version bigint PRIMARY KEY,
            name text NOT NULL,
            compatible_from bigint NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now()
        );";
    // Also for another process that makes the schema or the table at this moment, until it has committed.
    const MIGRATION_BEGIN: &'static str = concat!(
        "BEGIN ISOLATION LEVEL READ COMMITTED;
        SET LOCAL lock_timeout = '600s';
        SELECT ",
        bounded_idle!()
    );
    const MIGRATION_LOCK: Option<&'static str> = Some(
        "LOCK TABLE {migrations} IN SHARE ROW EXCLUSIVE MODE;
        SET LOCAL lock_timeout = '30s'",
    );

    const BEGIN: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED";
    const BEGIN_BOUNDED: &'static str =
        concat!("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT ", bounded_idle!());
    const BEGIN_SHORT: &'static str = concat!(
        "BEGIN ISOLATION LEVEL READ COMMITTED;
        SELECT set_config('idle_in_transaction_session_timeout', '2s', true),
            set_config('lock_timeout', '1s', true), ",
        flushed!()
    );
    const BEGIN_LONG: Option<&'static str> = Some(concat!(
        "BEGIN ISOLATION LEVEL READ COMMITTED;
        SELECT set_config('statement_timeout', '600s', true), ",
        bounded_idle!()
    ));
    const BEGIN_PLANNED_ONCE: Option<&'static str> = Some(concat!(
        "BEGIN ISOLATION LEVEL READ COMMITTED;
        SELECT set_config('plan_cache_mode', 'force_generic_plan', true), ",
        bounded_idle!()
    ));
    const CHECK_DEFERRED: Option<&'static str> = Some("SET CONSTRAINTS ALL IMMEDIATE");

    fn table(namespace: &str, name: &str) -> String {
        if name == "schema" { format!("\"{namespace}\"") } else { format!("\"{namespace}\".{name}") }
    }

    fn file_of(_: &PgPool) -> Option<PathBuf> {
        None
    }

    fn protection(options: &PgConnectOptions, allow_plain: bool) -> Result<Protection, PlainRefused> {
        endpoint::protection(options, allow_plain)
    }

    async fn check_server(conn: &mut PgConnection) -> Result<(), Error> {
        let version: String =
            query_of::<Postgres>("SELECT version()", false).scalar().fetch_one(&mut *conn).await?;
        check_postgres(&version)?;
        // Aurora DSQL says the version of the Postgres from which it has its parser.
        let mapping = "SELECT EXISTS (
            SELECT 1
            FROM pg_catalog.pg_class c
            JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'sys' AND c.relname = 'iam_pg_role_mappings')";
        match query_of::<Postgres>(mapping, false).scalar().fetch_one(conn).await? {
            true => Err(other_product("Aurora DSQL", "Postgres 14 or newer")),
            false => Ok(()),
        }
    }

    async fn check(conn: &mut PgConnection, namespace: &str) -> Result<(), Error> {
        log::check(conn, namespace).await
    }

    async fn is_pooled(pool: &PgPool) -> Result<bool, Error> {
        pooler::is_pooled(pool).await
    }

    async fn rebase(conn: &mut PgConnection, namespace: &str) -> Result<u64, Error> {
        rebase::rebase(conn, namespace).await
    }

    async fn publish_all(
        conn: &mut PgConnection,
        catalog: &Catalog,
        messages: Vec<Fields>,
    ) -> Result<(), Error> {
        publishing::publish_all(conn, catalog, &messages).await
    }

    async fn lock_key(conn: &mut PgConnection, catalog: &Catalog, key: &str) -> Result<(), Error> {
        let secret = lock_secret::known(conn, catalog).await?;
        let number = secret.number(&[b"key/", key.as_bytes()]);
        let lock = query::<Postgres>(&catalog.sql.outbox.lock_key).for_caller().scalar::<bool>();
        let lock = lock.bind(number).bind(secret.bytes());
        if lock.fetch_one(conn).await? { Ok(()) } else { Err(lock_secret::gone()) }
    }

    async fn park_deliveries(
        conn: &mut PgConnection,
        catalog: &Catalog,
        consumer: &str,
        partition: u32,
        deliveries: &[(&Message, Duration)],
    ) -> Result<(), Error> {
        parking::park_deliveries(conn, catalog, consumer, partition, deliveries).await
    }

    async fn ensure_whole(conn: &mut PgConnection) -> Result<(), Error> {
        raw::<Postgres>("SELECT").execute(conn).await.map_err(Error::of_last_statement)?;
        Ok(())
    }

    /// The transaction id.
    type Guard = String;

    async fn claim(
        conn: &mut PgConnection,
        catalog: &Catalog,
        consumer: &str,
        terms: ClaimTerms,
        claims: &[Claim<'_>],
        guard: &mut Option<String>,
    ) -> Result<Claims<Uuid>, Error> {
        inbox::claim(conn, catalog, consumer, terms, claims, guard).await
    }

    async fn claim_operation(
        conn: &mut PgConnection,
        catalog: &Catalog,
        claim: &OperationClaim<'_>,
    ) -> Result<OperationClaimed<String>, Error> {
        operations::claim(conn, catalog, claim).await
    }

    async fn guard(conn: &mut PgConnection, catalog: &Catalog, idle_max: Duration) -> Result<String, Error> {
        let guard = scalar::<Postgres, String>(&catalog.sql.inbox.guard).bind(session_bound(idle_max));
        Ok(guard.fetch_one(conn).await?)
    }

    async fn response_guard(
        conn: &mut PgConnection,
        catalog: &Catalog,
        guard: &String,
    ) -> Result<String, Error> {
        exactly_one::<Postgres>(conn)?;
        pooler::refuse_named(conn, catalog).await?;
        Ok(guard.clone())
    }

    async fn allow_commit(conn: &mut PgConnection, catalog: &Catalog, guard: &String) -> Result<(), Error> {
        Self::response_guard(conn, catalog, guard).await?;
        let allow = query::<Postgres>(&catalog.sql.inbox.allow_commit).bind(guard);
        match allow.fetch_optional(conn).await.map_err(Error::of_last_statement)? {
            Some(_) => Ok(()),
            None => Err(Error::transaction_ended()),
        }
    }

    /// sqlx rolls back only the transactions that it counts, and a connection that was swapped in may hold a
    /// BEGIN that it does not. ROLLBACK outside a transaction is only a warning.
    async fn prepare_rollback(conn: &mut PgConnection, _: Option<&String>) {
        unwind::<Postgres>(conn).await;
        if !sqlx::Connection::is_in_transaction(conn) {
            let _ = raw::<Postgres>("ROLLBACK").execute(conn).await;
        }
    }

    fn has_committed(_: &String) -> bool {
        true
    }

    fn rows_affected(result: &Self::QueryResult) -> u64 {
        result.rows_affected()
    }
}
