//! The errors of the store.
use crate::sqlstate::{sqlstate, views_of_lock};
use std::{borrow::Cow, error::Error as StdError, fmt};
use twinbox_core::{BoxError, InvalidDraft, SourceError, SourceErrorKind};

/// The code of SQLite for a file that is missing, or that this account may not open.
const SQLITE_CANTOPEN: &str = "14";

/// The kind of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The database refused, or could not be reached; [`Error::is_transient`] tells which.
    Database,
    /// Another transaction of this process did not end in time.
    Busy,
    /// The draft breaks a bound. Nothing was written.
    InvalidDraft,
    /// The payload codec refused to encode, and nothing was written; or what is stored cannot be decoded, or
    /// is not encoded although the store requires it.
    Codec,
    /// A name, an option or the setup of the database has to change.
    Configuration,
    /// The tables are missing, older than this program, or too new for it.
    Schema,
    /// The tables belong to another service.
    WrongService,
    /// The database was restored from a dump: the log's transaction ids mean nothing here. `twinbox
    /// destinations rebase` repairs it.
    Restored,
    /// The server is a standby, from which messages are never read.
    Standby,
    /// Another process owns the lease now, or this one's lease ran out.
    LeaseLost,
    /// The destination was detached from the log because it was too far behind. Retire it, and start it
    /// again.
    Detached,
    /// Another process holds the lease of the destination.
    LeaseHeld,
    /// Nothing has that name or number.
    NotFound,
    /// The request contradicts the present state, such as resuming what is not paused.
    Conflict,
    /// The connection broke during COMMIT, so that nobody knows whether the transaction was committed. Read
    /// the rows of the transaction before doing it again.
    CommitUnknown,
    /// The handler ran COMMIT or ROLLBACK, or swapped its connection for another. On MySQL also: the server
    /// ended the transaction, on a deadlock or before a statement such as CREATE TABLE.
    TransactionEnded,
    /// A statement failed, its error was ignored, and the database will not commit.
    TransactionAborted,
    /// An earlier run of the handler committed a part of its writes by itself, and did not come to its end.
    /// On MySQL alone: the other databases refuse such a commit.
    PartlyCommitted,
    /// A savepoint was begun and never ended.
    SavepointAbandoned,
    /// The message is as old as claims that were purged, so that nobody knows whether it was handled.
    Forgotten,
}

/// The error of every call on a [`Store`](crate::Store) and its handles.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    what: Cow<'static, str>,
    source: Option<BoxError>,
}

impl Error {
    /// An error of Twinbox's own crates.
    #[doc(hidden)]
    pub fn new(kind: ErrorKind, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    /// The error of the last statement before a COMMIT: of an earlier one, if that failed and was ignored.
    pub(crate) fn of_last_statement(error: sqlx::Error) -> Self {
        #[cfg(feature = "mysql")]
        if crate::sqlstate::is_unknown_savepoint(&error) {
            return Self::new(
                ErrorKind::TransactionEnded,
                "the transaction ended before its commit: by COMMIT, ROLLBACK or a statement such as CREATE \
                 TABLE, or by the server, on a deadlock",
            );
        }
        match sqlstate(&error).as_deref() {
            Some("25P02") => Self::transaction_aborted(),
            Some("22P02") if error.to_string().contains("twinbox: the handler ended") => {
                Self::transaction_ended()
            }
            _ => error.into(),
        }
    }

    /// The error of a COMMIT, and of what allows it. An answer of the database is a refusal. Silence is not,
    /// nor is a pooler's word that the server is gone.
    pub(crate) fn of_commit(error: sqlx::Error) -> Self {
        let is_gone = |code: String| code.starts_with("08") || code.starts_with("57P") || code == "40003";
        match error {
            sqlx::Error::Database(_) if !sqlstate(&error).is_some_and(is_gone) => {
                Self::of_last_statement(error)
            }
            _ => Self::new(ErrorKind::CommitUnknown, "no answer to COMMIT: it may or may not have happened")
                .with_source(error),
        }
    }

    /// The error of a claim. A session whose statements may take less time than a claim waits for another
    /// copy ends the claim, as it would end the wait for a lock.
    pub(crate) fn of_claim(self) -> Self {
        match self.sql().and_then(sqlstate).as_deref() {
            Some("57014") => {
                Self::new(ErrorKind::Busy, "a claim took longer than a statement may take").with_source(self)
            }
            _ => self,
        }
    }

    /// Adds the error that caused this one.
    #[doc(hidden)]
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    pub(crate) fn transaction_aborted() -> Self {
        Self::new(
            ErrorKind::TransactionAborted,
            "a statement failed and its error was ignored, so nothing can be committed",
        )
    }

    /// MySQL alone lets a handler commit what it has written so far.
    pub(crate) fn partly_committed() -> Self {
        Self::new(
            ErrorKind::PartlyCommitted,
            "an earlier run committed by itself, by COMMIT or a statement such as CREATE TABLE, and did not \
             come to its end: a part of its writes is there, and it does not run again by itself",
        )
    }

    pub(crate) fn transaction_ended() -> Self {
        Self::new(
            ErrorKind::TransactionEnded,
            "the handler ran COMMIT or ROLLBACK, or put another connection in the place of its own",
        )
    }

    pub(crate) fn savepoint_abandoned() -> Self {
        Self::new(
            ErrorKind::SavepointAbandoned,
            "a savepoint was begun and never ended: its future was dropped, or it was leaked",
        )
    }

    /// The server may have forgotten commits, as a promoted standby can: the next message under the same id
    /// is another one. Reading everything again is right, whatever the rows say.
    #[doc(hidden)]
    pub fn other_server_run() -> Self {
        Self::new(
            ErrorKind::LeaseLost,
            "the server started anew, is another one, or has lost a tick: what was read is read again",
        )
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the same call may succeed later by itself: the database is away, busy, refuses the
    /// login, or is a standby that will be promoted.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Database => {
                self.is_contention() || self.sql().is_some_and(|e| is_outage(e) || is_passing(e))
            }
            ErrorKind::Busy | ErrorKind::Standby | ErrorKind::LeaseLost | ErrorKind::CommitUnknown => true,
            _ => false,
        }
    }

    /// Returns whether the cause is contention: a deadlock, a serialization failure, a lock time-out, or a
    /// busy database. It passes by itself.
    pub fn is_contention(&self) -> bool {
        self.kind == ErrorKind::Busy || self.sql().is_some_and(is_contention_error)
    }

    /// Returns whether a statement waited in vain for a lock that another session holds: for as long as the
    /// session may wait, or not at all. It may be held for long.
    pub fn is_lock_timeout(&self) -> bool {
        self.sql().and_then(views_of_lock).is_some()
    }

    /// Returns whether the database was not reached, refused the login, or ended the connection.
    pub(crate) fn is_outage(&self) -> bool {
        self.sql().is_some_and(is_outage)
    }

    /// Returns whether the connected role lacks a right.
    pub fn is_forbidden(&self) -> bool {
        self.sql().and_then(sqlstate).is_some_and(|code| code == "42501")
    }

    fn sql(&self) -> Option<&sqlx::Error> {
        self.source.as_deref()?.downcast_ref()
    }
}

