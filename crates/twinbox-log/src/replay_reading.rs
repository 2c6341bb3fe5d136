//! Reading the log for a replay.
use crate::{
    reading::Reading,
    window::{self, Window},
};
use twinbox_core::{Message, message::header};
use twinbox_sql::{
    Dialect, Error, Selection,
    engine::{Cursor, Engine},
    replay::Replay,
};

/// The messages of a replay, and how far they reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplayReading {
    /// The destination. A message that is parked for it is not replayed.
    pub(crate) destination: String,
    selection: Selection,
    bound: Cursor,
    first: i64,
    last: i64,
    marks: Vec<(String, String)>,
}

impl ReplayReading {
    pub(crate) fn of(replay: &Replay) -> Self {
        let token = (header::REPLAY.to_owned(), replay.token.simple().to_string());
        let consumer = replay.consumer.iter().map(|name| (header::REPLAY_FOR.to_owned(), name.clone()));
        Self {
            destination: replay.destination.clone(),
            selection: replay.selection.clone(),
            bound: replay.bound,
            first: replay.first,
            last: replay.last,
            marks: [token].into_iter().chain(consumer).collect(),
        }
    }

    /// The next window, of two at most: up to the tick to which the destination had settled everything, and
    /// the settled part of the window behind it. None: everything is read.
    pub(crate) async fn next_window<DB: Dialect>(
        &self,
        conn: &mut DB::Connection,
        engine: &Engine<DB>,
        reading: &Reading,
    ) -> Result<Option<Window>, Error> {
        let (p, Cursor { p: whole, w, position }) = (reading.p, self.bound);
        let next = match (reading.inherited, p) {
            (Some(next), _) => next,
            _ if p < whole => whole,
            _ if p == whole && position > 0 && w > whole => w,
            _ => return Ok(None),
        };
        // Its bounds are those of the selection: searching those of the window would read an index over all
        // of it.
        let end = window::find::<DB>(conn, engine, next, next, reading.server_run).await?;
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

    /// Drops the rows behind the last selected message. True: the page reaches it.
    pub(crate) fn cut(&self, window: &Window, rows: &mut Vec<(i64, Box<Message>)>) -> bool {
        let last = if window.p == self.bound.p { self.last.min(self.bound.position) } else { self.last };
        let end = rows.partition_point(|(position, _)| *position <= last);
        let reaches_end = end < rows.len() || rows.last().is_some_and(|(position, _)| *position == last);
        rows.truncate(end);
        reaches_end
    }

    pub(crate) fn selects(&self, message: &Message) -> bool {
        self.selection.selects(message)
    }

    /// Marks a message as one of the replay.
    pub(crate) fn mark(&self, message: &mut Message) {
        message.headers.extend(self.marks.iter().cloned());
    }
}
