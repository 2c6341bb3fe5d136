//! A lane: the messages of one key.
use super::entry::{Entry, Origin};
use crate::destination::SendOrder;
use std::{collections::VecDeque, hash::Hasher};

/// The messages of one key.
#[derive(Debug, Clone)]
pub(super) struct Lane<M> {
    /// The messages that are ready, handed out, or waiting for a retry.
    pub(super) busy: Origins,
    /// The next message is ready. Only for an ordered destination: elsewhere no message is ready while one is
    /// busy.
    pub(super) is_ready: bool,
    /// Busy messages that wait for a retry or are being parked. No later one of the key may go.
    pub(super) blocked_by: Vec<Origin>,
    /// Messages that were parked and that later ones of the key wait behind. Rows after them stay parked.
    pub(super) parked: Vec<Origin>,
    /// The later messages, in order.
    pub(super) waiting: VecDeque<Entry<M>>,
}

impl<M> Lane<M> {
    /// A lane with one message, which is ready.
    pub(super) fn ready(order: SendOrder, origin: Origin) -> Self {
        Self {
            busy: Origins { first: Some(origin), later: VecDeque::new() },
            is_ready: order == SendOrder::Ordered,
            blocked_by: Vec::new(),
            parked: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Adds a message to those that wait, in its place.
    pub(super) fn wait(&mut self, entry: Entry<M>) {
        let origin = entry.ticket.origin;
        let place = match self.waiting.back() {
            Some(last) if last.ticket.origin > origin => {
                self.waiting.partition_point(|other| other.ticket.origin < origin)
            }
            _ => self.waiting.len(),
        };
        self.waiting.insert(place, entry);
    }

    /// Whether the first of the waiting messages may go.
    pub(super) fn may_go(&self, order: SendOrder, next: &Entry<M>) -> bool {
        let origin = next.ticket.origin;
        let in_order = match order {
            SendOrder::PerMessage => self.busy.first.is_none(),
            SendOrder::Ordered if next.ticket.has_failed => !self.is_ready && !self.busy.has_before(origin),
            SendOrder::Ordered => !self.is_ready,
        };
        in_order && self.blocked_by.iter().all(|by| *by > origin)
    }

    /// Whether an earlier message of the lane has no result yet.
    pub(super) fn has_before(&self, origin: Origin) -> bool {
        self.busy.has_before(origin) || self.waiting.front().is_some_and(|e| e.ticket.origin < origin)
    }

    /// Whether a row must stay parked because an earlier message of its key is.
    pub(super) fn stays_parked(&self, origin: Origin) -> bool {
        matches!(origin, Origin::Parked(_)) && self.parked.iter().any(|parked| *parked < origin)
    }
}

/// Some messages of a key, in order. One alone takes no memory of its own.
#[derive(Debug, Clone, Default)]
pub(super) struct Origins {
    first: Option<Origin>,
    later: VecDeque<Origin>,
}

impl Origins {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn has_before(&self, origin: Origin) -> bool {
        self.first.is_some_and(|first| first < origin)
    }

    pub(super) fn insert(&mut self, origin: Origin) {
        let Some(first) = self.first else { return self.first = Some(origin) };
        self.first = Some(first.min(origin));
        let later = first.max(origin);
        match self.later.back() {
            Some(last) if *last > later => {
                self.later.insert(self.later.partition_point(|other| *other < later), later);
            }
            _ => self.later.push_back(later),
        }
    }

    pub(super) fn remove(&mut self, origin: Origin) {
        if self.first == Some(origin) {
            self.first = self.later.pop_front();
        } else if let Ok(place) = self.later.binary_search(&origin) {
            self.later.remove(place);
        }
    }
}

/// A hasher for the number of a lane, which is a hash already.
#[derive(Debug, Default)]
pub(super) struct LaneHasher(u64);

impl Hasher for LaneHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("the number of a lane is hashed by `write_u64`");
    }

    fn write_u64(&mut self, lane: u64) {
        self.0 = lane;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
