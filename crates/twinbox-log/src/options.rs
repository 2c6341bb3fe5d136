//! How the log is read, and the bounds of reading.
use crate::replay_reading::ReplayReading;
use std::{sync::Arc, time::Duration};
use twinbox_core::{Timestamp, limits::bounded};
use twinbox_sql::replay::Replay;

/// The shortest lease. One slow answer of the database would cost a shorter one.
pub const LEASE_MIN: Duration = Duration::from_secs(1);

/// The most messages of a page, which is one statement's read of the log.
pub const PAGE_MAX: usize = 2000;
/// The bytes after which pages become smaller, headers included.
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The most messages that are read and not yet handed out.
pub const BUFFERED_MAX: usize = 10_000;
/// The most bytes that are read and not yet handed out, headers included, give or take a page.
pub const BUFFERED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most messages between the lowest unsettled one and the newest that was read.
pub const READ_AHEAD_MAX: usize = 50_000;
/// The interval at which ticks that are no longer needed are deleted.
pub const THIN_INTERVAL: Duration = Duration::from_secs(10);
/// How soon the row of a cursor names a tick that its reader uses, however long the lease is. A tick that no
/// row names may be deleted 10 s after the next was made.
pub(crate) const NAMING_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest interval between two writes of a cursor: a row that changes often bloats under a long
/// snapshot.
pub const CURSOR_INTERVAL: Duration = Duration::from_millis(100);
/// The interval at which the log is polled while messages flow.
pub const POLL_BUSY: Duration = Duration::from_millis(2);
/// The interval at which the log is polled when no message came for a second. [`ReaderOptions::idle_poll`]
/// sets another one.
pub const POLL_IDLE: Duration = Duration::from_millis(25);

/// Where a new cursor starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartPosition {
    /// At the oldest message of the log.
    Beginning,
    /// At the beginning, if the log is empty; a log with messages is refused, so the start cannot surprise.
    IfEmpty,
    /// After every message that is committed now.
    Now,
    /// At the first message that was committed after this time, or at an earlier one: never later. SQLite
    /// stores no commit times and goes by the times of the messages.
    At(Timestamp),
}

/// The options of a reader of the log: where it starts, its lease, and the size of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ReaderOptions {
    pub(crate) start: StartPosition,
    pub(crate) lease: Duration,
    pub(crate) partitions: Option<u32>,
    pub(crate) address: Option<String>,
    pub(crate) page: usize,
    pub(crate) idle_poll: Duration,
    pub(crate) parking: bool,
    pub(crate) dead_letter_events: bool,
    pub(crate) replay: Option<Arc<ReplayReading>>,
}

impl ReaderOptions {
    /// Returns the default options: from the beginning, with a lease of 4 s.
    pub fn new() -> Self {
        Self {
            start: StartPosition::Beginning,
            lease: Duration::from_secs(4),
            partitions: None,
            address: None,
            page: PAGE_MAX,
            idle_poll: POLL_IDLE,
            parking: false,
            dead_letter_events: false,
            replay: None,
        }
    }

    /// Sets where a new cursor starts.
    pub fn start(self, start: StartPosition) -> Self {
        Self { start, ..self }
    }

    /// Sets how long a process keeps its lease on the cursor without renewing it. Another process takes over
    /// after that. It is renewed four times as often. At least a second.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: bounded(lease.max(LEASE_MIN)), ..self }
    }

    /// Sets the number of partitions over which the destination spreads its keys. It is stored with the
    /// cursor.
    pub fn partitions(self, partitions: Option<u32>) -> Self {
        Self { partitions, ..self }
    }

    /// Sets where at its broker the destination has its messages, see
    /// [`Destination::address`](twinbox_core::Destination::address). The reader stores it with the cursor.
    pub fn address(self, address: Option<String>) -> Self {
        Self { address, ..self }
    }

    /// Lets the reader park messages, which come back when they are due.
    pub fn parking(self, parking: bool) -> Self {
        Self { parking, ..self }
    }

    /// Publishes an event `DEAD_LETTER` for each dead letter, in the transaction that parks it.
    pub fn dead_letter_events(self, dead_letter_events: bool) -> Self {
        Self { dead_letter_events, ..self }
    }

    /// Makes the reader execute a replay and end with it, see
    /// [`Reader::has_ended`](crate::Reader::has_ended). Each message is marked with the headers
    /// [`REPLAY`](twinbox_core::message::header::REPLAY) and, for one consumer,
    /// [`REPLAY_FOR`](twinbox_core::message::header::REPLAY_FOR).
    pub fn replay(self, replay: &Replay) -> Self {
        Self {
            replay: Some(Arc::new(ReplayReading::of(replay))),
            partitions: None,
            parking: true,
            dead_letter_events: false,
            ..self
        }
    }

    /// Sets the number of messages of a page, up to [`PAGE_MAX`].
    pub fn page(self, page: usize) -> Self {
        Self { page: page.clamp(1, PAGE_MAX), ..self }
    }

    /// Sets the interval at which the log is polled when no message came for a second: at least
    /// [`POLL_BUSY`]. A message that another process publishes then waits up to twice as long. One that this
    /// process publishes through the same store does not wait.
    pub fn idle_poll(self, idle_poll: Duration) -> Self {
        Self { idle_poll: bounded(idle_poll.max(POLL_BUSY)), ..self }
    }
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self::new()
    }
}
