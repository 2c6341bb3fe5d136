//! A cursor that this process owns.
use twinbox_sql::engine::Cursor;
use uuid::Uuid;

/// A cursor that this process took.
#[derive(Debug)]
pub(crate) struct OwnedCursor {
    /// The cursor in the database.
    pub(crate) recorded: Cursor,
    /// Where to read from. If a tick of the recorded cursor was deleted, because a process stood still for
    /// longer than the others keep it, that is the end of the last window that is known: messages come again,
    /// and none is skipped.
    pub(crate) start: Cursor,
    pub(crate) ownership: Ownership,
    /// Why an operator paused the destination.
    pub(crate) pause_reason: Option<String>,
}

/// The proof of owning a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// Grows with each takeover.
    pub(crate) epoch: i64,
    /// Epochs begin anew when a destination is retired and made again, so the owner counts too.
    pub(crate) owner: Uuid,
    /// The server run in which the cursor was taken. Commits of another run may be forgotten.
    pub(crate) server_run: i64,
}

/// The result of writing a cursor.
#[derive(Debug)]
pub(crate) enum CursorWrite {
    /// It is written. The reason, if an operator paused the destination, and how many destinations a process
    /// owns that wishes for this one.
    Written { pause_reason: Option<String>, wisher_owned: Option<i64> },
    /// Another process owns the cursor.
    Lost,
}
