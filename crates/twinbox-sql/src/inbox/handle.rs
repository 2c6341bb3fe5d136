//! The handle.
use crate::{Dialect, engine::Engine};
use std::fmt;

/// The inbox of one consumer: its claims, attempts, starts and dead letters. Cheap to make and to clone.
pub struct Inbox<DB: Dialect> {
    pub(super) engine: Engine<DB>,
    pub(super) consumer: String,
}

impl<DB: Dialect> Inbox<DB> {
    pub(crate) fn new(engine: Engine<DB>, consumer: String) -> Self {
        Self { engine, consumer }
    }

    /// Returns the name of the consumer.
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// Returns whether the pool of the store was closed, so that nothing can be written any more.
    pub fn is_closed(&self) -> bool {
        self.engine.pool().is_closed()
    }
}

impl<DB: Dialect> Clone for Inbox<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), consumer: self.consumer.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for Inbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}