/// Whether the database cannot be reached, or not for writing, or refuses the login.
pub(crate) fn is_outage(error: &sqlx::Error) -> bool {
    use sqlx::Error as E;
    matches!(
        error,
        E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::BeginFailed
    ) || is_hang_up(error)
        || sqlstate(error).is_some_and(|s| {
            // Connection lost, login refused (a password is being changed), shutting down or starting, disk
            // full, too many connections, standby, a session that was ended because it was idle.
            s.len() == 5
                && (s.starts_with("08")
                    || s.starts_with("28")
                    || s.starts_with("57P")
                    || ["53100", "53300", "25006", "25P03"].contains(&s.as_ref()))
        })
}

/// Whether the same may succeed although the database is there: a statement was cancelled or took too long,
/// memory was short, or the database ended a transaction that took too long.
fn is_passing(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|s| ["57014", "53200", "25P04"].contains(&s.as_ref()))
}

/// Whether a proxy without a server accepted the connection and closed it. sqlx 0.9 reads that end as an
/// answer.
fn is_hang_up(error: &sqlx::Error) -> bool {
    const HANG_UP: &str = "unexpected response from SSLRequest: 0x00";
    matches!(error, sqlx::Error::Protocol(text) if text.starts_with(HANG_UP))
}

/// Whether the code means a deadlock, a serialization failure or a lock time-out; on SQLite busy or locked.
pub(crate) fn is_contention(sqlstate: &str) -> bool {
    ["40001", "40P01", "55P03", "5", "6", "261", "262", "517"].contains(&sqlstate)
}

/// Whether a row with the same key exists.
pub(crate) fn is_duplicate(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// Whether another transaction is in the way.
pub(crate) fn is_contention_error(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|code| is_contention(&code))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

impl From<sqlx::Error> for Error {
    fn from(e: sqlx::Error) -> Self {
        let what = match (sqlstate(&e), views_of_lock(&e)) {
            (Some(code), Some(views)) => {
                format!("a lock was not free in time (code {code}): {views} show who holds it").into()
            }
            (Some(code), None) if code == SQLITE_CANTOPEN => {
                "the file of the database cannot be opened (code 14): it is missing, or not for this account"
                    .into()
            }
            (Some(code), None) => format!("the database refused with code {code}").into(),
            (None, _) if is_outage(&e) => "the database is not available".into(),
            (None, _) => "the database driver failed".into(),
        };
        Self { kind: ErrorKind::Database, what, source: Some(e.into()) }
    }
}

impl From<InvalidDraft> for Error {
    fn from(e: InvalidDraft) -> Self {
        let what = format!("the message cannot be published: {e}");
        Self { kind: ErrorKind::InvalidDraft, what: what.into(), source: Some(e.into()) }
    }
}

impl From<Error> for SourceError {
    fn from(error: Error) -> Self {
        let kind =
            if error.is_transient() { SourceErrorKind::Unavailable } else { SourceErrorKind::Misconfigured };
        Self::new(kind, "reading the store failed").with_source(error)
    }
}
