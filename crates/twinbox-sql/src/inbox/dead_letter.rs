//! A dead letter of a consumer, as it is stored.
use crate::{
    Dialect, Error,
    row::{MessageColumns, TextColumns, small_count},
};
use sqlx::Row as _;
use twinbox_core::Message;

/// Why a message became a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadReason {
    /// The handler rejected the message.
    Rejected,
    /// The message has no attempt left.
    Exhausted,
    /// The message cannot be decoded.
    Undecodable,
    /// The consumer has no handler for the type of the message.
    NoHandler,
    /// Processes crashed while the handler ran.
    Crashed,
    /// The message is as old as claims that were purged, so that nobody knows whether it was handled. Or its
    /// handler has committed a part of its work by itself.
    InDoubt,
    /// An earlier message had the same id and another payload. It is stored under an id of its own.
    ConflictingPayload,
}

impl DeadReason {
    /// Returns the word for this reason, as the table has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Exhausted => "exhausted",
            Self::Undecodable => "undecodable",
            Self::NoHandler => "no_handler",
            Self::Crashed => "crashed",
            Self::InDoubt => "in_doubt",
            Self::ConflictingPayload => "conflicting_payload",
        }
    }

    /// The state of the claim.
    pub(super) const fn state(self) -> &'static str {
        if matches!(self, Self::Rejected) { "rejected" } else { "dead" }
    }
}

/// A dead letter of a consumer, with its whole message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoredDeadLetter {
    /// The number of the dead letter in this database.
    pub id: i64,
    /// The message.
    pub message: Message,
    /// The reason, see [`DeadReason::as_str`].
    pub reason: String,
    /// The last error.
    pub error: String,
    /// Attempts that failed.
    pub attempts: u32,
}

/// A redriven dead letter that is due for an attempt.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Redrive {
    /// The dead letter.
    pub dead_letter: StoredDeadLetter,
    /// How many more attempts the message has after this one.
    pub attempts_left: u32,
}

/// Reads the columns of `{dead_letter}`.
pub(super) fn read<DB: Dialect>(row: &DB::Row) -> Result<StoredDeadLetter, Error> {
    Ok(StoredDeadLetter {
        message: MessageColumns::of::<DB>(row)?.read::<DB>(row, "", row.try_get("sequence")?)?,
        reason: row.text("reason")?,
        error: row.text("error")?,
        attempts: small_count(row.try_get("attempts")?),
        id: row.try_get("id")?,
    })
}
