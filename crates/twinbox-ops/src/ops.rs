//! The handle.
use std::{borrow::Cow, fmt};
use twinbox_core::{Message, Timestamp};
use twinbox_sql::{Dialect, Error, ErrorKind, Store, engine::Engine, operation::UnfinishedOperation};

/// The questions and commands of operators about one store. Cheap to make and to clone.
pub struct Ops<DB: Dialect> {
    pub(crate) engine: Engine<DB>,
    pub(crate) store: Store<DB>,
}

impl<DB: Dialect> Ops<DB> {
    /// Returns a handle for operators of a store.
    pub fn new(store: &Store<DB>) -> Self {
        Self { engine: store.engine().clone(), store: store.clone() }
    }

    /// Returns the service that owns the store.
    pub fn service(&self) -> &str {
        self.engine.service()
    }

    /// Returns the time on the clock of the database.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        self.store.now().await
    }

    /// Returns a message with a payload that a person can read, if the store has its codec and its key.
    /// Otherwise the message as it is stored.
    pub fn decoded<'m>(&self, message: &'m Message) -> Cow<'m, Message> {
        self.store.decode(message).unwrap_or(Cow::Borrowed(message))
    }

    /// Returns idempotent requests that may have called a vendor and never finished, the oldest first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn unfinished_operations(&self, limit: u32) -> Result<Vec<UnfinishedOperation>, Error> {
        self.store.idempotency_keys().unfinished(limit).await
    }

    pub(crate) fn unknown_destination(destination: &str) -> Error {
        let what =
            format!("no destination {destination:?} has ever run here: it gets its row when it starts first");
        Error::new(ErrorKind::NotFound, what)
    }
}

impl<DB: Dialect> Clone for Ops<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), store: self.store.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for Ops<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ops").field("store", &self.store).finish_non_exhaustive()
    }
}
