//! An action on all dead letters that match a filter, as its row has it.
use super::{action::DeadLetterAction, filter::DeadLetterFilter, pages::Place};
use crate::{
    Dialect, Error, ErrorKind,
    micros::Micros,
    row::{TextColumns, count},
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::Timestamp;

/// An action on all dead letters that match a filter. A relay or a consumer carries it out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkAction {
    /// The number of the action.
    pub id: i64,
    /// The act.
    pub action: DeadLetterAction,
    /// The dead letters. The filter names one consumer or one destination. That of a failed action is empty
    /// if it cannot be read.
    pub filter: DeadLetterFilter,
    /// The time between two redriven dead letters.
    pub spacing: Duration,
    /// How many dead letters matched when it was planned, counted up to a limit.
    pub planned: u64,
    /// How far it is.
    pub state: BulkActionState,
    /// How many dead letters were looked at.
    pub looked_at: u64,
    /// How many dead letters were changed.
    pub changed: u64,
    /// The number of its entry in the audit.
    pub audit_id: i64,
    /// The operator who made it.
    pub made_by: String,
    /// Why the operator made it.
    pub reason: Option<String>,
    /// Why it has failed.
    pub error: Option<String>,
    /// When it was made. Later dead letters are left alone.
    pub made_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The last dead letter that was looked at.
    #[doc(hidden)]
    pub after: Place,
}

/// How far a [`BulkAction`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BulkActionState {
    /// No process works on it yet, or the one that did has died.
    Waiting,
    /// A process works on it.
    Running,
    /// All dead letters were looked at.
    Done,
    /// An operator cancelled it. What it had changed stays changed.
    Cancelled,
    /// No process could carry it out, because it cannot be read; for a day, if a newer version may have made
    /// it. What it had changed stays changed.
    Failed,
}

impl BulkActionState {
    /// Returns the word for this state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// Returns whether nothing more will change.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled | Self::Failed)
    }
}

impl BulkAction {
    /// Reads a row.
    #[doc(hidden)]
    pub fn read<DB: Dialect>(row: &DB::Row) -> Result<Self, Error> {
        let newer = || Error::new(ErrorKind::Schema, "a newer version of Twinbox made this bulk action");
        let lease_left: i64 = row.try_get("lease_left")?;
        let state = match &*row.text("state")? {
            "running" if lease_left > 0 => BulkActionState::Running,
            "running" => BulkActionState::Waiting,
            "done" => BulkActionState::Done,
            "failed" => BulkActionState::Failed,
            _ => BulkActionState::Cancelled,
        };
        let filter = match DeadLetterFilter::from_json(&row.text("filter")?) {
            Err(_) if state == BulkActionState::Failed => DeadLetterFilter::default(),
            filter => filter?,
        };
        Ok(Self {
            id: row.try_get("id")?,
            action: DeadLetterAction::parse(&row.text("action")?).ok_or_else(newer)?,
            filter,
            spacing: Duration::from_micros(count(row.try_get("spacing")?)),
            planned: count(row.try_get("planned")?),
            state,
            looked_at: count(row.try_get("looked_at")?),
            changed: count(row.try_get("changed")?),
            audit_id: row.try_get("audit_id")?,
            made_by: row.text("made_by")?,
            reason: row.text_or_null("reason")?,
            error: row.text_or_null("error")?,
            made_at: row.try_get::<Micros, _>("made_at")?.0,
            ended_at: row.try_get::<Option<Micros>, _>("ended_at")?.map(|at| at.0),
            after: Place {
                time: row.try_get::<Micros, _>("after_time")?.0,
                number: row.try_get("after_number")?,
            },
        })
    }
}
