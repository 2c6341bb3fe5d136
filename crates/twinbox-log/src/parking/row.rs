//! Changes of rows, and looks at them.
use super::state::ParkedState;
use std::{collections::HashSet, fmt, sync::Arc, time::Duration};
use twinbox_core::{Draft, Message, lanes::Ticket};

/// A change of one row.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// The message that is settled once the change is committed.
    pub(super) ticket: Option<Ticket>,
    pub(super) action: Action,
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Delete the row: its message is settled.
    Delete(i64),
    /// Park a message, anew or again.
    Park(Box<ParkedRow>),
}

#[derive(Clone)]
pub(super) struct ParkedRow {
    /// The number of its row, if it was parked before.
    pub(super) number: Option<i64>,
    /// The whole message. Shared, because a failed write is repeated.
    pub(super) message: Arc<Message>,
    pub(super) state: ParkedState,
    pub(super) attempts: u32,
    pub(super) error: String,
    /// The event of a dead letter.
    pub(super) event: Option<Draft>,
}

impl fmt::Debug for ParkedRow {
    /// Without the message, which may be large and confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ParkedRow")
            .field(&self.message.sequence)
            .field(&self.number)
            .field(&self.state)
            .finish()
    }
}

/// How much may be taken up, and the rows that are taken up already.
#[derive(Debug, Clone)]
pub(super) struct Want {
    pub(super) taken: HashSet<i64>,
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// The result of a look at the rows.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Keys with rows that later messages wait behind.
    pub(super) keys: Vec<String>,
    pub(super) waiting: usize,
    pub(super) is_blocking: bool,
    /// Due rows with their attempts.
    pub(super) due: Vec<(i64, u32, Box<Message>)>,
    /// The time until more rows are due. None: none are, or not all due rows were taken up.
    pub(super) next: Option<Duration>,
}
