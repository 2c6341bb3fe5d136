//! Which messages of the log are settled, and how far the cursor may move: past each message before which
//! all are settled.
use std::collections::VecDeque;

/// Whether one message of the log is settled.
#[derive(Debug, Clone)]
struct Mark<C> {
    /// The cursor once this message and all before it are settled.
    cursor_after: C,
    is_settled: bool,
    bytes: usize,
}

/// One mark for each message of the log, from the first unsettled one on.
#[derive(Debug, Clone)]
pub(super) struct Marks<C> {
    marks: VecDeque<Mark<C>>,
    /// The number of the first mark, or of the next message if there is none.
    first_number: u64,
    cursor: C,
    unsettled_bytes: usize,
    /// How often [`settle`](Self::settle) settled a message.
    settle_count: u64,
}

impl<C: Clone> Marks<C> {
    /// Marks of a log that is settled up to a cursor.
    pub(super) fn new(cursor: C) -> Self {
        Self { marks: VecDeque::new(), first_number: 0, cursor, unsettled_bytes: 0, settle_count: 0 }
    }

    /// Adds the next message. Returns its number.
    pub(super) fn push(&mut self, cursor_after: C, bytes: usize) -> u64 {
        let number = self.first_number + self.marks.len() as u64;
        self.marks.push_back(Mark { cursor_after, is_settled: false, bytes });
        self.unsettled_bytes += bytes;
        number
    }

    /// Adds the next message, which is settled already.
    pub(super) fn push_settled(&mut self, cursor_after: C) {
        self.marks.push_back(Mark { cursor_after, is_settled: true, bytes: 0 });
        self.move_cursor();
    }

    /// Settles a message. Returns false if it is settled already, or was never added.
    pub(super) fn settle(&mut self, number: u64) -> bool {
        let index = number.checked_sub(self.first_number).and_then(|n| usize::try_from(n).ok());
        let Some(mark) = index.and_then(|index| self.marks.get_mut(index)).filter(|mark| !mark.is_settled)
        else {
            return false;
        };
        mark.is_settled = true;
        self.unsettled_bytes -= mark.bytes;
        self.settle_count += 1;
        self.move_cursor();
        true
    }

    /// Lets the cursor move on to a place after the last message, where no message is.
    pub(super) fn extend_last(&mut self, cursor_after: C) {
        // The place gets no mark: one comes every second also while a message is stuck, and they would pile
        // up.
        match self.marks.back_mut() {
            Some(last) => last.cursor_after = cursor_after,
            None => self.cursor = cursor_after,
        }
    }

    fn move_cursor(&mut self) {
        while let Some(mark) = self.marks.pop_front_if(|mark| mark.is_settled) {
            self.cursor = mark.cursor_after;
            self.first_number += 1;
        }
    }

    pub(super) fn cursor(&self) -> &C {
        &self.cursor
    }

    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    pub(super) fn unsettled_bytes(&self) -> usize {
        self.unsettled_bytes
    }

    pub(super) fn settle_count(&self) -> u64 {
        self.settle_count
    }
}
