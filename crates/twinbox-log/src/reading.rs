//! How far pages are read.
use crate::window::Window;
use std::collections::HashSet;
use tokio::sync::watch;
use twinbox_core::Message;

/// How far pages are read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// The window being read. The bounds of an inherited one are looked up.
    pub(crate) window: Option<Window>,
    /// Every message up to this tick is read.
    pub(crate) p: i64,
    /// The server run in which the cursor was taken.
    pub(crate) server_run: i64,
    /// The snapshot of that tick, if this reader has read by it.
    pub(crate) snapshot: Option<String>,
    /// The reader before this one was reading a window up to this tick.
    pub(crate) inherited: Option<i64>,
    /// The end of the window that was searched last, which may take long. At first that of the cursor.
    pub(crate) searched: watch::Sender<i64>,
    /// The position up to which the window is read.
    pub(crate) after: i64,
    /// The number of messages of the next page.
    pub(crate) limit: usize,
    /// How many windows from now on an earlier reader may have read.
    pub(crate) repeated: u8,
}

impl Reading {
    /// The newest tick that the reader uses.
    pub(crate) fn newest(&self) -> i64 {
        let read = self.window.as_ref().map_or(self.p, |window| window.w);
        read.max(*self.searched.borrow())
    }
}

/// A page.
pub(crate) struct Page {
    /// The window. None: there is no new message.
    pub(crate) window: Option<Window>,
    pub(crate) rows: Vec<(i64, Box<Message>)>,
    /// Positions of the page that are parked, or not for this reader.
    pub(crate) parked: HashSet<i64>,
    /// The window has no more messages.
    pub(crate) is_last: bool,
    /// All messages of a replay are read.
    pub(crate) has_ended: bool,
}
