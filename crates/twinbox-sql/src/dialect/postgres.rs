mod claim;
mod park;
mod pooler;
mod rebase;
mod replay;
mod retention;

use pooler::{LOOKS, server, unnamed};

use super::{
    Claim, Claims, Dialect, OperationClaim, OperationClaimed, exactly_one, migrations, transaction_aborted,
    transaction_ended, unwind,
};
use crate::{
    Error, ErrorKind,
    error::sqlstate,
    micros::Micros,
    migrate::Migration,
    row,
    sql::{Statements, query},
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres};
use std::{path::PathBuf, time::Duration};
use twinbox_core::{Message, draft::Fields};
use uuid::Uuid;

/// Raised for this transaction alone, and stricter values are left: `local` flushes here and waits for no standby.
macro_rules! flushed {
    () => {
        "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') \
            THEN set_config('synchronous_commit', 'on', true) END"
    };
}

/// Before COMMIT: whether it is the transaction of the claim. Bind: its guard.
pub(crate) const ALLOW_COMMIT: &str =
    "SELECT pg_current_xact_id_if_assigned()::text = $1 AND set_config('twinbox.commit', $1, true) = $1";

impl Dialect for Postgres {
    const MIGRATIONS: &'static [Migration] = migrations!("postgres");
    const BOOTSTRAP: &'static str = "CREATE SCHEMA IF NOT EXISTS {schema};
        CREATE TABLE IF NOT EXISTS {migrations} (version bigint PRIMARY KEY, name text NOT NULL,
            compatible_from bigint NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());";
    const MIGRATION_LOCK: Option<&'static str> =
        Some("SELECT pg_advisory_xact_lock(hashtextextended('twinbox migrations', 0))");

