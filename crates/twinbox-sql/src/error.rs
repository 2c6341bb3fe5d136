use std::{borrow::Cow, error::Error as StdError, fmt};
use twinbox_core::{BoxError, InvalidDraft};

/// What went wrong with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The database refused or was not there; [`Error::is_transient`] tells which.
    Database,
    /// Another transaction of this process would not end.
    Busy,
    /// The draft breaks a bound. Nothing was written.
    InvalidDraft,
    /// The payload codec refused to encode. Nothing was written.
    Codec,
    /// A name, an option or the database's setup has to change.
    Configuration,
    /// The tables are missing, older than this program, or too new for it.
    Schema,
    /// The tables belong to another service.
    WrongService,
    /// The database was restored from a dump: the log's transaction ids mean nothing here. Repaired by
    /// [`Store::rebase`](crate::Store::rebase).
    Restored,
    /// The server is a standby, from which messages are never read.
    Standby,
    /// Another process owns the cursor now, or this one's lease ran out.
    LeaseLost,
    /// The destination was detached from the log: it was too far behind. Retire it, and start it again.
    Detached,
    /// Another process reads for the destination.
    LeaseHeld,
    /// There is nothing of that name or number.
    NotFound,
    /// What was asked for does not fit what is there by now.
    Conflict,
    /// The connection broke during COMMIT: it may or may not have happened. Read what the transaction
    /// wrote before doing it again.
    CommitUnknown,
    /// The handler ran COMMIT or ROLLBACK, or put another connection in the place of its own.
    TransactionEnded,
    /// A statement failed, its error was ignored, and the database will not commit.
    TransactionAborted,
    /// A savepoint was begun and never ended.
    SavepointAbandoned,
    /// The message is as old as claims that were deleted: nobody can tell whether it was handled.
    Forgotten,
}

/// An error of the store.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    what: Cow<'static, str>,
    source: Option<BoxError>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, what: what.into(), source: None }
    }

    pub(crate) fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same may work later without anybody's doing: the database is away, busy, or a standby
    /// that will be promoted.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Database => {
                self.is_contention() || self.sql().is_some_and(|e| is_outage(e) || is_passing(e))
            }
            ErrorKind::Busy | ErrorKind::Standby | ErrorKind::LeaseLost | ErrorKind::CommitUnknown => true,
            _ => false,
        }
    }

    /// Deadlock, serialization failure, lock time-out, busy: nobody's fault, and over in a moment.
    pub fn is_contention(&self) -> bool {
        self.kind == ErrorKind::Busy || self.sql().and_then(sqlstate).is_some_and(|s| is_contention(&s))
    }

    fn sql(&self) -> Option<&sqlx::Error> {
        self.source.as_deref()?.downcast_ref()
    }
}

/// The database is not there, or not there for writing.
pub(crate) fn is_outage(error: &sqlx::Error) -> bool {
    use sqlx::Error as E;
    matches!(
        error,
        E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::BeginFailed
    ) || is_hang_up(error)
        || sqlstate(error).is_some_and(|s| {
            // Connection lost, shutting down or starting, disk full, too many connections, standby, a session that
            // was ended because its process stood still.
            s.len() == 5
                && (s.starts_with("08")
                    || s.starts_with("57P")
                    || ["53100", "53300", "25006", "25P03"].contains(&s.as_ref()))
        })
}

/// Neither says that the database is away nor that the same will fail again: a statement that took too long or was
/// cancelled, memory that was short, a transaction that the database ended because it took too long.
fn is_passing(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|s| ["57014", "53200", "25P04"].contains(&s.as_ref()))
}

/// A proxy whose server is away takes a connection and closes it. sqlx 0.9 reads that end as an answer.
fn is_hang_up(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Protocol(text) if text.starts_with("unexpected response from SSLRequest: 0x00"))
}

/// Deadlock, serialization failure, lock time-out; SQLite: busy or locked.
pub(crate) fn is_contention(sqlstate: &str) -> bool {
    ["40001", "40P01", "55P03", "5", "6", "261", "262", "517"].contains(&sqlstate)
}

/// SQLSTATE, or SQLite's extended result code.
pub(crate) fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(Cow::into_owned)
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
        let what = match sqlstate(&e) {
            Some(code) => format!("the database refused with code {code}").into(),
            None if is_outage(&e) => "the database is not available".into(),
            None => "the database driver failed".into(),
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
