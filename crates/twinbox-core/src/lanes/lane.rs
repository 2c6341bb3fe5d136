//! One key.
use super::Entry;
use crate::destination::Order;
use std::{collections::VecDeque, hash::Hasher};

/// The messages of one key.
#[derive(Debug)]
pub(super) struct Lane<M> {
    /// Messages that are ready, handed out, or to be retried.
    pub(super) busy: usize,
    /// The next one is ready. Of an ordered destination only: elsewhere none is while one is busy.
    pub(super) is_ready: bool,
    /// One that was handed out is to be retried or parked: nothing goes before it.
    pub(super) is_blocked: bool,
    /// Those behind, in order.
    pub(super) behind: VecDeque<Entry<M>>,
}

impl<M> Lane<M> {
    /// With one message, which is ready.
    pub(super) fn ready(order: Order) -> Self {
        Self { busy: 1, is_ready: order == Order::Ordered, is_blocked: false, behind: VecDeque::new() }
    }
}

/// Lanes are hashes already.
#[derive(Debug, Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a lane is hashed as the number that it is");
    }

    fn write_u64(&mut self, lane: u64) {
        self.0 = lane;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
