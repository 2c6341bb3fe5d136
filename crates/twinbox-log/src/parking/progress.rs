//! How far a queue is.
use super::{
    bounds::{PARKED_BYTES_MAX, PARKED_MAX},
    queue::Queue,
    state::Parkable,
};
use std::time::Instant;
use twinbox_core::test_signal;
use twinbox_sql::Dialect;

impl<DB: Dialect, M: Parkable, C: Clone> Queue<DB, M, C> {
    /// Returns since when an answer of the database is missing.
    pub fn asked_at(&self) -> Option<Instant> {
        self.book.parking.as_ref()?.working_since
    }

    /// Returns whether more messages may be read: not before the parked rows are known, nor while too many
    /// are parked.
    pub fn has_room(&self) -> bool {
        self.book.parking.as_ref().is_none_or(|parking| {
            let waiting = parking.waiting.map(|waiting| waiting + parking.changes.len());
            if waiting.is_some_and(|waiting| waiting >= PARKED_MAX) {
                test_signal::pass("parking.is_full");
            }
            waiting.is_some_and(|waiting| waiting < PARKED_MAX) && parking.bytes < PARKED_BYTES_MAX
        })
    }

    /// Returns whether no change is left to write, and no row waits for another attempt.
    pub fn is_idle(&self) -> bool {
        self.book.lanes.open() == 0
            && self.book.parking.as_ref().is_none_or(|parking| {
                parking.waiting == Some(0) && parking.changes.is_empty() && parking.taken.is_empty()
            })
    }

    /// Returns the cursor: everything up to it is settled.
    pub fn settled(&self) -> &C {
        self.book.lanes.settled()
    }

    /// Returns the number of messages of the log from the first unsettled one on.
    pub fn open(&self) -> usize {
        self.book.lanes.open()
    }

    /// Returns the bytes of unsettled messages of the log, handed out or not.
    pub fn open_bytes(&self) -> usize {
        self.book.lanes.open_bytes()
    }

    /// Returns the number of messages of the log that were settled so far.
    pub fn settle_count(&self) -> u64 {
        self.book.lanes.settle_count()
    }

    /// Returns the number of messages that may be handed out now.
    pub fn ready(&self) -> usize {
        self.book.lanes.ready()
    }

    /// Returns the number of messages that are not handed out, and their bytes.
    pub fn buffered(&self) -> (usize, usize) {
        self.book.lanes.buffered()
    }
}
