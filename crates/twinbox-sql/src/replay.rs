//! A replay: past messages again.
//!
//! The log keeps published messages, so sending them again is reading them again. A replay is a row, and a
//! cursor `replay:ID` of its own, which a reader moves from the first selected message to the place up to
//! which the destination had settled the log when the replay was made. Later messages come by themselves.
//! Lease, epoch, order of keys and parking are those of any reader, so a replay goes on where it was after a
//! crash, can be paused, and no message that it needs is purged.
//!
//! Resend: the messages go to the destination again, and each consumer's inbox removes the ones it knows.
//! Reprocess: they are marked for one consumer, which takes its claims back and runs them again; other
//! consumers acknowledge them.
use crate::{
    Dialect, Error, ReaderName, Selection,
    cursor::Cursor,
    micros::Micros,
    row::{TextColumns, count},
};
use sqlx::Row as _;
use twinbox_core::Timestamp;
use uuid::Uuid;

/// A replay, as the database has it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Replay {
    /// The number of the replay in this database.
    pub id: i64,
    /// The name of the replay for brokers and inboxes.
    pub token: Uuid,
    /// The destination.
    pub destination: String,
    /// The one consumer that reprocesses. None: a resend.
    pub consumer: Option<String>,
    /// The selected messages.
    pub selection: Selection,
    /// How many messages were selected when the replay was made.
    pub selected: u64,
    /// The most messages a second.
    pub rate: Option<u32>,
    /// The state of the replay.
    pub state: ReplayState,
    /// The operator who made it.
    pub made_by: String,
    /// Why the replay was made.
    pub reason: Option<String>,
    /// When the replay was made.
    pub made_at: Timestamp,
    /// When the replay ended.
    pub ended_at: Option<Timestamp>,
    /// About how many of the selected messages are settled, estimated by their positions.
    pub done: u64,
    /// Messages that the destination refused for good. They stay parked for the replay.
    pub refused: u64,
    /// Whether a process works on the replay.
    pub is_alive: bool,
    /// How far the destination had settled the log when the replay was made.
    #[doc(hidden)]
    pub bound: Cursor,
    /// The position of the first selected message.
    #[doc(hidden)]
    pub first: i64,
    /// The position of the last selected message.
    #[doc(hidden)]
    pub last: i64,
}

/// The state of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayState {
    /// The owner of the destination executes the replay, or soon will.
    Running,
    /// An operator paused the replay.
    Paused {
        /// The reason.
        reason: String,
    },
    /// Each message was sent, or refused for good.
    Done,
    /// An operator ended the replay early.
    Cancelled,
}

impl ReplayState {
    /// Returns the word for this state.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused { .. } => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether the replay is done or cancelled.
    pub const fn has_ended(&self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

impl Replay {
    /// Returns the name of the replay's cursor.
    pub fn cursor(&self) -> String {
        ReaderName::Replay(self.id).to_string()
    }

    /// Reads the row of a replay with its cursor.
    ///
    /// # Errors
    /// A newer version of Twinbox wrote its selection.
    #[doc(hidden)]
    pub fn read<DB: Dialect>(row: &DB::Row) -> Result<Self, Error> {
        let number = |name| Ok::<_, Error>(row.try_get::<i64, _>(name)?);
        let selection: String = row.text("selection")?;
        let (first, last, selected) =
            (number("first_position")?, number("last_position")?, count(number("selected")?));
        let bound = Cursor { p: number("p")?, w: number("w")?, position: number("position")? };
        let (p, w): (Option<i64>, Option<i64>) = (row.try_get("cursor_p")?, row.try_get("cursor_w")?);
        let position: Option<i64> = row.try_get("cursor_position")?;
        let (pause_reason, state): (Option<String>, String) =
            (row.text_or_null("pause_reason")?, row.text("state")?);
        let state = match (&*state, pause_reason) {
            ("done", _) => ReplayState::Done,
            ("cancelled", _) => ReplayState::Cancelled,
            (_, Some(reason)) => ReplayState::Paused { reason },
            _ => ReplayState::Running,
        };
        let done = match (&state, p, position) {
            (ReplayState::Done, ..) => selected,
            // Between windows there is no position.
            (_, Some(at), _) if at > bound.p || at == bound.p && w == p => selected,
            (_, Some(_), Some(position)) => share(selected, first, last, position),
            _ => 0,
        };
        let rate: Option<i64> = row.try_get("rate")?;
        Ok(Self {
            id: number("id")?,
            token: row.try_get("token")?,
            destination: row.text("destination")?,
            consumer: row.text_or_null("consumer")?,
            selection: Selection::from_json(&selection)?,
            selected,
            rate: rate.and_then(|rate| u32::try_from(rate).ok()),
            state,
            made_by: row.text("made_by")?,
            reason: row.text_or_null("reason")?,
            made_at: row.try_get::<Micros, _>("made_at")?.0,
            ended_at: row.try_get::<Option<Micros>, _>("ended_at")?.map(|at| at.0),
            done,
            refused: count(number("refused")?),
            is_alive: row.try_get("is_alive")?,
            bound,
            first,
            last,
        })
    }
}

/// Of `selected` messages from `first` to `last`, how many lie up to `position` if they are spread evenly.
fn share(selected: u64, first: i64, last: i64, position: i64) -> u64 {
    if position < first {
        return 0;
    }
    let (part, whole) = (i128::from(position.min(last) - first) + 1, i128::from(last - first) + 1);
    u64::try_from(i128::from(selected) * part / whole.max(1)).unwrap_or(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settled_share_grows_from_none_to_all() {
        let shares: Vec<_> = [0, 9, 10, 19, 29, 99].map(|at| share(40, 10, 29, at)).into();
        assert_eq!(shares, [0, 0, 2, 20, 40, 40]);
        assert_eq!(share(1, 5, 5, 5), 1);
        assert_eq!(share(u64::MAX >> 1, 0, i64::MAX - 1, i64::MAX), u64::MAX >> 1);
    }
}
