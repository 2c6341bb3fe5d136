//! The outbox read as a log, through snapshot windows.
//!
//! Values of an identity column do not follow commit order, so a reader that remembers the largest one
//! loses what commits late. The log is therefore cut by *ticks*, as in PgQ: a tick is a committed row that
//! holds a snapshot. Between two ticks P and W lies a *window*: what became visible between those
//! snapshots, read in the order of positions. A cursor is (P, W, position). On SQLite, which has one writer,
//! positions follow commit order and a tick is a position.
//!
//! [`Reader`] is the one engine: a relay puts a destination at its end, an embedded consumer
//! ([`LogTransport`]) a handler.
pub(crate) mod cursor;
pub(crate) mod dead_letter;
mod driver;
pub(crate) mod look;
mod page;
mod parked;
#[doc(hidden)]
pub mod plans;
mod reader;
mod replayed;
mod replays;
pub(crate) mod source;
pub(crate) mod task;
mod unblock;
mod write;

pub use crate::parking::{PARKED_MAX, Parked};
pub use dead_letter::DEAD_LETTER;
pub use parked::ParkedMessage;
pub use reader::Reader;
pub(crate) use reader::lease_lost;
pub use replays::REPLAY_LOOK_INTERVAL;
pub use source::LogTransport;
pub use twinbox_core::lanes::{Entry, Room, Ticket};

use replayed::Replayed;
use std::{sync::Arc, time::Duration};
use twinbox_core::Timestamp;

/// What became visible between two ticks, and between which positions its newcomers lie.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub(crate) p: i64,
    pub(crate) w: i64,
    /// No newcomer has this position or a lower one.
    pub(crate) floor: i64,
    /// No newcomer has a higher one.
    pub(crate) ceiling: i64,
    /// There are no newcomers, and nothing became visible that was begun before the first.
    pub(crate) is_late_free: bool,
    /// The snapshots of the two ticks.
    pub(crate) from: String,
    pub(crate) to: String,
}

impl Window {
    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_late_free && self.floor >= self.ceiling
    }
}

/// Everything up to tick `p`, and between `p` and `w` everything up to `position`, is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) p: i64,
    pub(crate) w: i64,
    pub(crate) position: i64,
}

/// Where a cursor that does not exist yet starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// At the oldest message that the log still has.
    Beginning,
    /// At the beginning if the log is empty, and refused otherwise: a start that cannot surprise.
    IfEmpty,
    /// After everything that is committed now.
    Now,
    /// At the first message that was committed after this time, or some before it: never later. SQLite keeps
    /// no times of commits and goes by the times of the messages.
    At(Timestamp),
}

/// How a cursor is read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ReaderOptions {
    pub(crate) start: Start,
    pub(crate) lease: Duration,
    pub(crate) partitions: Option<u32>,
    pub(crate) page: usize,
    pub(crate) parking: bool,
    pub(crate) dead_letter_events: bool,
    pub(crate) replay: Option<Arc<Replayed>>,
}

/// Messages that one page holds at most.
pub const PAGE_MAX: usize = 2000;
/// Bytes after which pages become smaller, headers included.
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Messages that are read and not yet handed out.
pub const BUFFERED_MAX: usize = 10_000;
/// Bytes that are read and not yet handed out, headers included, give or take a page.
pub const BUFFERED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Messages between the lowest unfinished one and the newest that was read.
pub const READ_AHEAD_MAX: usize = 50_000;
/// How often ticks that nobody will ask for are deleted.
pub const THIN_INTERVAL: Duration = Duration::from_secs(10);
/// How often the cursor is written at most: a row that changes often bloats under a long snapshot.
pub const CURSOR_INTERVAL: Duration = Duration::from_millis(100);
/// How often the log is looked at while messages flow.
pub const POLL_BUSY: Duration = Duration::from_millis(2);
/// How often the log is looked at when nothing came for a second.
pub const POLL_IDLE: Duration = Duration::from_millis(25);

impl ReaderOptions {
    /// From the beginning, with a lease of 4 s.
    pub fn new() -> Self {
        Self {
            start: Start::Beginning,
            lease: Duration::from_secs(4),
            partitions: None,
            page: PAGE_MAX,
            parking: false,
            dead_letter_events: false,
            replay: None,
        }
    }

    /// Where to start, if the cursor does not exist yet.
    pub fn start(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// For how long a process owns the cursor without being heard of. Another takes over after that.
    /// Renewed four times as often.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Over how many partitions the destination spreads its keys. Kept with the cursor.
    pub fn partitions(self, partitions: Option<u32>) -> Self {
        Self { partitions, ..self }
    }

    /// Whether messages can be parked with [`Reader::park`], and those that are come back when they are due.
    pub fn parking(self, parking: bool) -> Self {
        Self { parking, ..self }
    }

    /// Whether an event [`DEAD_LETTER`] is published for each message that is given up, in the transaction that
    /// puts it aside.
    pub fn dead_letter_events(self, dead_letter_events: bool) -> Self {
        Self { dead_letter_events, ..self }
    }

    /// How many messages one page holds, up to [`PAGE_MAX`].
    pub fn page(self, page: usize) -> Self {
        Self { page: page.clamp(1, PAGE_MAX), ..self }
    }
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self::new()
    }
}
