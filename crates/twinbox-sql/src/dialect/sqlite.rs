//! SQLite: one writer, so positions follow commit order and a tick is a position.
use super::{
    Claim, Claims, Dialect, OperationBegun, OperationClaim, OperationClaimed, exactly_one, migrations,
    transaction_ended, unwind,
};
use crate::{
    Error, ErrorKind,
    micros::{Micros, micros},
    migrate::Migration,
    row,
    sql::{Statements, query, scalar},
};
use sqlx::{
    AssertSqlSafe, Sqlite, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::Duration,
};
use twinbox_core::{Message, draft::Fields};
use uuid::Uuid;

/// Opens a database file, made if it is missing, with what a durable log needs: WAL, `synchronous = FULL`
/// (a committed message survives a power cut) and a busy time-out of 10 s against other processes.
///
/// # Errors
/// The file cannot be opened or made.
pub async fn open(path: impl AsRef<Path>) -> Result<SqlitePool, Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(10))
        .foreign_keys(true);
    Ok(SqlitePoolOptions::new().max_connections(8).connect_with(options).await?)
}

impl Dialect for Sqlite {
    const MIGRATIONS: &'static [Migration] = migrations!("sqlite");
    const BOOTSTRAP: &'static str = "CREATE TABLE IF NOT EXISTS {migrations} (version INTEGER PRIMARY KEY,
        name TEXT NOT NULL, compatible_from INTEGER NOT NULL,
        applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))) STRICT;";
    // BEGIN IMMEDIATE is one.
    const MIGRATION_LOCK: Option<&'static str> = None;

    // Not DEFERRED: a transaction that reads and then writes is refused as busy at once, whatever the
    // time-out.
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const BEGIN_PARK: &'static str = Self::BEGIN;
    const BEGIN_FAR: Option<&'static str> = None;
    const NUMBERED_BINDS: bool = false;
    const ONE_WRITER: bool = true;
    const BOUNDED: &'static str = "true";
    const UNFLUSHED: &'static str = "true";
    const LOCK_ROW: &'static str = "";
    const PASS_BY_LOCKED: &'static str = "";
    const TURN: &'static str = "true";
    const UUID: &'static str = "BLOB";
    const JSON: &'static str = "TEXT";
    const CHECK_DEFERRED: Option<&'static str> = None;
    // Whoever has begun is the only writer.
    const FENCE: &'static str = "SELECT EXISTS (SELECT 1 FROM {places} WHERE consumer = ? AND partition = ? AND epoch = ?) AND {is_run} AND ? > 0";
    const FENCE_OUT: Option<&'static str> = None;
    // A file forgets nothing while a process has it open.
    const RUN: &'static str = "SELECT 0";
    const BEGIN_RUN: Option<&'static str> = None;
    const IS_RUN: &'static str = "? IS NOT NULL";
    const AMONG: &'static str = "IN (SELECT value FROM json_each(?))";
    const PARKED_ROWS: &'static str = "(SELECT value ->> 'position' AS position, value ->> 'key' AS key, \
        value ->> 'type' AS type, value ->> 'state' AS state, value ->> 'holds' AS holds, \
        value ->> 'attempts' AS attempts, value ->> 'delay' AS delay, value ->> 'error' AS error, value ->> 'again' AS again \
        FROM json_each(?)) AS r";
    const FLUSHED: &'static str = "NULL";
    const NOW: &'static str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
    const AFTER: &'static str = "(CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?)";
    // Followed by as many rows as there are messages.
    const PUBLISH_ALL: &'static str = "INSERT INTO {outbox} ({published}) VALUES ";
    const PARK_DELIVERY: &'static str = "INSERT INTO {parked_deliveries} (consumer, partition, next_attempt_at, \
        message_id, message_sequence, event_id, source, type, version, key, subject, time, correlation_id, \
        causation_id, traceparent, content_type, headers, payload) \
        VALUES (?, ?, {after}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
    const CLAIM: &'static str = "INSERT INTO {inbox} (consumer, message_id, source, event_id, payload_hash, state, \
        time, claimed_at) VALUES (?1, ?2, ?3, ?4, ?5, 'processed', ?6, max({now}, ?6)) ON CONFLICT DO NOTHING";
    const CLAIM_ONE: Option<&'static str> = None;
    const CLAIM_OPERATION: [&'static str; 3] = ["", "WHERE true", ""];
    const RECEIVE: [&'static str; 3] = ["", "WHERE true", "true"];
    const PURGE_RECEIPTS: &'static str = "DELETE FROM {webhook_receipts} WHERE rowid IN (
            SELECT rowid FROM {webhook_receipts} WHERE expires_at <= (SELECT {now}) ORDER BY expires_at LIMIT ?)";
    const PURGE_OPERATIONS: &'static str = "DELETE FROM {idempotency_keys} WHERE slot IN (
            SELECT slot FROM {idempotency_keys}
            WHERE expires_at <= (SELECT {now}) AND NOT unfinished
                AND (lease_until IS NULL OR lease_until <= (SELECT {now}))
            ORDER BY expires_at LIMIT ?)";
    // By inbox_claimed_at.
    const PURGE_CLAIMS: &'static str = "DELETE FROM {inbox} WHERE consumer = ?1 AND message_id IN (
            SELECT message_id FROM {inbox}
            WHERE consumer = ?1 AND claimed_at <= ?2 AND COALESCE(time, claimed_at) <= ?3
            ORDER BY claimed_at LIMIT ?4)
            AND EXISTS (SELECT 1 FROM {purge_marks} WHERE consumer = ?1 AND time >= ?3)";

    // By delayed_due, both.
    const MOVE_DUE: &'static str = "INSERT INTO {outbox} ({published})
        SELECT id, type, version, key, subject, COALESCE(time, {now}), correlation_id, causation_id, traceparent,
            content_type, headers, payload
        FROM {delayed} WHERE not_before <= (SELECT {now}) ORDER BY not_before, nth LIMIT ?";
    const FORGET_MOVED: Option<&'static str> = Some(
        "DELETE FROM {delayed} WHERE nth IN (SELECT nth FROM {delayed} ORDER BY not_before, nth LIMIT ?)",
    );

    const NEWEST: &'static str = "SELECT COALESCE((SELECT max(position) FROM {outbox}), 0 * ?)";
    const BOUNDS: &'static str = "SELECT ?1, ?2, '', '', true, ?3 IS NOT NULL";
    const PAGE: &'static str = "SELECT ?7 IS NOT NULL AS readable, position, {message} FROM {outbox} \
        WHERE position > max(?1, ?2, ?4) AND position <= min(?3, ?5) ORDER BY position LIMIT ?6";
    const START_NOW: &'static str = "SELECT COALESCE(max(position), 0) FROM {outbox}";
    const START_AT: &'static str = "SELECT COALESCE((SELECT min(position) - 1 FROM {outbox} WHERE time >= ?1), \
        (SELECT max(position) FROM {outbox}), 0)";

    const THIN: Option<&'static str> = None;

    // The newest message stays: its position is how far the log reaches.
    const PURGE: &'static str = "DELETE FROM {outbox} WHERE position IN (
            SELECT position FROM {outbox} o
            WHERE position <= (SELECT min(CASE WHEN lease_until < {never} THEN p ELSE {never} END) FROM {cursors})
                AND position < (SELECT max(position) FROM {outbox})
                AND time <= {now} - ? AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.position = o.position)
            ORDER BY position LIMIT ?)";
    const PURGE_TICKS: Option<&'static str> = None;
    const BEHIND: &'static str = "EXISTS (SELECT 1 FROM {outbox} o
        WHERE o.position > max(c.p, c.position) AND o.time <= {now} - ?)";
    const NEVER: &'static str = "9223372036854775807";

    const BACKLOG: &'static str = "SELECT count(*), COALESCE(CAST(unixepoch('subsec') * 1000000 AS INTEGER) - min(time), 0) FROM (
            SELECT time FROM {outbox} WHERE position > (SELECT max(p, position) FROM {cursors} WHERE destination = ?1)
            ORDER BY position LIMIT ?2)";
    const SETTLED: [&'static str; 4] = [
        "WITH s AS (SELECT ? AS p, ? AS w) ",
        "o.position <= max(s.p, ?)",
        "min(o.position) - 1",
        "o.position > max(s.p, ?)",
    ];
    const KEEP_TICKS: Option<&'static str> = None;
    const START_BEHIND: &'static str = "SELECT min(?1, ?2) WHERE ?3 >= ?2";
    const FACTS: &'static str = "SELECT 'journal_mode', journal_mode FROM pragma_journal_mode \
        UNION ALL SELECT 'server_version', sqlite_version() \
        UNION ALL SELECT 'synchronous', CAST(synchronous AS TEXT) FROM pragma_synchronous";
    const HAS_RIGHT: Option<&'static str> = None;
    const LEASE_LEFT: &'static str = "lease_until - CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

    fn table(namespace: &str, name: &str) -> String {
        format!("{namespace}_{name}")
    }

    async fn check(conn: &mut SqliteConnection, _: &str) -> Result<(), Error> {
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(conn).await?;
        if mode != "wal" {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!(
                    "the journal mode is `{mode}` and must be `wal`: open the pool with `sqlite::open`, \
                     or set `SqliteConnectOptions::journal_mode`"
                ),
            ));
        }
        Ok(())
    }

    async fn is_pooled(_: &SqlitePool) -> Result<bool, Error> {
        Ok(false)
    }

    async fn rebase(_: &mut SqliteConnection, _: &str) -> Result<u64, Error> {
        Err(Error::new(
            ErrorKind::Configuration,
            "SQLite needs no rebase: a copy of the file goes on where the original was",
        ))
    }

    async fn publish_all(
        conn: &mut SqliteConnection,
        statements: &Statements,
        messages: Vec<Fields>,
    ) -> Result<(), Error> {
        let values = format!("(?, ?, ?, ?, ?, COALESCE(?, {}), ?, ?, ?, ?, ?, ?)", Self::NOW);
        let rows = vec![values; messages.len()].join(", ");
        let sql = format!("{}{rows}", statements.publish_all.as_str());
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        messages.into_iter().fold(query, row::bind::<Sqlite>).execute(conn).await?;
        Ok(())
    }

    async fn park_deliveries(
        conn: &mut SqliteConnection,
        statements: &Statements,
        consumer: &str,
        partition: u32,
        deliveries: &[(&Message, Duration)],
    ) -> Result<(), Error> {
        for (message, delay) in deliveries {
            let park = query::<Sqlite>(&statements.park_delivery)
                .bind(consumer)
                .bind(i64::from(partition))
                .bind(micros(*delay));
            row::bind_message(park, message).execute(&mut *conn).await?;
        }
        Ok(())
    }

    async fn lock_key(_: &mut SqliteConnection, _: &Statements, _: &str) -> Result<(), Error> {
        Ok(())
    }

    /// SQLite ends a transaction by itself on `RAISE(ROLLBACK)`, or a full disk. It has none then, and a BEGIN, which the
    /// rollback that follows ends, is no error.
    async fn ensure_whole(conn: &mut SqliteConnection) -> Result<(), Error> {
        match sqlx::raw_sql("BEGIN").execute(conn).await {
            Ok(_) => Err(Error::new(
                ErrorKind::TransactionAborted,
                "SQLite rolled the transaction back by itself, on RAISE(ROLLBACK) or a full disk, and that error was \
                 ignored: what came before it is undone, and each statement after it was written alone",
            )),
            Err(sqlx::Error::Database(error)) if error.message().contains("within a transaction") => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn file_of(pool: &SqlitePool) -> Option<PathBuf> {
        let options = pool.connect_options();
        let file = options.get_filename();
        if file == Path::new(":memory:") {
            return None;
        }
        // A file that is not made yet is in a folder that is.
        let folder = || Some(file.parent()?.canonicalize().ok()?.join(file.file_name()?));
        Some(file.canonicalize().ok().or_else(folder).unwrap_or_else(|| file.to_owned()))
    }

    type Guard = CommitGate;

    async fn claim(
        conn: &mut SqliteConnection,
        statements: &Statements,
        consumer: &str,
        claims: &[Claim<'_>],
        guard: &mut Option<CommitGate>,
    ) -> Result<Claims<Uuid>, Error> {
        *guard = Some(CommitGate::close(conn).await?);
        let mut new = Vec::with_capacity(claims.len());
        for claim in claims {
            let claimed = query::<Sqlite>(&statements.claim)
                .bind(consumer)
                .bind(claim.message_id)
                .bind(&*claim.source)
                .bind(&*claim.event_id)
                .bind(&*claim.payload_hash)
                .bind(claim.time)
                .execute(&mut *conn)
                .await?;
            if claimed.rows_affected() == 1 {
                new.push(claim.message_id);
            }
        }
        let mark =
            scalar::<Sqlite, Micros>(&statements.purge_mark).bind(consumer).fetch_optional(conn).await?;
        Ok(Claims { new, mark: mark.map(|mark| mark.0) })
    }

    async fn claim_operation(
        conn: &mut SqliteConnection,
        statements: &Statements,
        claim: &OperationClaim<'_>,
    ) -> Result<OperationClaimed<CommitGate>, Error> {
        let claimed =
            claim.bind(query::<Sqlite>(&statements.claim_operation)).fetch_optional(&mut *conn).await?;
        let Some(row) = claimed else { return Ok(OperationClaimed::Taken) };
        let begun = OperationBegun::of(&row, 0)?;
        Ok(OperationClaimed::Open(begun, CommitGate::close(conn).await?))
    }

    async fn guard(conn: &mut SqliteConnection, _: &Statements, _: Duration) -> Result<CommitGate, Error> {
        CommitGate::close(conn).await
    }

    const ANSWER_GUARDED: [&'static str; 2] = ["x''", "? = ''"];

    async fn answer_guard(
        conn: &mut SqliteConnection,
        _: &Statements,
        gate: &CommitGate,
    ) -> Result<String, Error> {
        exactly_one::<Sqlite>(conn)?;
        gate.0.compare_exchange(CLOSED, ALLOWED, SeqCst, SeqCst).map_err(|_| transaction_ended())?;
        Ok(String::new())
    }

    async fn allow_commit(
        conn: &mut SqliteConnection,
        statements: &Statements,
        gate: &CommitGate,
    ) -> Result<(), Error> {
        Self::answer_guard(conn, statements, gate).await.map(drop)
    }

    /// sqlx's rollback fails when SQLite has none to roll back, and then counts a transaction for ever:
    /// every later `begin_with` on the connection would fail.
    async fn prepare_rollback(conn: &mut SqliteConnection, gate: Option<&CommitGate>) {
        if gate.is_some_and(|gate| gate.0.load(SeqCst) == ENDED) {
            // Fails, and rightly, if the handler has begun another.
            let _ = sqlx::raw_sql("BEGIN").execute(&mut *conn).await;
        }
        unwind::<Sqlite>(conn).await;
    }

    fn committed(gate: &CommitGate) -> bool {
        gate.0.load(SeqCst) == COMMITTED
    }

    fn rows_affected(result: &Self::QueryResult) -> u64 {
        result.rows_affected()
    }
}

const CLOSED: u8 = 0;
const ALLOWED: u8 = 1;
const COMMITTED: u8 = 2;
const ENDED: u8 = 3;
const RELEASED: u8 = 4;

/// Shared with the hooks on the connection. Dropping it lets everything through again, so a connection that
/// goes back to the pool with the hooks still set is like any other.
#[doc(hidden)]
#[derive(Debug)]
pub struct CommitGate(Arc<AtomicU8>);

impl CommitGate {
    async fn close(conn: &mut SqliteConnection) -> Result<Self, Error> {
        let gate = Self(Arc::new(AtomicU8::new(CLOSED)));
        let (commits, rollbacks) = (gate.0.clone(), gate.0.clone());
        let mut handle = conn.lock_handle().await?;
        // Refusing turns a COMMIT into a ROLLBACK, and so it would the implicit ones after it.
        handle.set_commit_hook(move || {
            let _ = commits.compare_exchange(ALLOWED, COMMITTED, SeqCst, SeqCst);
            let _ = commits.compare_exchange(CLOSED, ENDED, SeqCst, SeqCst);
            commits.load(SeqCst) != ENDED
        });
        handle.set_rollback_hook(move || {
            let _ = rollbacks.compare_exchange(CLOSED, ENDED, SeqCst, SeqCst);
        });
        Ok(gate)
    }
}

impl Drop for CommitGate {
    fn drop(&mut self) {
        self.0.store(RELEASED, SeqCst);
    }
}
