//! What a reader does otherwise that reads for a replay.
use super::{Cursor, ReaderOptions, Window, page::Reading};
use crate::{
    Dialect, Error, dialect,
    replay::{Replay, Selection},
    statements::Statements,
};
use std::sync::Arc;
use twinbox_core::{Message, message::header};

/// What it reads, and up to where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// What it has put aside is not for a replay.
    pub(super) destination: String,
    selection: Selection,
    bound: Cursor,
    first: i64,
    last: i64,
    marks: Vec<(String, String)>,
}

impl ReaderOptions {
    /// Reads what is left of a replay, by the cursor that [`Replay::cursor`] names, and no more than that: see
    /// [`Reader::has_ended`](super::Reader::has_ended). Each message is marked with the headers
    /// [`REPLAY`](header::REPLAY) and, if it is for one consumer, [`REPLAY_FOR`](header::REPLAY_FOR).
    pub fn replay(self, replay: &Replay) -> Self {
        let token = (header::REPLAY.to_owned(), replay.token.simple().to_string());
        let consumer = replay.consumer.iter().map(|name| (header::REPLAY_FOR.to_owned(), name.clone()));
        let replayed = Replayed {
            destination: replay.destination.clone(),
            selection: replay.selection.clone(),
            bound: replay.bound,
            first: replay.first,
            last: replay.last,
            marks: [token].into_iter().chain(consumer).collect(),
        };
        Self {
            replay: Some(Arc::new(replayed)),
            partitions: None,
            parking: true,
            dead_letter_events: false,
            ..self
        }
    }
}

impl Replayed {
    /// The next window, of which there are two at most: up to the tick that all was settled to, and as much of the window
    /// behind it as was settled. None: all is read.
    pub(super) async fn next_window<DB: Dialect>(
        &self,
        conn: &mut DB::Connection,
        statements: &Statements,
        reading: &Reading,
    ) -> Result<Option<Window>, Error> {
        let (p, Cursor { p: whole, w, position }) = (reading.p, self.bound);
        let next = match (reading.inherited, p) {
            (Some(next), _) => next,
            _ if p < whole => whole,
            _ if p == whole && position > 0 && w > whole => w,
            _ => return Ok(None),
        };
        // Its bounds are those of the selection: to look for those of the window would read an index over all of it.
        let end = dialect::window::<DB>(conn, statements, next, next, reading.run).await?;
        let from = reading.snapshot.clone().unwrap_or_default();
        Ok(Some(Window {
            p,
            w: next,
            floor: self.first - 1,
            ceiling: self.last,
            is_late_free: false,
            from,
            to: end.to,
        }))
    }

    /// Leaves away what lies behind the last message. True: there was such.
    pub(super) fn cut(&self, window: &Window, rows: &mut Vec<(i64, Box<Message>)>) -> bool {
        let last = if window.p == self.bound.p { self.last.min(self.bound.position) } else { self.last };
        let end = rows.partition_point(|(position, _)| *position <= last);
        let beyond = end < rows.len() || rows.last().is_some_and(|(position, _)| *position == last);
        rows.truncate(end);
        beyond
    }

    pub(super) fn selects(&self, message: &Message) -> bool {
        self.selection.selects(message)
    }

    pub(super) fn mark(&self, message: &mut Message) {
        message.headers.extend(self.marks.iter().cloned());
    }
}
