//! A lane: the messages of one key.
use super::entry::Entry;
use crate::destination::SendOrder;
use std::{collections::VecDeque, hash::Hasher};

/// The messages of one key.
#[derive(Debug)]
pub(super) struct Lane<M> {
    /// The number of messages that are ready, handed out, or waiting for a retry.
    pub(super) busy: usize,
    /// The next message is ready. Only for an ordered destination: elsewhere no message is ready while one is
    /// busy.
    pub(super) is_ready: bool,
    /// A message that was handed out waits for a retry or is being parked. No other message of the key may
    /// go.
    pub(super) is_blocked: bool,
    /// The later messages, in order.
    pub(super) waiting: VecDeque<Entry<M>>,
}

impl<M> Lane<M> {
    /// A lane with one message, which is ready.
    pub(super) fn ready(order: SendOrder) -> Self {
        Self { busy: 1, is_ready: order == SendOrder::Ordered, is_blocked: false, waiting: VecDeque::new() }
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
