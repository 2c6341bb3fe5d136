//! SQLite: one writer, a database is a file.
mod commit_gate;
mod texts;

pub use commit_gate::CommitGate;

use super::{
    Capabilities, Claim, ClaimTerms, Claims, Dialect, Fragments, Migration, OperationClaim, OperationClaimed,
    OperationRow,
    migrations::migrations,
    portable,
    transaction::{exactly_one, unwind},
};
use crate::{
    Error, ErrorKind,
    catalog::Catalog,
    micros::Micros,
    row,
    statement::{query, query_of, raw},
    texts::Texts,
};
use sqlx::{
    AssertSqlSafe, Row as _, Sqlite, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use twinbox_core::{
    Message,
    draft::Fields,
    endpoint::{PlainRefused, Protection},
};
use uuid::Uuid;

/// Opens a SQLite file with durable settings, and creates it if it is missing: WAL, `synchronous = FULL` (a
/// committed message survives a power cut), a busy time-out of 10 s against other processes, and at most 16
/// rows of a result in memory that nobody has taken yet, because a message may have a megabyte.
///
/// On a connection of any pool that a store works with, Twinbox sets the commit hook and the rollback hook:
/// those that the application has set there are replaced.
///
/// # Errors
/// The file cannot be opened or made.
pub async fn open(path: impl AsRef<Path>) -> Result<SqlitePool, Error> {
    open_or_make(SqliteConnectOptions::new().filename(path)).await
}

/// Opens a file as [`open`] does, with the other settings of these options, such as those of a URL.
///
/// # Errors
/// As [`open`].
pub async fn open_or_make(options: SqliteConnectOptions) -> Result<SqlitePool, Error> {
    let options = options.create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    Ok(pool_options().connect_with(of_connection(options)).await?)
}

/// Opens a file that is there. Its journal mode stays, and `?mode=ro` of a URL counts.
///
/// # Errors
/// The file is missing or cannot be opened.
pub async fn open_existing(options: SqliteConnectOptions) -> Result<SqlitePool, Error> {
    Ok(pool_options().connect_with(of_connection(options.create_if_missing(false))).await?)
}

fn pool_options() -> SqlitePoolOptions {
    SqlitePoolOptions::new().max_connections(8)
}

/// Adds the settings that a connection has and its file does not.
fn of_connection(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(10))
        .row_buffer_size(16)
        .foreign_keys(true)
}

impl Dialect for Sqlite {
    const CAPABILITIES: Capabilities = Capabilities {
        deferred_constraints: true,
        errors_abort: false,
        refuses_commit: true,
        early_mismatch: false,
    };
    const SQL: Texts = Texts {
        audit: portable::AUDIT,
        backlog: portable::BACKLOG,
        bulk_actions: portable::BULK_ACTIONS,
        client_keys: portable::CLIENT_KEYS,
        consumers: portable::CONSUMERS,
        cursors: texts::CURSORS,
        dead_letters: portable::DEAD_LETTERS,
        delayed: portable::DELAYED,
        deliveries: portable::DELIVERIES,
        delivery_queue: portable::DELIVERY_QUEUE,
        destination_queue: portable::DESTINATION_QUEUE,
        drift: portable::DRIFT,
        effect_acts: portable::EFFECT_ACTS,
        effects: portable::EFFECTS,
        holes: portable::HOLES,
        inbox: texts::INBOX,
        jobs: portable::JOBS,
        log: texts::LOG,
        operations: portable::OPERATIONS,
        outbox: portable::OUTBOX,
        parked_messages: portable::PARKED_MESSAGES,
        partitions: portable::PARTITIONS,
        redaction: portable::REDACTION,
        replays: portable::REPLAYS,
        retention: texts::RETENTION,
        setup: texts::SETUP,
        webhooks: portable::WEBHOOKS,
    };
    const FRAGMENTS: Fragments = texts::FRAGMENTS;
    const NUMBERED_BINDS: bool = false;
    const ONE_WRITER: bool = true;

    const MIGRATIONS: &'static [Migration] = migrations!("sqlite");
    const BOOTSTRAP: &'static str = "
        CREATE TABLE IF NOT EXISTS {migrations} (
            version INTEGER PRIMARY KEY,
            name TEXT NOT NULL,
            compatible_from INTEGER NOT NULL,
            applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
        ) STRICT;";
    // BEGIN IMMEDIATE is one.
    const MIGRATION_LOCK: Option<&'static str> = None;

    // Not DEFERRED: a transaction that reads and then writes is refused as busy at once, whatever the
    // time-out.
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const BEGIN_SHORT: &'static str = Self::BEGIN;
    const BEGIN_LONG: Option<&'static str> = None;
    const CHECK_DEFERRED: Option<&'static str> = None;

    fn table(namespace: &str, name: &str) -> String {
        format!("{namespace}_{name}")
    }

