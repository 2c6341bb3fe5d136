//! Marks: which messages of the log are settled, and how far the cursor may move.
use std::collections::VecDeque;

/// One message of the log, in the order of the log.
#[derive(Debug)]
struct Mark<C> {
    /// The cursor once this message and all before it are settled.
    after: C,
    is_settled: bool,
    bytes: usize,
}

/// The messages of the log from the first unsettled one on.
#[derive(Debug)]
pub(super) struct Marks<C> {
    open: VecDeque<Mark<C>>,
    /// The number of `open[0]`.
    first: u64,
    cursor: C,
    /// The bytes of unsettled messages.
    open_bytes: usize,
    settle_count: u64,
}

impl<C: Clone> Marks<C> {
    /// Marks of a log that is settled up to a cursor.
    pub(super) fn new(cursor: C) -> Self {
        Self { open: VecDeque::new(), first: 0, cursor, open_bytes: 0, settle_count: 0 }
    }

    /// Adds the next message. Returns its number.
    pub(super) fn push(&mut self, after: C, bytes: usize) -> u64 {
        let number = self.first + self.open.len() as u64;
        self.open.push_back(Mark { after, is_settled: false, bytes });
        self.open_bytes += bytes;
        number
    }

    /// Adds the next message, which is settled already.
    pub(super) fn push_settled(&mut self, after: C) {
        self.open.push_back(Mark { after, is_settled: true, bytes: 0 });
        self.move_cursor();
    }

    /// Settles a message. Returns false if it is settled already.
    pub(super) fn settle(&mut self, number: u64) -> bool {
        let at = number.checked_sub(self.first).and_then(|n| usize::try_from(n).ok());
        let Some(mark) = at.and_then(|at| self.open.get_mut(at)).filter(|mark| !mark.is_settled) else {
            return false;
        };
        mark.is_settled = true;
        self.open_bytes -= mark.bytes;
        self.settle_count += 1;
        self.move_cursor();
        true
    }

    /// Notes the cursor at the end of a window.
    pub(super) fn end_window(&mut self, after: C) {
        // It gets no mark: windows end every second also while a message is stuck, and marks would pile up.
        match self.open.back_mut() {
            Some(last) => last.after = after,
            None => self.cursor = after,
        }
    }

    fn move_cursor(&mut self) {
        while let Some(mark) = self.open.pop_front_if(|mark| mark.is_settled) {
            self.cursor = mark.after;
            self.first += 1;
        }
    }

    pub(super) fn cursor(&self) -> &C {
        &self.cursor
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    pub(super) fn settle_count(&self) -> u64 {
        self.settle_count
    }
}
