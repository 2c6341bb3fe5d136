//! The messages in lanes, and the room for messages that are handed out.
use crate::message::Message;
use std::ops::AddAssign;

/// A message that [`Lanes`](super::Lanes) keep in order.
pub trait Item {
    /// Returns the key, which orders this message against others. `None`: the message has no order.
    fn key(&self) -> Option<&str>;
    /// Returns the memory that the message takes in bytes, without a small constant part.
    fn bytes(&self) -> usize;
}

impl Item for Box<Message> {
    fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    fn bytes(&self) -> usize {
        Message::bytes(self)
    }
}

/// A message that [`Lanes`](super::Lanes) hand out to be sent or handled, with its ticket.
///
/// It must be settled, retried, given back or parked. Otherwise the next reader of the log gets it again.
#[derive(Debug, Clone)]
pub struct Entry<M = Box<Message>> {
    /// The handle by which the message is settled.
    pub ticket: Ticket,
    /// The message that is handed out. It is boxed because it is moved several times.
    pub message: M,
}

/// The handle of a message that is handed out, by which it is settled, retried or parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(super) origin: Origin,
    pub(super) lane: Option<u64>,
    pub(super) bytes: usize,
    /// Whether an attempt has failed. Then it goes when all earlier messages of its key have a result.
    pub(super) has_failed: bool,
    /// Whether the message may have been handed out before, by this reader or an earlier one.
    pub may_be_repeated: bool,
    /// Under which of its names the message goes, from 0. Others were given up: see
    /// [`Outgoing::name`](crate::destination::Outgoing::name).
    pub name: u32,
    /// Whether the destination has said of this name that it is in process.
    pub is_in_process: bool,
    /// The number of this attempt, from 1. This reader counts it; for a parked message, all readers count it.
    pub attempt: u32,
}

/// The place that a message comes from. Parked messages are earlier than those of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// The number of a row of parked messages.
    Parked(i64),
    /// The number of a mark of the log.
    Log(u64),
}

impl Ticket {
    pub(super) fn new(
        origin: Origin,
        lane: Option<u64>,
        bytes: usize,
        may_be_repeated: bool,
        attempt: u32,
    ) -> Self {
        Self {
            origin,
            lane,
            bytes,
            has_failed: false,
            may_be_repeated,
            name: 0,
            is_in_process: false,
            attempt,
        }
    }

    /// Gives a name up: the message goes under the next one.
    pub fn rename(&mut self) {
        (self.name, self.is_in_process) = (self.name.wrapping_add(1), false);
    }

    /// Notes that the destination has this name in process. It is given up when it is so once more.
    pub fn note_in_process(&mut self) {
        if self.is_in_process {
            self.rename();
        } else {
            self.is_in_process = true;
        }
    }

    /// Returns the number of the parked row, if the message was parked.
    pub fn parked(&self) -> Option<i64> {
        match self.origin {
            Origin::Parked(row) => Some(row),
            Origin::Log(_) => None,
        }
    }

    /// Returns how many bytes of memory the message takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the part of a [`Budget`] that the message takes.
    pub fn room(&self) -> Budget {
        Budget { messages: 1, bytes: self.bytes }
    }
}

/// How many messages, and how many bytes of them, may be handed out. The last message may exceed
/// the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// How many messages may be handed out.
    pub messages: usize,
    /// How many bytes all messages together may have.
    pub bytes: usize,
}

impl From<usize> for Budget {
    fn from(messages: usize) -> Self {
        Self::messages(messages)
    }
}

impl AddAssign for Budget {
    fn add_assign(&mut self, more: Self) {
        self.messages = self.messages.saturating_add(more.messages);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

impl Budget {
    /// A budget that has room for no message.
    pub const NONE: Self = Self { messages: 0, bytes: 0 };

    /// Creates a budget for a number of messages of any size.
    pub const fn messages(messages: usize) -> Self {
        Self { messages, bytes: usize::MAX }
    }

    /// Returns whether the budget has room for no message.
    pub fn is_none(&self) -> bool {
        self.messages == 0 || self.bytes == 0
    }
}
