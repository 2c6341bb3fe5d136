//! The messages in lanes, and how many of them are handed out.
use crate::Message;
use std::ops::AddAssign;

/// A message that lanes keep in order.
pub trait Item {
    /// The key that orders it against others. None: nothing does.
    fn key(&self) -> Option<&str>;
    /// How much memory it takes, give or take its fixed part.
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

/// A message that is handed out. It is settled, retried, given back or parked, or comes again with the next reader.
#[derive(Debug)]
pub struct Entry<M = Box<Message>> {
    /// What it is settled by.
    pub ticket: Ticket,
    /// The message. Boxed, because it is handed on several times.
    pub message: M,
}

/// The place of a message that is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(super) place: Place,
    pub(super) lane: Option<u64>,
    /// How many bytes it counts for.
    pub(super) bytes: usize,
    /// Whether it may have been handed out before: by this reader, or by one before it.
    pub repeated: bool,
    /// How often it was handed out, counted from 1: by this reader, or at all if it was parked.
    pub attempt: u32,
}

/// Where a message comes from. Parked ones come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A row of what is parked: its number.
    Parked(i64),
    /// The log: the number of its mark.
    Log(u64),
}

impl Ticket {
    /// The number of the row, of a message that was parked.
    pub fn parked(&self) -> Option<i64> {
        match self.place {
            Place::Parked(row) => Some(row),
            Place::Log(_) => None,
        }
    }

    /// How many bytes it counts for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The room that it takes.
    pub fn room(&self) -> Room {
        Room { messages: 1, bytes: self.bytes }
    }
}

/// How much may be handed out. The last message may exceed the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Messages.
    pub messages: usize,
    /// Bytes of them.
    pub bytes: usize,
}

impl From<usize> for Room {
    fn from(messages: usize) -> Self {
        Self::messages(messages)
    }
}

impl AddAssign for Room {
    fn add_assign(&mut self, more: Self) {
        self.messages = self.messages.saturating_add(more.messages);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

impl Room {
    /// Nothing is handed out.
    pub const NONE: Self = Self { messages: 0, bytes: 0 };

    /// So many messages, of whatever size.
    pub const fn messages(messages: usize) -> Self {
        Self { messages, bytes: usize::MAX }
    }

    /// Whether nothing is handed out.
    pub fn is_none(&self) -> bool {
        self.messages == 0 || self.bytes == 0
    }
}