    const BEGIN: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED";
    const BEGIN_PARK: &'static str = concat!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; \
        SELECT set_config('idle_in_transaction_session_timeout', '2s', true), \
        set_config('lock_timeout', '1s', true), ",
        flushed!()
    );
    const BEGIN_FAR: Option<&'static str> =
        Some("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('statement_timeout', '600s', true)");
    const NUMBERED_BINDS: bool = true;
    const ONE_WRITER: bool = false;
    const BOUNDED: &'static str = "(SELECT set_config('lock_timeout', '2s', true)) IS NOT NULL";
    const UNFLUSHED: &'static str = "(SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL";
    const LOCK_ROW: &'static str = " FOR UPDATE";
    const PASS_BY_LOCKED: &'static str = " FOR UPDATE SKIP LOCKED";
    const TURN: &'static str =
        "(SELECT pg_advisory_xact_lock(hashtextextended('change {outbox}', 0))) IS NOT NULL";
    const UUID: &'static str = "uuid";
    const JSON: &'static str = "jsonb";
    const CHECK_DEFERRED: Option<&'static str> = Some("SET CONSTRAINTS ALL IMMEDIATE");
    const FENCE: &'static str = "SELECT {fence}(?, ?, ?, ?, ?)";
    const FENCE_OUT: Option<&'static str> =
        Some("SELECT pg_advisory_xact_lock(hashtextextended('{places} ' || ?, ?)) WHERE {bounded}");
    const RUN: &'static str = "SELECT {run_id}()";
    const BEGIN_RUN: Option<&'static str> = Some("INSERT INTO {run} DEFAULT VALUES ON CONFLICT DO NOTHING");
    const IS_RUN: &'static str = "(SELECT {run_id}()) = ?";
    // An array, because a join could be planned over the whole table.
    const AMONG: &'static str = "= ANY(ARRAY(SELECT n::bigint FROM jsonb_array_elements_text(?::jsonb) n))";
    const PARKED_ROWS: &'static str = "jsonb_to_recordset(?::jsonb) AS r (position bigint, key text, type text, \
        state text, holds boolean, attempts bigint, delay bigint, error text, again boolean)";
    const FLUSHED: &'static str = flushed!();
    const NOW: &'static str = "clock_timestamp()";
    const AFTER: &'static str = "(clock_timestamp() + ? * interval '1 microsecond')";
    const PUBLISH_ALL: &'static str = "INSERT INTO {outbox} ({published}) \
        SELECT id, type, version, key, subject, COALESCE(time, clock_timestamp()), correlation_id, causation_id, \
        traceparent, content_type, headers, payload \
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], \
        $8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[]) WITH ORDINALITY \
        AS m ({published}, nth) ORDER BY nth";
    const PARK_DELIVERY: &'static str = park::PARK_DELIVERY;
    const CLAIM: &'static str = claim::CLAIM;
    const CLAIM_ONE: Option<&'static str> = Some(claim::CLAIM_ONE);
    const CLAIM_OPERATION: [&'static str; 3] = claim::CLAIM_OPERATION;
    const RECEIVE: [&'static str; 3] = claim::RECEIVE;
    const PURGE_RECEIPTS: &'static str = claim::PURGE_RECEIPTS;
    const PURGE_OPERATIONS: &'static str = claim::PURGE_OPERATIONS;
    // By inbox_claimed_at. One process at a time, so that no two wait for each other.
    const PURGE_CLAIMS: &'static str = "DELETE FROM {inbox}
        WHERE (SELECT pg_try_advisory_xact_lock(hashtextextended('purge {inbox} ' || $1, 0)))
            AND consumer = $1 AND message_id = ANY(ARRAY(
                SELECT message_id FROM {inbox}
                WHERE consumer = $1 AND claimed_at <= $2 AND COALESCE(time, claimed_at) <= $3
                ORDER BY claimed_at LIMIT $4))
            AND EXISTS (SELECT FROM {purge_marks} WHERE consumer = $1 AND time >= $3)";

    // By delayed_due. One mover at a time, so that messages of a key come in the order of their times whoever moves
    // them; what somebody is cancelling is passed by.
    const MOVE_DUE: &'static str = "WITH due AS (
            DELETE FROM {delayed}
            WHERE (SELECT pg_try_advisory_xact_lock(hashtextextended('move {delayed}', 0))) AND nth = ANY(ARRAY(
                SELECT nth FROM {delayed} WHERE not_before <= (SELECT clock_timestamp())
                ORDER BY not_before, nth LIMIT ? FOR UPDATE SKIP LOCKED))
            RETURNING *
        ) INSERT INTO {outbox} ({published})
        SELECT id, type, version, key, subject, COALESCE(time, clock_timestamp()), correlation_id, causation_id,
            traceparent, content_type, headers, payload
        FROM due ORDER BY not_before, nth";
    const FORGET_MOVED: Option<&'static str> = None;

    // By outbox_txid_position in both branches; ORDER BY keeps the planner on it, because it would take a
    // table scan for finding "some" row at once, and read all of the table when there is none. A range in
    // the place of `txid = late`, because the order of positions alone is what the primary key has too. Once a second
    // a tick is made even if nothing is there, so that the rows of a long open transaction fall behind the
    // last tick's xmax and are not read again by every peek.
    const NEWEST: &'static str = "WITH last AS MATERIALIZED (
            SELECT id, snapshot, at FROM {ticks} ORDER BY id DESC LIMIT 1
        ), made AS (
            INSERT INTO {ticks} (id, snapshot, at)
            SELECT id + 1, pg_current_snapshot(), greatest(clock_timestamp(), at) FROM last
            WHERE id <= ? AND (at < clock_timestamp() - interval '1 second'
                OR (SELECT position FROM {outbox} WHERE txid >= pg_snapshot_xmax((SELECT snapshot FROM last))
                    ORDER BY txid, position LIMIT 1) IS NOT NULL
                OR EXISTS (SELECT 1 FROM pg_snapshot_xip((SELECT snapshot FROM last)) late
                    WHERE pg_visible_in_snapshot(late, pg_current_snapshot())
                    AND (SELECT position FROM {outbox} WHERE txid >= late AND txid <= late
                        ORDER BY txid, position LIMIT 1) IS NOT NULL))
            ON CONFLICT DO NOTHING RETURNING id
        ) SELECT COALESCE((SELECT id FROM made), (SELECT id FROM last)), {flushed}";

    // By outbox_txid_position; OFFSET 0 keeps the planner from walking the primary key for min and max. What costs is asked
    // only if there is nothing new: otherwise a page is read, which compares the run.
    const BOUNDS: &'static str = "SELECT min(position) - 1, max(position),
            (SELECT snapshot::text FROM {ticks} WHERE id = $1), (SELECT snapshot::text FROM {ticks} WHERE id = $2),
            min(position) IS NULL AND NOT EXISTS (SELECT FROM {ticks} t, pg_snapshot_xip(t.snapshot) late
                WHERE t.id = $1
                    AND pg_visible_in_snapshot(late, (SELECT snapshot FROM {ticks} WHERE id = $2))),
            min(position) IS NOT NULL OR ({run_id}() = $3) IS TRUE
        FROM (
            SELECT position FROM {outbox}
            WHERE txid >= (SELECT pg_snapshot_xmax(snapshot) FROM {ticks} WHERE id = $1)
                AND txid < (SELECT pg_snapshot_xmax(snapshot) FROM {ticks} WHERE id = $2) OFFSET 0
        ) newcomers";

    // Late committers by outbox_txid_position, newcomers by the primary key: `IS TRUE` keeps the planner off
    // the other index, where it would sort, and a range of one txid keeps it off the primary key, which it
    // would walk from end to end once a bulk transaction has made one txid common. The join keeps the
    // order in practice, and the reader sorts in case it does not: a second sort here cost a quarter of it
    // all. A standby can lack rows that the tick promises, and so can a server that forgot: neither is the run.
    const PAGE: &'static str = "WITH s AS MATERIALIZED (
            SELECT (SELECT snapshot FROM {ticks} WHERE id = $2) p, (SELECT snapshot FROM {ticks} WHERE id = $3) w,
                ({run_id}() = $7) IS TRUE is_run
        ) SELECT (s.p IS NOT NULL AND s.w IS NOT NULL AND s.is_run) AS readable, u.*
        FROM s LEFT JOIN (SELECT * FROM (
            (SELECT l.* FROM (
                SELECT x FROM s, pg_snapshot_xip(s.p) x WHERE pg_visible_in_snapshot(x, s.w)
            ) late CROSS JOIN LATERAL (
                SELECT position, {message} FROM {outbox}
                WHERE (txid, position) > (late.x, $1) AND txid <= late.x ORDER BY txid, position LIMIT $6) l)
            UNION ALL
            (SELECT position, {message} FROM {outbox}
                WHERE position > greatest($1, $4) AND position <= $5
                AND (txid >= (SELECT pg_snapshot_xmax(p) FROM s)) IS TRUE
                AND pg_visible_in_snapshot(txid, (SELECT w FROM s)) ORDER BY position LIMIT $6)
        ) both_branches ORDER BY position LIMIT $6) u ON true";
    const START_NOW: &'static str = "INSERT INTO {ticks} (id, snapshot, at) \
        SELECT id + 1, pg_current_snapshot(), greatest(clock_timestamp(), at) \
        FROM (SELECT id, at FROM {ticks} ORDER BY id DESC LIMIT 1) last \
        ON CONFLICT DO NOTHING RETURNING id, {flushed}";
    const START_AT: &'static str = "SELECT max(id) FROM {ticks} WHERE at <= $1 OR id = 0";

    const THIN: Option<&'static str> = Some(retention::THIN);
    const PURGE: &'static str = retention::PURGE;
    const PURGE_TICKS: Option<&'static str> = Some(retention::PURGE_TICKS);
    const BEHIND: &'static str = retention::BEHIND;
    const NEVER: &'static str = "'infinity'";
    const BACKLOG: &'static str = retention::BACKLOG;
    const SETTLED: [&'static str; 4] = replay::SETTLED;
    const KEEP_TICKS: Option<&'static str> = Some("LOCK TABLE {ticks} IN SHARE MODE");
    const START_BEHIND: &'static str = replay::START_BEHIND;
    const FACTS: &'static str = "SELECT name, setting FROM pg_settings WHERE name IN ('server_version', 'fsync', \
        'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'track_commit_timestamp') \
        UNION ALL SELECT 'asynchronous_replicas', count(*)::text FROM pg_stat_replication \
        WHERE sync_state = 'async' ORDER BY 1";
    const HAS_RIGHT: Option<&'static str> = Some(
        "SELECT CASE WHEN $2 = '' THEN $1 = '' OR EXISTS (SELECT FROM pg_roles WHERE rolname = $1) \
            WHEN $4 <> '' THEN has_column_privilege(r, $2, $4, $3) \
            WHEN strpos($2, '.') > 0 THEN has_table_privilege(r, $2, $3) ELSE has_schema_privilege(r, $2, $3) END \
        FROM (SELECT COALESCE(NULLIF($1::text, ''), current_user::text)::name) who (r)",
    );
    const LEASE_LEFT: &'static str =
        "(EXTRACT(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint";

    fn table(namespace: &str, name: &str) -> String {
        if name == "schema" { format!("\"{namespace}\"") } else { format!("\"{namespace}\".{name}") }
    }

    async fn check(conn: &mut PgConnection, namespace: &str) -> Result<(), Error> {
        let sentinel = Self::table(namespace, "sentinel");
        let facts = format!(
            "SELECT pg_is_in_recovery(),
                (SELECT bool_and(xmin::text::bigint = (txid::text::numeric % 4294967296)::bigint) FROM {sentinel}),
                (SELECT seqcache = 1 FROM pg_sequence
                    WHERE seqrelid = pg_get_serial_sequence($1, 'position')::regclass)"
        );
        let (standby, original, uncached): (bool, Option<bool>, Option<bool>) =
            sqlx::query_as(AssertSqlSafe(facts))
                .persistent(false)
                .bind(Self::table(namespace, "outbox"))
                .fetch_one(conn)
                .await?;
        if standby {
            return Err(Error::new(
                ErrorKind::Standby,
                "this server is a standby: connect to the primary, messages are never read from a replica",
            ));
        }
        if original != Some(true) {
            return Err(Error::new(
                ErrorKind::Restored,
                "this database was restored from a dump, and the log's transaction ids mean nothing here: \
                 run `twinbox-relay rebase` before anything reads it",
            ));
        }
        if uncached != Some(true) {
            return Err(Error::new(
                ErrorKind::Configuration,
                "the outbox sequence caches values, which breaks the order of keys: \
                 ALTER TABLE outbox ALTER COLUMN position SET CACHE 1",
            ));
        }
        Ok(())
    }

    async fn is_pooled(pool: &PgPool) -> Result<bool, Error> {
        let mut ours = pool.acquire().await?;
        // Not from the pool, which may have no other. Without a second connection nothing is found out.
        let Ok(mut other) = PgConnection::connect_with(&pool.connect_options()).await else {
            return Ok(false);
        };
        let mut seen = None;
        for _ in 0..LOOKS {
            let mine = server(&mut ours).await?;
            if seen.replace(mine).is_some_and(|before| before != mine) || server(&mut other).await? == mine {
                return Ok(true);
            }
        }
        other.close().await?;
        Ok(false)
    }

    async fn rebase(conn: &mut PgConnection, namespace: &str) -> Result<u64, Error> {
        rebase::rebase(conn, namespace).await
    }

    async fn publish_all(
        conn: &mut PgConnection,
        statements: &Statements,
        messages: Vec<Fields>,
    ) -> Result<(), Error> {
        fn column<T>(messages: &[Fields], get: impl Fn(&Fields) -> T) -> Vec<T> {
            messages.iter().map(get).collect()
        }
        let m = &messages;
        query::<Postgres>(&statements.publish_all)
            .bind(column(m, |f| f.id.clone()))
            .bind(column(m, |f| f.event_type.clone()))
            .bind(column(m, |f| i64::from(f.version)))
            .bind(column(m, |f| f.key.clone()))
            .bind(column(m, |f| f.subject.clone()))
            .bind(column(m, |f| f.time.map(Micros)))
            .bind(column(m, |f| f.correlation_id.clone()))
            .bind(column(m, |f| f.causation_id.clone()))
            .bind(column(m, |f| f.traceparent.clone()))
            .bind(column(m, |f| f.content_type.clone()))
            .bind(column(m, |f| row::headers(&f.headers)))
            .bind(column(m, |f| f.payload.to_vec()))
            .execute(conn)
            .await?;
        Ok(())
    }

    async fn park_deliveries(
        conn: &mut PgConnection,
        statements: &Statements,
        consumer: &str,
        partition: u32,
        deliveries: &[(&Message, Duration)],
    ) -> Result<(), Error> {
        park::park_deliveries(conn, statements, consumer, partition, deliveries).await
    }

    async fn lock_key(conn: &mut PgConnection, statements: &Statements, key: &str) -> Result<(), Error> {
        let name = format!("twinbox/{}/{key}", statements.namespace);
        let lock = sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))");
        lock.persistent(statements.named).bind(name).execute(conn).await?;
        Ok(())
    }

    fn file_of(_: &PgPool) -> Option<PathBuf> {
        None
    }

    async fn ensure_whole(conn: &mut PgConnection) -> Result<(), Error> {
        match sqlx::raw_sql("SELECT").execute(conn).await {
            Ok(_) => Ok(()),
            Err(e) if sqlstate(&e).as_deref() == Some("25P02") => Err(transaction_aborted()),
            Err(e) => Err(e.into()),
        }
    }

    /// The transaction id.
    type Guard = String;

    async fn claim(
        conn: &mut PgConnection,
        statements: &Statements,
        consumer: &str,
        claims: &[Claim<'_>],
        guard: &mut Option<String>,
    ) -> Result<Claims<Uuid>, Error> {
        claim::claim(conn, statements, consumer, claims, guard).await
    }

    async fn claim_operation(
        conn: &mut PgConnection,
        statements: &Statements,
        claim: &OperationClaim<'_>,
    ) -> Result<OperationClaimed<String>, Error> {
        claim::claim_operation(conn, statements, claim).await
    }

    async fn guard(
        conn: &mut PgConnection,
        statements: &Statements,
        idle_max: Duration,
    ) -> Result<String, Error> {
        let guard = sqlx::query_scalar(
            "SELECT pg_current_xact_id()::text FROM set_config('idle_in_transaction_session_timeout', $1, true)",
        );
        let guard = guard.persistent(statements.named).bind(claim::idle_max(idle_max));
        Ok(guard.fetch_one(conn).await?)
    }

    const ANSWER_GUARDED: [&'static str; 2] =
        ["'\\x'::bytea", "set_config('twinbox.commit', ?, true) = pg_current_xact_id()::text"];

    async fn answer_guard(
        conn: &mut PgConnection,
        statements: &Statements,
        guard: &String,
    ) -> Result<String, Error> {
        exactly_one::<Postgres>(conn)?;
        unnamed(conn, statements).await?;
        Ok(guard.clone())
    }

    async fn allow_commit(
        conn: &mut PgConnection,
        statements: &Statements,
        guard: &String,
    ) -> Result<(), Error> {
        Self::answer_guard(conn, statements, guard).await?;
        let same: Result<Option<bool>, _> =
            sqlx::query_scalar(ALLOW_COMMIT).persistent(statements.named).bind(guard).fetch_one(conn).await;
        match same {
            Ok(Some(true)) => Ok(()),
            Ok(_) => Err(transaction_ended()),
            Err(e) if sqlstate(&e).as_deref() == Some("25P02") => Err(transaction_aborted()),
            Err(e) => Err(e.into()),
        }
    }

    /// sqlx rolls back only what it counts, and a connection that was swapped in may hold a BEGIN that it
    /// does not. ROLLBACK outside a transaction is only a warning.
    async fn prepare_rollback(conn: &mut PgConnection, _: Option<&String>) {
        unwind::<Postgres>(conn).await;
        if !sqlx::Connection::is_in_transaction(conn) {
            let _ = sqlx::raw_sql("ROLLBACK").execute(conn).await;
        }
    }

    fn committed(_: &String) -> bool {
        true
    }

    fn rows_affected(result: &Self::QueryResult) -> u64 {
        result.rows_affected()
    }
}