    fn file_of(pool: &SqlitePool) -> Option<PathBuf> {
        let options = pool.connect_options();
        let file = options.get_filename();
        if file == Path::new(":memory:") {
            return None;
        }
        // A file that does not exist yet is in a folder that does.
        let in_folder = || Some(file.parent()?.canonicalize().ok()?.join(file.file_name()?));
        Some(file.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| file.to_owned()))
    }

    fn protection(_: &SqliteConnectOptions, _: bool) -> Result<Protection, PlainRefused> {
        Ok(Protection::Local)
    }

    async fn check_server(_: &mut SqliteConnection) -> Result<(), Error> {
        Ok(())
    }

    async fn check(conn: &mut SqliteConnection, _: &str) -> Result<(), Error> {
        let mode: String = query_of::<Sqlite>("PRAGMA journal_mode", true).scalar().fetch_one(conn).await?;
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
        catalog: &Catalog,
        messages: Vec<Fields>,
    ) -> Result<(), Error> {
        let sql = portable::publish_all::<Sqlite>(catalog, messages.len());
        let query = query_of::<Sqlite>(AssertSqlSafe(sql), false).for_caller();
        messages.into_iter().fold(query, row::bind_fields::<Sqlite>).execute(conn).await?;
        Ok(())
    }

    async fn lock_key(_: &mut SqliteConnection, _: &Catalog, _: &str) -> Result<(), Error> {
        Ok(())
    }

    async fn park_deliveries(
        conn: &mut SqliteConnection,
        catalog: &Catalog,
        consumer: &str,
        partition: u32,
        deliveries: &[(&Message, Duration)],
    ) -> Result<(), Error> {
        portable::park_one_by_one::<Sqlite>(conn, catalog, consumer, partition, deliveries).await
    }

    /// SQLite ends a transaction by itself on `RAISE(ROLLBACK)`, or a full disk. Then it has none, and a
    /// BEGIN, which the rollback that follows ends, is no error.
    async fn ensure_whole(conn: &mut SqliteConnection) -> Result<(), Error> {
        match raw::<Sqlite>("BEGIN").execute(conn).await {
            Ok(_) => Err(Error::new(
                ErrorKind::TransactionAborted,
                "SQLite rolled the transaction back by itself, on RAISE(ROLLBACK) or a full disk, and that \
                 error was ignored: what came before it is undone, and each statement after it was written \
                 alone",
            )),
            Err(sqlx::Error::Database(error)) if error.message().contains("within a transaction") => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    type Guard = CommitGate;

    async fn claim(
        conn: &mut SqliteConnection,
        catalog: &Catalog,
        consumer: &str,
        terms: ClaimTerms,
        claims: &[Claim<'_>],
        guard: &mut Option<CommitGate>,
    ) -> Result<Claims<Uuid>, Error> {
        if let Some(fence) = terms.fence {
            fence.check::<Sqlite>(conn, catalog, consumer).await?;
        }
        let inbox = &catalog.sql.inbox;
        // A kept connection has its hooks, and no transaction yet.
        let mut claim_next = match guard {
            Some(gate) => {
                gate.close_again();
                &inbox.begin_and_claim
            }
            None => {
                *guard = Some(CommitGate::close(conn).await?);
                &inbox.claim
            }
        };
        let mut found = Claims { new: Vec::with_capacity(claims.len()), purge_mark: None };
        for claim in claims {
            let claimed = query::<Sqlite>(std::mem::replace(&mut claim_next, &inbox.claim))
                .bind(consumer)
                .bind(claim.message_id)
                .bind(&*claim.source)
                .bind(&*claim.event_id)
                .bind(&*claim.payload_hash)
                .bind(claim.time)
                .fetch_optional(&mut *conn)
                .await?;
            if let Some(row) = claimed {
                found.new.push(claim.message_id);
                found.purge_mark = row.try_get::<Option<Micros>, _>("purge_mark")?.map(|mark| mark.0);
            }
        }
        Ok(found)
    }

    async fn claim_operation(
        conn: &mut SqliteConnection,
        catalog: &Catalog,
        claim: &OperationClaim<'_>,
    ) -> Result<OperationClaimed<CommitGate>, Error> {
        let query = claim.bind(query::<Sqlite>(&catalog.sql.operations.claim));
        let Some(row) = query.fetch_optional(&mut *conn).await? else { return Ok(OperationClaimed::Taken) };
        let row = OperationRow::read::<Sqlite>(&row)?;
        Ok(OperationClaimed::Open(row, CommitGate::close(conn).await?))
    }

    async fn guard(conn: &mut SqliteConnection, _: &Catalog, _: Duration) -> Result<CommitGate, Error> {
        CommitGate::close(conn).await
    }

    async fn response_guard(
        conn: &mut SqliteConnection,
        _: &Catalog,
        gate: &CommitGate,
    ) -> Result<String, Error> {
        exactly_one::<Sqlite>(conn)?;
        gate.allow()?;
        Ok(String::new())
    }

    async fn allow_commit(
        conn: &mut SqliteConnection,
        catalog: &Catalog,
        gate: &CommitGate,
    ) -> Result<(), Error> {
        Self::response_guard(conn, catalog, gate).await.map(drop)
    }

    /// sqlx's rollback fails when SQLite has none to roll back, and then counts a transaction for ever: every
    /// later `begin_with` on the connection would fail.
    async fn prepare_rollback(conn: &mut SqliteConnection, gate: Option<&CommitGate>) {
        if gate.is_some_and(CommitGate::has_ended) {
            // Fails, and rightly, if the handler has begun another.
            let _ = raw::<Sqlite>("BEGIN").execute(&mut *conn).await;
        }
        unwind::<Sqlite>(conn).await;
    }

    fn has_committed(gate: &CommitGate) -> bool {
        gate.has_committed()
    }

    fn rows_affected(result: &Self::QueryResult) -> u64 {
        result.rows_affected()
    }
}
