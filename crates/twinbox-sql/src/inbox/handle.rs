//! The handle.
use crate::{
    Dialect,
    engine::Engine,
    spare_connections::{self, SpareConnections, Turn},
};
use std::{fmt, sync::Arc};

/// The inbox of one consumer: its claims, attempts, starts and dead letters. Cheap to make and to clone.
pub struct Inbox<DB: Dialect> {
    pub(super) engine: Engine<DB>,
    pub(super) consumer: String,
    pub(super) spares: Option<Arc<SpareConnections<DB>>>,
}

impl<DB: Dialect> Inbox<DB> {
    pub(crate) fn new(engine: Engine<DB>, consumer: String) -> Self {
        Self { engine, consumer, spares: None }
    }

    /// Makes this handle keep the connection of an attempt for the next one, for about 10 ms without
    /// work and 100 ms in all. For a consumer that handles many messages.
    #[doc(hidden)]
    #[must_use]
    pub fn keep_connections(self) -> Self {
        // Whoever else needs the only connection need not wait for it.
        let is_one_of_many = self.engine.pool().options().get_max_connections() > 1;
        Self { spares: is_one_of_many.then(Arc::default), ..self }
    }

    /// Begins the wait of a delivery for its turn to be claimed. A handle that keeps connections has a
    /// transaction begun for it meanwhile, if it can.
    #[doc(hidden)]
    pub fn turn(&self) -> Turn<'_> {
        spare_connections::turn(self.spares.as_deref())
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
        Self { engine: self.engine.clone(), consumer: self.consumer.clone(), spares: self.spares.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for Inbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}
